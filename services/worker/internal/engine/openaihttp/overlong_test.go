package openaihttp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

func TestARefusalForTheWindowTellsItsNumbers(t *testing.T) {
	t.Parallel()
	for words, want := range map[string][2]int64{
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4200 in the messages, 800 in the completion). Please reduce the length of the messages or completion.": {4200, 4096},
		"'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum context length is 4096 tokens and your request has 4090 input tokens (100 > 4096 - 4090).":                     {4090, 4096},
		"You passed 5001 input tokens and requested 16 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4080 tokens.":                     {5001, 4096},
		"this model's maximum context length is 262144 tokens, but the prompt has 300005 tokens; shorten it":                                                                                            {300005, 262144},
		"The input (9001 tokens) is longer than the model's context length (8192 tokens).":                                                                                                              {9001, 8192},
		"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8900 tokens from the input messages and 100 tokens for the completion.": {8900, 8192},
		"request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it":                                                                                                     {9001, 8192},
		"This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens.":                                                                                 {4097, 4096},
	} {
		raw, err := json.Marshal(map[string]any{"error": map[string]any{"message": words, "type": "BadRequestError", "code": 400}})
		require.NoError(t, err)
		f := openaihttp.Refusal(raw)
		require.Equal(t, fault.Overlong, f.Code, words)
		require.Equal(t, want, [2]int64{f.Tokens, f.Window}, words)
	}
	for _, words := range []string{
		"temperature must be non-negative", "the context manager needs a token", "Unexpected token at line 4096 of the context",
	} {
		raw, err := json.Marshal(map[string]any{"error": map[string]any{"message": words, "code": 400}})
		require.NoError(t, err)
		require.Equal(t, fault.Invalid, openaihttp.Refusal(raw).Code, words)
	}
}

// An answer that would not fit behind its prompt is made as long as it can be.
func TestTheLimitIsLoweredToWhatTheEngineHasRoomFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tokens int
		limits []int64
		code   fault.Code
	}{
		"the prompt fits":         {4000, []int64{500, 96}, ""},
		"the prompt fits exactly": {4095, []int64{500, 1}, ""},
		"the prompt fills it":     {4096, []int64{500}, fault.Overlong},
		"the prompt is too long":  {5000, []int64{500}, fault.Overlong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in struct {
					MaxTokens int64 `json:"max_tokens"`
				}
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
					t.Error(err)
				}
				asked = append(asked, in.MaxTokens)
				w.Header().Set("Content-Type", "application/json")
				if int64(c.tokens)+in.MaxTokens > 4096 {
					w.WriteHeader(400)
					_, _ = fmt.Fprintf(w, `{"error":{"message":"This model's maximum context length is 4096 tokens and your request has %d input tokens","code":400}}`, c.tokens)
					return
				}
				_, _ = fmt.Fprint(w, `{"choices":[{"index":0,"message":{"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			}))
			t.Cleanup(s.Close)
			e, err := openaihttp.New(openaihttp.Config{URL: s.URL, Kind: openaihttp.OpenAI})
			require.NoError(t, err)
			t.Cleanup(e.Close)
			req := &llm.Request{MaxTokens: 500}
			_, err = e.Generate(t.Context(), "m", req, func(llm.Event) error { return nil })
			if c.code == "" {
				require.NoError(t, err)
			} else {
				require.True(t, fault.Is(err, c.code), err)
				require.Equal(t, [2]int64{int64(c.tokens), 4096}, [2]int64{fault.Of(err).Tokens, fault.Of(err).Window})
			}
			require.Equal(t, c.limits, asked)
			require.EqualValues(t, 500, req.MaxTokens, "the request stays as it is")
		})
	}
}
