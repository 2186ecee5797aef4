package openaihttp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// Chat templates want every call answered, right behind it, and nothing answered
// that was not asked.
func TestEveryCallHasItsResultAndEveryResultItsCall(t *testing.T) {
	t.Parallel()
	say := func(role llm.Role, s string) llm.Item {
		return llm.Item{Role: role, Parts: []llm.Part{{Text: llm.NewVerbatim(s)}}}
	}
	calls := func(ids ...string) llm.Item {
		it := llm.Item{Role: llm.Assistant}
		for _, id := range ids {
			it.Calls = append(it.Calls, llm.Call{ID: id, Name: "f"})
		}
		return it
	}
	result := func(id, s string) llm.Item {
		it := say(llm.Tool, s)
		it.CallID = id
		return it
	}
	brief := func(items ...llm.Item) string {
		body := string(openaihttp.Encode("vllm", "m", &llm.Request{Items: items, MaxTokens: 1}, ""))
		body = body[strings.Index(body, `[`)+1 : strings.Index(body, `],"stream"`)]
		for _, r := range [][2]string{
			{`","type":"function","function":{"name":"f","arguments":"{}"}}`, ""},
			{`,{"id":"`, "+"},
			{`","content":"","tool_calls":[{"id":"`, ":["},
			{`{"role":"`, ""},
			{`","content":"`, ":"},
			{`"}`, ""},
			{`","tool_call_id":"`, "/"},
			{`]}`, "]"},
		} {
			body = strings.ReplaceAll(body, r[0], r[1])
		}
		return body
	}
	for name, c := range map[string]struct {
		items []llm.Item
		want  string
	}{
		"as it should be":              {[]llm.Item{say(llm.User, "go"), calls("a", "b"), result("a", "1"), result("b", "2"), say(llm.User, "on")}, "user:go,assistant:[a+b],tool/a:1,tool/b:2,user:on"},
		"in another order":             {[]llm.Item{calls("a", "b"), result("b", "2"), result("a", "1")}, "assistant:[a+b],tool/a:1,tool/b:2"},
		"a call without a result":      {[]llm.Item{calls("a", "b"), result("b", "2"), say(llm.User, "on")}, "assistant:[a+b],tool/a:(no output),tool/b:2,user:on"},
		"no result at all":             {[]llm.Item{calls("a"), say(llm.User, "on")}, "assistant:[a],tool/a:(no output),user:on"},
		"a result without a call":      {[]llm.Item{say(llm.User, "go"), result("x", "1")}, "user:go,user:1"},
		"a result of another call":     {[]llm.Item{calls("a"), result("x", "9"), result("a", "1")}, "assistant:[a],tool/a:1,user:9"},
		"instructions between":         {[]llm.Item{calls("a", "b"), result("a", "1"), say(llm.System, "s"), result("b", "2"), say(llm.User, "on")}, "assistant:[a+b],tool/a:1,tool/b:2,system:s,user:on"},
		"instructions behind":          {[]llm.Item{calls("a"), result("a", "1"), say(llm.System, "s"), say(llm.User, "on")}, "assistant:[a],tool/a:1,system:s,user:on"},
		"the same id in two turns":     {[]llm.Item{calls("a"), result("a", "1"), calls("a"), result("a", "2")}, "assistant:[a],tool/a:1,assistant:[a],tool/a:2"},
		"the same id twice in a turn":  {[]llm.Item{calls("a", "a"), result("a", "1"), result("a", "2")}, "assistant:[a+a],tool/a:1,tool/a:2"},
		"the answer's result too late": {[]llm.Item{calls("a"), say(llm.User, "on"), result("a", "1")}, "assistant:[a],tool/a:(no output),user:on,user:1"},
	} {
		require.Equal(t, c.want, brief(c.items...), name)
	}
}

func TestArgumentsOfEarlierCallsAreObjects(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, ``: `{}`, `  `: `{}`, `{"a":`: `{"partial":"{\"a\":"}`, `not json`: `{"partial":"not json"}`,
		`[1]`: `{"value":[1]}`, `7`: `{"value":7}`, `"x"`: `{"value":"x"}`,
	} {
		req := &llm.Request{MaxTokens: 1, Items: []llm.Item{{Role: llm.Assistant, Calls: []llm.Call{{ID: "a", Name: "f", Arguments: in}}}}}
		require.Contains(t, string(openaihttp.Encode("vllm", "m", req, "")), `"arguments":`+string(openaihttp.Quote(nil, want)), in)
	}
}
