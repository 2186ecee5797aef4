package wire_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

func TestAnImageIsWhatItSaysItIs(t *testing.T) {
	t.Parallel()
	heads := map[string]string{
		"image/png": "\x89PNG\r\n\x1a\n....", "image/jpeg": "\xff\xd8\xff\xe0....", "image/gif": "GIF89a....",
		"image/webp": "RIFF....WEBPVP8 ", "image/bmp": "BM......", "image/tiff": "II*\x00....",
		"image/avif": "....ftypavif....", "image/heic": "....ftypmif1....",
	}
	for kind, head := range heads {
		data := base64.StdEncoding.EncodeToString([]byte(head))
		for said := range heads {
			_, err := wire.Image("f", said, llm.Base64(data))
			if said == kind {
				require.NoError(t, err, said)
				continue
			}
			require.True(t, fault.Is(err, fault.Invalid), "%s said to be %s", kind, said)
		}
		_, err := wire.Image("f", "image/jpg", llm.Base64(data))
		require.Equal(t, kind == "image/jpeg", err == nil, kind)
	}
	for said, head := range map[string]string{"image/bmp": "hello", "image/heic": "junk", "image/png": "....ftypqt  ....", "image/foo": "BM......"} {
		_, err := wire.Image("f", said, llm.Base64(base64.StdEncoding.EncodeToString([]byte(head))))
		require.True(t, fault.Is(err, fault.Invalid), said)
	}
	_, err := wire.Image("f", "image/x-unheard-of", llm.Base64("AAAA"))
	require.NoError(t, err, "the engine may know")
	_, err = wire.Image("f", "image/heif", llm.Base64(base64.StdEncoding.EncodeToString([]byte(heads["image/heic"]))))
	require.NoError(t, err)
	m, err := wire.Image("f", "IMAGE/PNG", llm.Base64("iVBO\r\nRw0KGgo="))
	require.NoError(t, err)
	require.Equal(t, "image/png iVBORw0KGgo=", m.Type+" "+string(m.Data))
	for _, bad := range []string{"", "@@@", "iVBORw0KGgo", "iVBORw0KGgo=x", "\n"} {
		_, err := wire.Image("f", "image/png", llm.Base64(bad))
		require.True(t, fault.Is(err, fault.Invalid), bad)
		_, err = wire.Audio("f", "wav", llm.Base64(bad))
		require.True(t, fault.Is(err, fault.Invalid), bad)
	}
}

func TestAnImageIsInline(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{
		"https://example.com/a.png", "http://169.254.169.254/latest/meta-data/", "HTTP://[::1]:8222/", "file:///some/file",
		"//host/x", "data:text/html;base64,PGI+", "data:image/png,raw", "data:image/png;base64,@@@", "data:image/png;base64,", "",
	} {
		_, err := wire.DataURI("f", wire.Raw(llm.NewVerbatim(uri)))
		require.True(t, fault.Is(err, fault.Invalid), uri)
		require.Equal(t, "f", fault.Of(err).Field)
	}
	_, err := wire.DataURI("f", wire.Raw(`"DATA:Image\/PNG;BASE64,iVBORw0KGgo="`))
	require.NoError(t, err)
}
