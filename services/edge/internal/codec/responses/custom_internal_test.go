package responses

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTheTextOfACustomToolDoesNotDependOnCuts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		quoted, err := json.Marshal(want)
		require.NoError(t, err)
		arguments := ` { "input" : ` + string(quoted) + `}`
		require.NoError(t, json.Unmarshal(quoted, &want), "what is no UTF-8 is mended")
		require.Equal(t, want, customText(arguments))
		require.Equal(t, want, inPieces(t, arguments))
		cut := arguments[:rapid.IntRange(0, len(arguments)).Draw(t, "limit")]
		require.Equal(t, customText(cut), inPieces(t, cut))
	})
}

// inPieces takes arguments in pieces of any size.
func inPieces(t *rapid.T, arguments string) string {
	var c custom
	got, rest := "", arguments
	for rest != "" {
		n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
		got += c.take(rest[:n])
		rest = rest[n:]
	}
	return got + c.end(arguments)
}

func TestTheTextOfACustomToolIsFoundInOtherShapes(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		``:                                "",
		`  `:                              "",
		`{}`:                              "{}",
		`{"inp`:                           "",
		`{"input":"a\u00e9\ud83d\ude42"}`: "aé🙂",
		`{"input":"\ud83dx\u12"}`:         "\ufffdx\ufffd12",
		"{\"input\":\"a\nb\\q\"}":         "a\nb\\q",
		`{"input":"a","why":1}`:           "a",
		`{"why":1,"input":"a"}`:           "a",
		`{"patch":"a"}`:                   "a",
		`{"input":5}`:                     `{"input":5}`,
		`{"a":"x","b":"y"}`:               `{"a":"x","b":"y"}`,
		`*** Begin Patch`:                 `*** Begin Patch`,
		`{"patch`:                         `{"patch`,
		`["a"]`:                           `["a"]`,
		`{"input":"cut\`:                  "cut",
		`{"input":"cut\ud83d`:             "cut",
		`{"input":"cut\ud83d\u`:           "cut",
	} {
		require.Equal(t, want, customText(arguments), arguments)
	}
}
