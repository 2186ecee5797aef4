package wire

import (
	"bytes"
	"encoding/base64"
	"io"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// DataURI reads an inline image. Addresses are never fetched, so they are
// refused here.
func DataURI(field string, raw Raw) (*llm.Media, error) {
	var uri llm.Base64
	ok := json.Unmarshal(raw, &uri) == nil
	head, data, found := bytes.Cut(uri, []byte(","))
	kind, isData := strings.CutPrefix(strings.ToLower(string(head[:min(len(head), typeMax)])), "data:")
	kind, isBase64 := strings.CutSuffix(kind, ";base64")
	if !ok || !found || !isData || !isBase64 || !strings.HasPrefix(kind, "image/") {
		return nil, fault.At(field, "images must be inline: a base64 data:image/ URI; addresses are not fetched")
	}
	kind, _, _ = strings.Cut(kind, ";")
	return Image(field, kind, data)
}

// Image checks an inline image given as its type and base64 data.
func Image(field, kind string, data llm.Base64) (*llm.Media, error) {
	kind = strings.ToLower(kind)
	if subtype, ok := strings.CutPrefix(kind, "image/"); !ok || subtype == "" || strings.Trim(subtype, "abcdefghijklmnopqrstuvwxyz0123456789.+-") != "" {
		return nil, fault.At(field, "the type of an image must begin with image/")
	}
	data, head, ok := decoded(data)
	if !ok {
		return nil, fault.At(field, "the image is not valid base64")
	}
	// A type that is not known here is for the engine to know.
	said := plainType(kind)
	if looks := looksLike(head); (looks != "" || known(said)) && looks != said {
		return nil, fault.At(field, "the image is not of the type that it is said to be")
	}
	return &llm.Media{Kind: "image", Type: kind, Data: data}, nil
}

// Audio checks inline sound given as its base64 data and the name of its format.
func Audio(field, format string, data llm.Base64) (*llm.Media, error) {
	data, _, ok := decoded(data)
	if !ok {
		return nil, fault.At(field, "sound must be inline: valid base64; addresses are not fetched")
	}
	return &llm.Media{Kind: "audio", Type: "audio/" + strings.TrimPrefix(strings.ToLower(format), "audio/"), Data: data}, nil
}

// typeMax bounds what stands before the data of a URI.
const typeMax = 256

// decoded checks base64 and gives its first bytes. Line breaks are left out of the
// data.
func decoded(data llm.Base64) (clean llm.Base64, first head, ok bool) {
	if clean = data; bytes.ContainsAny(data, "\r\n") {
		clean = bytes.Map(func(r rune) rune {
			if r == '\r' || r == '\n' {
				return -1
			}
			return r
		}, data)
	}
	_, err := io.Copy(&first, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(clean)))
	return clean, first, err == nil && len(clean) > 0
}

// headBytes is how much of an image tells its type.
const headBytes = 12

// head keeps the first bytes that are written to it.
type head []byte

// Write never fails.
func (h *head) Write(b []byte) (int, error) {
	*h = append(*h, b[:min(len(b), headBytes-len(*h))]...)
	return len(b), nil
}

// known tells whether looksLike can tell the type.
func known(kind string) bool {
	switch kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff", "image/avif", "image/heic":
		return true
	}
	return false
}

// plainType gives the one name of a type that has several.
func plainType(kind string) string {
	switch kind {
	case "image/jpg":
		return "image/jpeg"
	case "image/x-ms-bmp", "image/x-bmp":
		return "image/bmp"
	case "image/heif":
		return "image/heic"
	}
	return kind
}

// looksLike gives the type of an image by its first bytes, as the WHATWG MIME
// Sniffing Standard and the specifications of TIFF and of HEIF (ISO/IEC 23008-12)
// list them, empty when they say nothing.
func looksLike(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF8")):
		return "image/gif"
	case len(head) >= headBytes && bytes.HasPrefix(head, []byte("RIFF")) && bytes.HasPrefix(head[8:], []byte("WEBP")):
		return "image/webp"
	case bytes.HasPrefix(head, []byte("BM")):
		return "image/bmp"
	case bytes.HasPrefix(head, []byte("II*\x00")), bytes.HasPrefix(head, []byte("MM\x00*")):
		return "image/tiff"
	case len(head) >= headBytes && bytes.HasPrefix(head[4:], []byte("ftyp")):
		switch string(head[8:12]) {
		case "avif", "avis":
			return "image/avif"
		case "heic", "heix", "hevc", "hevx", "mif1", "msf1":
			return "image/heic"
		}
	}
	return ""
}
