package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every tier of reasoning effort, on every route that takes one, for a model of
// each family: what the engine is given is what the family's template understands.
func TestEveryTierReachesEveryFamilyInItsOwnWords(t *testing.T) {
	t.Parallel()
	models := []string{"glm-5.2", "glm-5.3-flash", "kimi-k3", "deepseek-v4-flash-0731", "deepseek-v4.1-flash", "qwen3.8-27b", "qwen3.6-35b-a3b"}
	c := newCluster(t, shape{simEnv: []string{"SIM_MODELS=" + strings.Join(models, ",")}})
	c.eventually("all models are served", func() bool {
		list := c.body(c.do("GET", "/v1/models", "", nil))
		for _, m := range models {
			if !strings.Contains(list, `"`+m+`"`) {
				return false
			}
		}
		return true
	})
	const (
		enable = `{"enable_thinking":false}`
		think  = `{"thinking":false}`
	)
	word := func(w string) string { return `{"reasoning_effort":"` + w + `"}` }
	usual := func(low, medium, high, xhigh, most string) []string {
		return []string{"", "", word(low), word(medium), word(high), word(xhigh), word(most)}
	}
	off := map[string]string{
		"glm-5.2": enable, "glm-5.3-flash": word("low"), "kimi-k3": think, "deepseek-v4-flash-0731": enable,
		"deepseek-v4.1-flash": think, "qwen3.8-27b": enable, "qwen3.6-35b-a3b": enable,
	}
	heard := map[string][]string{
		"glm-5.2": usual("high", "high", "high", "max", "max"), "qwen3.6-35b-a3b": usual("high", "high", "high", "max", "max"),
		"glm-5.3-flash": usual("low", "high", "high", "max", "max"), "kimi-k3": usual("low", "high", "high", "max", "max"),
		"deepseek-v4-flash-0731": usual("low", "high", "high", "max", "max"), "deepseek-v4.1-flash": usual("low", "high", "high", "max", "max"),
		"qwen3.8-27b": usual("low", "medium", "xhigh", "xhigh", "xhigh"),
	}
	n := 0
	send := func(t *testing.T, path, model, members string) string {
		t.Helper()
		n++
		mark := fmt.Sprintf("m%d", n)
		prompt := fmt.Sprintf(`"hi [[sim tokens=1 think=0 record=%s]]"`, mark)
		body := `{"model":"` + model + `","messages":[{"role":"user","content":` + prompt + `}],"max_tokens":9,` + members + `}`
		if path == "/v1/responses" {
			body = `{"model":"` + model + `","input":` + prompt + `,"max_output_tokens":9,` + members + `}`
		}
		resp := c.do("POST", path, c.key, strings.NewReader(body))
		answer := c.body(resp)
		require.Equal(t, 200, resp.StatusCode, "%s %s: %s", path, body, answer)
		_, raw := c.kept(mark)
		var sent struct {
			Kwargs    json.RawMessage `json:"chat_template_kwargs"`
			Effort    json.RawMessage `json:"reasoning_effort"`
			Reasoning json.RawMessage `json:"reasoning"`
			Thinking  json.RawMessage `json:"thinking"`
			Config    json.RawMessage `json:"output_config"`
		}
		require.NoError(t, json.Unmarshal([]byte(raw), &sent))
		require.Empty(t, string(sent.Effort)+string(sent.Reasoning)+string(sent.Thinking)+string(sent.Config), "nothing of it stands anywhere else")
		return string(sent.Kwargs)
	}
	forms := []struct{ path, tier string }{
		{"/v1/chat/completions", `"reasoning_effort":%q`},
		{"/v1/chat/completions", `"stream":true,"reasoning":{"effort":%q}`},
		{"/v1/messages", `"output_config":{"effort":%q}`},
		{"/v1/responses", `"stream":true,"reasoning":{"effort":%q}`},
	}
	for _, model := range models {
		for i, tier := range []string{"none", "MINIMAL", "low", "Medium", "high", "xHigh", "max"} {
			want := heard[model][i]
			if i < 2 {
				want = off[model]
			}
			for _, f := range forms {
				require.Equal(t, want, send(t, f.path, model, fmt.Sprintf(f.tier, tier)), "%s, %s, %s", model, tier, f.path)
			}
		}
		require.Equal(t, off[model], send(t, "/v1/chat/completions", model, `"reasoning":{"enabled":false}`), model)
		require.Equal(t, off[model], send(t, "/v1/messages", model, `"thinking":{"type":"disabled"}`), model)
		require.Empty(t, send(t, "/v1/messages", model, `"stream":true,"thinking":{"type":"enabled","budget_tokens":2000}`), model)
		require.Empty(t, send(t, "/v1/messages", model, `"thinking":{"type":"adaptive"}`), model)
		require.Equal(t, word("banana"), send(t, "/v1/chat/completions", model, `"reasoning_effort":"banana"`), model)
	}
	require.Equal(t, word("max"), send(t, "/v1/chat/completions", "kimi-k3", `"reasoning_effort":"max","reasoning":{"effort":"low"}`), "the plain form wins")
	require.Equal(t, `{"thinking":true}`, send(t, "/v1/chat/completions", "kimi-k3", `"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}`),
		"the caller's own switch wins, renamed")
	resp := c.post(`{"model":"glm-5.2","chat_template_kwargs":7,"messages":[{"role":"user","content":"hi"}]}`)
	require.Contains(t, c.body(resp), `"param":"chat_template_kwargs"`)
	require.Equal(t, 400, resp.StatusCode)
}
