package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
)

// written gives an answer in one form.
func written(t require.TestingT, req *llm.Request, streamed bool, events []llm.Event) []byte {
	r := *req
	r.Stream = streamed
	var b bytes.Buffer
	sink := openai.Codec{}.Encode(&b, &r, codectest.ID, codectest.Created)
	for _, e := range events {
		require.NoError(t, sink(e))
	}
	return b.Bytes()
}

func TestTheOfficialClientRebuildsEveryAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		hidden, scored, counted := rapid.Bool().Draw(t, "hidden"), rapid.Bool().Draw(t, "logprobs"), rapid.Bool().Draw(t, "usage")
		body, err := json.Marshal(map[string]any{
			"model": "a/m", "messages": []any{map[string]string{"role": "user", "content": "go"}}, "logprobs": scored,
			"reasoning": map[string]any{"exclude": hidden}, "stream": true, "stream_options": map[string]any{"include_usage": counted},
		})
		require.NoError(t, err)
		req, err := openai.Codec{}.Decode(route, body)
		require.NoError(t, err)
		events := codectest.Events(t, []string{"f", "g"})
		var whole sdk.ChatCompletion
		require.NoError(t, json.Unmarshal(written(t, req, false, events), &whole))
		rebuilt, thoughts := rebuild(t, written(t, req, true, events), counted)
		same(t, whole, rebuilt.ChatCompletion)
		require.Equal(t, extra(t, whole.Choices[0].Message.RawJSON(), "reasoning_content"), thoughts)
		require.False(t, hidden && thoughts != "")
		// The client adds up what each chunk counts.
		require.Equal(t, whole.Usage.PromptTokens, rebuilt.Usage.PromptTokens)
		require.Equal(t, whole.Usage.CompletionTokens, rebuilt.Usage.CompletionTokens)
	})
}

// rebuild reads a stream as the client does.
func rebuild(t *rapid.T, stream []byte, counted bool) (acc sdk.ChatCompletionAccumulator, thoughts string) {
	answer := &http.Response{
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body:   io.NopCloser(bytes.NewReader(stream)),
	}
	s := ssestream.NewStream[sdk.ChatCompletionChunk](ssestream.NewDecoder(answer), nil)
	alone := 0
	for s.Next() {
		chunk := s.Current()
		if len(chunk.Choices) == 0 {
			alone++
		} else {
			require.Zero(t, alone, "the usage alone comes last")
			thoughts += extra(t, chunk.Choices[0].Delta.RawJSON(), "reasoning_content")
		}
		require.True(t, acc.AddChunk(chunk))
	}
	require.NoError(t, s.Err())
	require.Equal(t, counted, alone == 1)
	require.True(t, bytes.HasSuffix(stream, []byte("data: [DONE]\n\n")))
	return acc, thoughts
}

// extra gives a member that the client's type does not know.
func extra(t *rapid.T, raw, name string) string {
	var members map[string]any
	require.NoError(t, json.Unmarshal([]byte(raw), &members))
	text, _ := members[name].(string)
	return text
}

func same(t *rapid.T, want, got sdk.ChatCompletion) {
	require.Equal(t, want.ID, got.ID)
	require.Equal(t, want.Model, got.Model)
	require.Equal(t, want.Created, got.Created)
	require.Len(t, got.Choices, 1)
	a, b := want.Choices[0], got.Choices[0]
	require.Equal(t, a.FinishReason, b.FinishReason)
	require.Equal(t, a.Message.Content, b.Message.Content)
	require.Len(t, b.Message.ToolCalls, len(a.Message.ToolCalls))
	for i, call := range a.Message.ToolCalls {
		other := b.Message.ToolCalls[i]
		require.Equal(t, [3]string{call.ID, call.Function.Name, call.Function.Arguments},
			[3]string{other.ID, other.Function.Name, other.Function.Arguments})
	}
	require.Len(t, b.Logprobs.Content, len(a.Logprobs.Content))
	for i, entry := range a.Logprobs.Content {
		require.Equal(t, entry.Token, b.Logprobs.Content[i].Token)
	}
}
