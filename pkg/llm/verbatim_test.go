package llm_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	v2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
)

func TestATextStaysAsItCame(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`""`, `"plain"`, `"\u003c\n\t\"\\ \/ 北京🙂"`, `"\ud83d\ude42x"`} {
		in := `{"role":"user","parts":[{"text":` + raw + `}]}`
		var it llm.Item
		require.NoError(t, v2.Unmarshal([]byte(in), &it))
		out, err := v2.Marshal(it, jsontext.PreserveRawStrings(true))
		require.NoError(t, err)
		require.Equal(t, in, string(out))
		var want string
		require.NoError(t, json.Unmarshal([]byte(raw), &want))
		got, err := it.Parts[0].Text.Decode()
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, utf8.RuneCountInString(want), it.Parts[0].Text.Chars(), raw)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", it.Parts[0].Text, it, it.Parts[0].Text), "plain")
	}
	require.Zero(t, llm.Verbatim(nil).Chars())
	require.True(t, llm.NewVerbatim("").Empty())
	require.Error(t, new(llm.Verbatim).UnmarshalJSON([]byte(`7`)))
}

func TestCharactersAreCountedThroughEscapes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		for _, html := range []bool{false, true} {
			text := llm.NewVerbatim(s)
			if html {
				raw, err := json.Marshal(s) // escapes more than it must
				require.NoError(t, err)
				text = llm.Verbatim(raw)
			}
			require.Equal(t, utf8.RuneCountInString(s), text.Chars())
		}
	})
}
