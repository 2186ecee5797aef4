package wire

import (
	"encoding/base64"
	"io"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// DataURI reads an inline image. Addresses are never fetched, so they are
// refused here.
func DataURI(field, uri string) (*llm.Media, error) {
	head, data, ok := strings.Cut(uri, ",")
	kind, isData := strings.CutPrefix(strings.ToLower(head), "data:")
	kind, isBase64 := strings.CutSuffix(kind, ";base64")
	if !ok || !isData || !isBase64 || !strings.HasPrefix(kind, "image/") {
		return nil, fault.At(field, "images must be inline: a base64 data:image/ URI; addresses are not fetched")
	}
	return Image(field, kind, data)
}

// Image checks an inline image given as its type and base64 data.
func Image(field, kind, data string) (*llm.Media, error) {
	kind = strings.ToLower(kind)
	if !strings.HasPrefix(kind, "image/") {
		return nil, fault.At(field, "the type of an image must begin with image/")
	}
	data = strings.NewReplacer("\n", "", "\r", "").Replace(data)
	if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))); err != nil || data == "" {
		return nil, fault.At(field, "the image is not valid base64")
	}
	return &llm.Media{Kind: "image", Type: kind, Data: data}, nil
}
