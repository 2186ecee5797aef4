package openaihttp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// Tool messages take text only, so what a tool showed goes into the user's turn
// behind the results: no answer may come between calls and their results.
func TestWhatAToolShowsGoesToTheUsersTurn(t *testing.T) {
	t.Parallel()
	say := func(s string) llm.Part { return llm.Part{Text: llm.NewVerbatim(s)} }
	image := llm.Part{Media: &llm.Media{Kind: "image", Type: "image/png", Data: llm.Base64("AAAA")}}
	const shown = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
	results := []llm.Item{
		{Role: llm.Assistant, Calls: []llm.Call{{ID: "A", Name: "f"}, {ID: "B", Name: "f"}}},
		{Role: llm.Tool, CallID: "A", Parts: []llm.Part{say("a"), image}},
		{Role: llm.Tool, CallID: "B", Parts: []llm.Part{image}},
	}
	const told = `{"role":"assistant","content":"","tool_calls":[{"id":"A","type":"function","function":{"name":"f","arguments":"{}"}},` +
		`{"id":"B","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"A","content":"a"},{"role":"tool","tool_call_id":"B","content":""},`
	for name, c := range map[string]struct {
		next []llm.Item
		want string
	}{
		"nothing follows": {nil, told + `{"role":"user","content":[` + shown + `,` + shown + `]}]`},
		"the user follows": {
			[]llm.Item{{Role: llm.User, Parts: []llm.Part{say("see")}}},
			told + `{"role":"user","content":[` + shown + `,` + shown + `,{"type":"text","text":"see"}]}]`,
		},
		"the assistant follows": {
			[]llm.Item{{Role: llm.Assistant, Parts: []llm.Part{say("ok")}}},
			told + `{"role":"user","content":[` + shown + `,` + shown + `]},{"role":"assistant","content":"ok"}]`,
		},
	} {
		req := &llm.Request{Items: append(append([]llm.Item(nil), results...), c.next...), MaxTokens: 1}
		require.Contains(t, string(openaihttp.Encode("vllm", "m", req, "")), `"messages":[`+c.want, name)
		require.Len(t, req.Items[1].Parts, 2, "the request stays as it is: %s", name)
	}
}
