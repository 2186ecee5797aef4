package openaihttp_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/dialect"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// What each kind of engine is sent for what a model's template shall hear.
func TestEffortIsSaidWhereTheEngineLooksForIt(t *testing.T) {
	t.Parallel()
	const v4, glm = "deepseek-v4-flash-0731", "glm-5.2"
	for name, c := range map[string]struct{ kind, model, args, want, not string }{
		"vllm":                          {openaihttp.VLLM, v4, `{"reasoning_effort":"high"}`, `"chat_template_kwargs":{"reasoning_effort":"high"}`, `},"reasoning_effort"`},
		"llama.cpp":                     {openaihttp.LlamaCpp, glm, `{"enable_thinking":false}`, `"chat_template_kwargs":{"enable_thinking":false}`, `"reasoning_effort"`},
		"sglang, any model":             {openaihttp.SGLang, glm, `{"enable_thinking":false}`, `"chat_template_kwargs":{"enable_thinking":false}`, `"thinking"`},
		"sglang, deepseek off":          {openaihttp.SGLang, v4, `{"enable_thinking":false}`, `"chat_template_kwargs":{"enable_thinking":false,"thinking":false}`, `"reasoning_effort"`},
		"sglang, deepseek's own switch": {openaihttp.SGLang, v4, `{"thinking":true}`, `"chat_template_kwargs":{"thinking":true,"enable_thinking":true}`, `"reasoning_effort"`},
		"sglang, both switches":         {openaihttp.SGLang, v4, `{"thinking":true,"enable_thinking":false}`, `"chat_template_kwargs":{"thinking":true,"enable_thinking":false}`, `"reasoning_effort"`},
		"sglang, deepseek level":        {openaihttp.SGLang, v4, `{"reasoning_effort":"max"}`, `"chat_template_kwargs":{"reasoning_effort":"max","thinking":true},"reasoning_effort":"max"`, `enable`},
		"sglang, deepseek 4.1 level":    {openaihttp.SGLang, "deepseek-v4.1-flash", `{"reasoning_effort":"max"}`, `"chat_template_kwargs":{"reasoning_effort":"max"},"reasoning_effort":"max"`, `thinking`},
		"ollama off":                    {openaihttp.Ollama, glm, `{"enable_thinking":false}`, `"reasoning_effort":"none"`, `kwargs`},
		"ollama off, the other switch":  {openaihttp.Ollama, "kimi-k3", `{"thinking":false}`, `"reasoning_effort":"none"`, `kwargs`},
		"ollama's scale":                {openaihttp.Ollama, "qwen3.8-27b", `{"reasoning_effort":"xhigh"}`, `"reasoning_effort":"max"`, `kwargs`},
		"ollama, a level":               {openaihttp.Ollama, glm, `{"reasoning_effort":"high","a":1}`, `"reasoning_effort":"high"`, `kwargs`},
		"ollama, an unknown word":       {openaihttp.Ollama, glm, `{"reasoning_effort":"banana"}`, `"reasoning_effort":"banana"`, `kwargs`},
		"no object":                     {openaihttp.SGLang, v4, `[1]`, `"chat_template_kwargs":[1]`, `thinking`},
	} {
		req := &llm.Request{Model: c.model, MaxTokens: 1, Extra: []llm.Field{
			field("seed", "1"), {Name: dialect.Kwargs, Value: json.RawMessage(c.args)}, field("top_p", "1"),
		}}
		got := string(openaihttp.Encode(c.kind, "m", req, ""))
		require.Contains(t, got, `"seed":1,`+c.want, name)
		require.Contains(t, got, `"top_p":1`, name)
		require.NotContains(t, got, c.not, name)
		require.True(t, json.Valid([]byte(got)), name)
	}
}
