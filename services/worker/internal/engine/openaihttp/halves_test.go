package openaihttp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
)

// What JSON writes as two escapes may be cut between them.
func TestHalvesOfACharacterAreJoined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"two halves":                 {[]string{`a\ud83d`, `\ude00b`}, "a😀b"},
		"nothing else":               {[]string{`\uD83D`, ``, `\uDE00`}, "😀"},
		"twice":                      {[]string{`\ud83d`, `\ude00\ud83d`, `\ude00`}, "😀😀"},
		"whole":                      {[]string{`\ud83d\ude00`, `é\ud83d\ude00`}, "😀é😀"},
		"the second is missing":      {[]string{`a\ud83d`, `b`}, "a\uFFFDb"},
		"the second is another's":    {[]string{`a\ud83d`, `\u00e9`}, "a\uFFFDé"},
		"the second is a first":      {[]string{`\ud83d`, `\ud83d`, `\ude00`}, "\uFFFD😀"},
		"two firsts":                 {[]string{`\ud83d\ud83d`, `\ude00`}, "\uFFFD😀"},
		"two seconds":                {[]string{`\ud83d`, `\ude00\ude00`}, "😀\uFFFD"},
		"the first is missing":       {[]string{`a`, `\ude00b`}, "a\uFFFDb"},
		"only the first":             {[]string{`a\ud83d`}, "a\uFFFD"},
		"in the middle of a chunk":   {[]string{`a\ud83db`, `\ude00`}, "a\uFFFDb\uFFFD"},
		"an escape that is none":     {[]string{`a\\ud83d`, `\\ude00b`}, `a\ud83d\ude00b`},
		"a backslash before":         {[]string{`\\\ud83d`, `\ude00`}, `\😀`},
		"bytes that no UTF-8 has":    {[]string{"a\xed\xa0\xbd", "\xed\xb8\x80"}, "a\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
		"the replacement as it came": {[]string{`\ufffd`, `\ude00`, `\ufffd`}, "\uFFFD\uFFFD\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, member := range []string{"content", "reasoning", "reasoning_content"} {
				var chunks []string
				for _, p := range c.pieces {
					chunks = append(chunks, delta(`"`+member+`":"`+p+`"`))
				}
				r := fold(t, events(t, lines(append(chunks, end("stop"))...)))
				require.Equal(t, c.want, r.Text+r.Reasoning)
			}
			chunks := []string{delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`)}
			for _, p := range append(append([]string{`\"`}, c.pieces...), `\"`) {
				chunks = append(chunks, delta(`"tool_calls":[{"index":0,"function":{"arguments":"`+p+`"}}]`))
			}
			r := fold(t, events(t, lines(append(chunks, end("tool_calls"))...)))
			require.Equal(t, []llm.Call{{ID: "a", Name: "f", Arguments: `"` + c.want + `"`}}, r.Calls)
		})
	}
}

// The halves of different texts are not each other's.
func TestHalvesStayWithTheirText(t *testing.T) {
	t.Parallel()
	r := fold(t, events(t, lines(
		delta(`"content":"\ud83d"`), delta(`"reasoning":"\ud83e"`), delta(`"content":"\ude00"`), delta(`"reasoning":"\udd14"`), end("stop"),
	)))
	require.Equal(t, "😀", r.Text)
	require.Equal(t, "🤔", r.Reasoning)
}
