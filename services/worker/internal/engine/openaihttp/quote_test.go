package openaihttp_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

func sameQuote(t testing.TB, text string) {
	t.Helper()
	// The error is about invalid UTF-8, which both replace.
	want, _ := jsontext.AppendQuote([]byte("x"), text)
	require.Equal(t, string(want), string(openaihttp.Quote([]byte("x"), text)))
}

func TestQuotesAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for _, fill := range []string{"a", "é", "\"", "\x7f", "\x80"} {
			for before := range 9 {
				sameQuote(t, strings.Repeat(fill, before)+string([]byte{byte(c)})+strings.Repeat(fill, 9-before))
				sameQuote(t, strings.Repeat(fill, before)+string(rune(c)))
			}
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("<b>&\u2028\"\\\n\x00\xff 北京🙂")
	f.Fuzz(func(t *testing.T, text string) { sameQuote(t, text) })
}
