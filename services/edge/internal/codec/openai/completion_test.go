package openai_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
)

const (
	rawRoute = "POST /v1/completions"
	rawCases = "testdata/completions"
)

func TestGoldenCasesOfRawPrompts(t *testing.T) {
	t.Parallel()
	codectest.Run(t, openai.Codec{}, rawRoute, rawCases)
}

func TestARefusalOfARawPromptQuotesNoContent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"model":"m","prompt":["MARKER",1]}`, `{"model":"m","prompt":["MARKER","b"]}`, `{"model":"m","prompt":{"MARKER":1}}`,
		`{"model":"m","prompt":"MARKER","suffix":"MARKER"}`, `{"model":"m","prompt":"MARKER" x}`,
		`{"model":"m","prompt":"MARKER","logprob_start_len":6}`, `{"model":"m","prompt":"x","logprobs":"MARKER"}`,
	} {
		_, err := openai.Codec{}.Decode(rawRoute, []byte(body))
		require.True(t, fault.Is(err, fault.Invalid), body)
		_, out := openai.Codec{}.Error(err, "id")
		require.NotContains(t, string(out), "MARKER")
	}
}

func TestTheBoundsOfARawPrompt(t *testing.T) {
	t.Parallel()
	for good, bad := range map[string]string{
		`"prompt":[2147483647]`:                   `"prompt":[2147483648]`,
		`"prompt":[0]`:                            `"prompt":[-1]`,
		`"prompt":"x","logprobs":30`:              `"prompt":"x","logprobs":31`,
		`"prompt":"x","logprobs":1`:               `"prompt":"x","logprobs":0`,
		`"prompt":"x","max_tokens":1`:             `"prompt":"x","max_tokens":0`,
		`"prompt":[1,2,3],"logprob_start_len":2`:  `"prompt":[1,2,3],"logprob_start_len":3`,
		`"prompt":[1,2,3],"logprob_start_len":0`:  `"prompt":[1,2,3],"logprob_start_len":-1`,
		`"prompt":"\u00e9","logprob_start_len":5`: `"prompt":"\u00e9","logprob_start_len":6`,
	} {
		_, err := openai.Codec{}.Decode(rawRoute, []byte(`{"model":"m",`+good+`}`))
		require.NoError(t, err, good)
		_, err = openai.Codec{}.Decode(rawRoute, []byte(`{"model":"m",`+bad+`}`))
		require.True(t, fault.Is(err, fault.Invalid), bad)
	}
}

func TestALongListOfIDsIsCounted(t *testing.T) {
	t.Parallel()
	list := strings.TrimSuffix(strings.Repeat("151331 ,", 20_000), ",")
	req, err := openai.Codec{}.Decode(rawRoute, []byte(`{"model":"m","prompt":[`+list+`]}`))
	require.NoError(t, err)
	require.Equal(t, int64(20_000), req.Raw.IDs.Len())
	require.Equal(t, "["+list+"]", string(req.Raw.IDs))
}

func TestNoBodyWithARawPromptIsDear(t *testing.T) {
	t.Parallel()
	codectest.Hostile(t, openai.Codec{}, rawRoute, map[string]string{
		`{"model":"m","prompt":[MANY]}`:             `1`,
		`{"model":"m","prompt":[MANY ]}`:            `"x"`,
		`{"model":"m","prompt":[[MANY]]}`:           `12345`,
		`{"model":"m","prompt":[MANY,1.0]}`:         `1`,
		`{"model":"m","prompt":[MANY  ]}`:           `1.0`,
		`{"model":"m","prompt":[MANY,"x"]}`:         `[1]`,
		`{"model":"m","prompt":"x","extra":[MANY]}`: `{"a":1}`,
	})
}

// The official client reads what this codec writes.
func TestTheOfficialClientReadsCompletions(t *testing.T) {
	t.Parallel()
	logprob := func(id int, p string) string { return fmt.Sprintf(`{"id":%d,"logprob":%s}`, id, p) }
	for name, c := range map[string]struct {
		body   string
		events []llm.Event
		check  func(*testing.T, sdk.Completion)
	}{
		"echo": {
			`{"model":"a/m","prompt":"x","echo":true,"logprobs":1}`,
			[]llm.Event{{Kind: llm.Text, Text: "xa", Logprobs: json.RawMessage(
				`[{"token":"x","logprob":null},{"token":"a","logprob":-0.5,"top_logprobs":[{"token":"b","logprob":-0.25}]}]`,
			)}},
			func(t *testing.T, got sdk.Completion) {
				lp := got.Choices[0].Logprobs
				require.Equal(t, []string{"x", "a"}, lp.Tokens)
				require.Equal(t, []int64{-1, -1}, lp.TextOffset)
				// The client's own lists cannot hold the null of the first token.
				require.Equal(t, "[null,-0.5]", lp.JSON.TokenLogprobs.Raw())
				require.Equal(t, `[null,{"b":-0.25}]`, lp.JSON.TopLogprobs.Raw())
			},
		},
		"span": {
			`{"model":"a/m","prompt":[1,2],"logprob_start_len":1}`,
			[]llm.Event{{Kind: llm.Scores, Logprobs: json.RawMessage("[" + logprob(2, "-0.5") + "]")}, {Kind: llm.Text, Text: "a"}},
			func(t *testing.T, got sdk.Completion) {
				require.JSONEq(t, `{"token_logprobs":[-0.5],"token_ids":[2]}`, got.Choices[0].Logprobs.RawJSON())
			},
		},
		"logprobs": {
			`{"model":"a/m","prompt":"x","logprobs":1}`,
			[]llm.Event{{Kind: llm.Text, Text: "a", Logprobs: json.RawMessage(
				`[{"token":"a","logprob":-0.5,"top_logprobs":[{"token":"b","logprob":-0.25}]}]`,
			)}},
			func(t *testing.T, got sdk.Completion) {
				lp := got.Choices[0].Logprobs
				require.Equal(t, []float64{-0.5}, lp.TokenLogprobs)
				require.Equal(t, []map[string]float64{{"b": -0.25}}, lp.TopLogprobs)
			},
		},
		"plain": {
			`{"model":"a/m","prompt":"x"}`,
			[]llm.Event{{Kind: llm.Text, Text: "a"}},
			func(t *testing.T, got sdk.Completion) { require.Empty(t, got.Choices[0].Logprobs.Tokens) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := openai.Codec{}.Decode(rawRoute, []byte(c.body))
			require.NoError(t, err)
			end := llm.Event{
				Kind: llm.Done, Finish: llm.Length, Usage: &llm.Usage{Prompt: 2, Completion: 1}, Receipt: &llm.Receipt{ChargedMicro: 3},
			}
			var got sdk.Completion
			require.NoError(t, json.Unmarshal(written(t, req, false, slices.Concat(c.events, []llm.Event{end})), &got))
			require.Equal(t, "cmpl-"+codectest.ID[:24], got.ID)
			require.Equal(t, "text_completion", string(got.Object))
			require.Equal(t, "a/m", got.Model)
			require.Equal(t, sdk.CompletionChoiceFinishReasonLength, got.Choices[0].FinishReason)
			require.Equal(t, int64(3), got.Usage.TotalTokens)
			c.check(t, got)
		})
	}
}

func FuzzDecodeCompletion(f *testing.F) {
	for _, body := range codectest.Requests(f, rawCases) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := openai.Codec{}.Decode(rawRoute, body)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.Of(err).Code, "%v", err)
			return
		}
		require.NotNil(t, req.Raw)
		require.False(t, req.Stream)
		require.NotEqual(t, req.Raw.Text == nil, req.Raw.IDs == nil, "one of them is the prompt")
		var ids []uint32
		if req.Raw.IDs != nil {
			require.NoError(t, json.Unmarshal(req.Raw.IDs, &ids))
			require.Equal(t, int64(len(ids)), req.Raw.IDs.Len())
		}
		if from := req.Raw.ScoreFrom; from != nil {
			require.False(t, req.Logprobs || req.Raw.Echo || *from < 0)
			require.True(t, ids == nil || *from < int64(len(ids)))
		}
		raw, err := json.Marshal(req)
		require.NoError(t, err, "what is kept is valid")
		var back llm.Request
		require.NoError(t, json.Unmarshal(raw, &back))
		require.Equal(t, req.Raw.IDs.Len(), back.Raw.IDs.Len())
	})
}
