package sim_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/sim"
)

func weather(more ...object) object {
	tool := func(name string) object {
		return object{"type": "function", "function": object{"name": name, "parameters": object{
			"type": "object", "properties": object{"city": object{"type": "string"}, "days": object{"type": "integer"}},
			"required": []string{"city", "days"},
		}}}
	}
	body := object{"tools": []object{tool("get_weather"), tool("get_tide")}}
	for _, m := range more {
		for k, v := range m {
			body[k] = v
		}
	}
	return body
}

func TestStreamAndJSON(t *testing.T) {
	t.Parallel()
	e := start(t, func(c *sim.Config) { c.NoCache = true })
	for name, body := range map[string]object{
		"plain text":             user("hello"),
		"cut text":               user("hello", object{"max_tokens": 5}),
		"both limits":            user("hello", object{"max_tokens": 50, "max_completion_tokens": 7}),
		"reasoning":              user("hello", object{"chat_template_kwargs": object{"enable_thinking": true}}),
		"reasoning that is cut":  user("hello", object{"max_tokens": 9, "chat_template_kwargs": object{"thinking": true}}),
		"the other field":        user("hello [[sim think=5 reasoning_field=reasoning]]"),
		"a stop string":          user("hello", object{"stop": []string{"answer: "}}),
		"a tool call":            user("weather in Oslo?", weather(object{"tool_choice": "required"})),
		"two tool calls":         user("use both tools, please", weather()),
		"text between two calls": user("x [[sim calls=3 tool_text]]", weather()),
		"a cut tool call":        user("call get_tide", weather(object{"max_tokens": 9})),
		"empty arguments":        user("call get_tide [[sim empty_args]]", weather()),
		"wide characters":        user("x [[sim unicode split tokens=40]]"),
		"an echo":                user("line one\n\"two\" \\ \t 北京🙂é\u2028 [[sim echo]]"),
		"a very long line":       user("x [[sim big=100000]]"),
		"very long arguments":    user("call get_tide [[sim big=100000]]", weather()),
		"logprobs":               user("x", object{"logprobs": true, "top_logprobs": 3, "max_tokens": 20}),
		"several choices":        user("x", object{"n": 3, "max_tokens": 20}),
		"a JSON object":          user("x", object{"response_format": object{"type": "json_object"}}),
		"empty tool lists":       user("x [[sim empty_tools]]"),
	} {
		t.Run("they agree on "+name, func(t *testing.T) {
			t.Parallel()
			want := e.chat(t, body)
			data, err := e.open(t, "/v1/chat/completions", body).rest(t)
			require.NoError(t, err)
			list := chunks(t, data)
			got := fold(t, list)
			require.Equal(t, want.Choices, got.Choices)
			require.Equal(t, want.Usage, got.Usage)
			require.Equal(t, "engy-simulator", got.System)
			last := list[len(list)-1]
			require.Empty(t, last.Choices)
			require.Contains(t, data[len(data)-2], `"choices":[]`)
			require.Equal(t, want.Usage.Total, want.Usage.Prompt+want.Usage.Completion)
		})
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	e := start(t)
	t.Run("the answer is the same every time and another with another seed", func(t *testing.T) {
		t.Parallel()
		a, b := e.chat(t, user("tell me")), e.chat(t, user("tell me"))
		require.Equal(t, a.Choices, b.Choices)
		require.True(t, strings.HasPrefix(a.Choices[0].Message.Content, "Simulated answer:"))
		c := e.chat(t, user("tell me", object{"seed": int64(9007199254740993)}))
		d := e.chat(t, user("tell me", object{"seed": int64(9007199254740992)}))
		require.NotEqual(t, a.Choices[0].Message, c.Choices[0].Message)
		require.NotEqual(t, d.Choices[0].Message, c.Choices[0].Message)
	})
	t.Run("every event carries one token and running usage counts them", func(t *testing.T) {
		t.Parallel()
		data, err := e.open(t, "/v1/chat/completions", user("hello [[sim think=3 tokens=9]]", object{
			"stream_options": object{"include_usage": true, "continuous_usage_stats": true},
		})).rest(t)
		require.NoError(t, err)
		list := chunks(t, data)
		require.Len(t, list, 1+3+9+1+1)
		require.Equal(t, "assistant", list[0].Choices[0].Delta.Role)
		for i, r := range list[:13] {
			require.Equal(t, i, r.Usage.Completion)
		}
		require.Equal(t, 3, list[14].Usage.Reasoning)
		require.Equal(t, 3, list[14].Usage.Completed.Reasoning)
		require.Equal(t, list[0].Usage.Prompt, list[14].Usage.Prompt)
	})
	t.Run("usage comes only when asked for", func(t *testing.T) {
		t.Parallel()
		data, err := e.open(t, "/v1/chat/completions", user("x", object{"stream_options": object{}})).rest(t)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(data, ""), `"usage"`)
	})
	t.Run("the counts are those of tokenize", func(t *testing.T) {
		t.Parallel()
		body := user("How many tokens is this, 北京?", weather(object{"tool_choice": "none"}))
		r := e.chat(t, body)
		require.Equal(t, e.tokenize(t, "/tokenize", body), r.Usage.Prompt)
		require.Equal(t, e.tokenize(t, "/v1/tokenize", object{"prompt": r.Choices[0].Message.Content}), r.Usage.Completion)
		require.Equal(t, 64, r.Usage.Completion)
	})
	t.Run("a media part costs the same whatever is in it", func(t *testing.T) {
		t.Parallel()
		text := object{"type": "text", "text": "what is it?"}
		image := object{"type": "image_url", "image_url": object{"url": "data:image/png;base64,AAAA"}}
		parts := func(p ...object) object {
			return object{"messages": []object{{"role": "user", "content": p}}}
		}
		require.Equal(t, 256, e.chat(t, parts(text, image)).Usage.Prompt-e.chat(t, parts(text)).Usage.Prompt)
	})
	t.Run("logprobs are those of the shown tokens", func(t *testing.T) {
		t.Parallel()
		c := e.chat(t, user("x [[sim unicode tokens=4]]", object{"logprobs": true, "top_logprobs": 30})).Choices[0]
		text := ""
		for _, entry := range c.Logprobs.Content {
			text += entry.Token
			require.Len(t, entry.Bytes, len(entry.Token))
			require.Len(t, entry.TopLogprobs, 30)
			require.LessOrEqual(t, entry.Logprob, 0.0)
			require.Positive(t, math.Exp(entry.Logprob))
		}
		require.Equal(t, c.Message.Content, text)
	})
	t.Run("effort changes the length of reasoning that is on", func(t *testing.T) {
		t.Parallel()
		for effort, want := range map[string]int{`"low"`: 16, `"medium"`: 32, `"max"`: 128, `50`: 50, `null`: 32} {
			raw := fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":%s}}`, effort)
			var body object
			require.NoError(t, json.Unmarshal([]byte(raw), &body))
			require.Equal(t, want, e.chat(t, body).Usage.Reasoning, effort)
		}
	})
	t.Run("reasoning can be on by default and is switched off by the request", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.Think, c.ReasoningField = true, "reasoning" })
		require.NotEmpty(t, e.chat(t, user("x")).Choices[0].Message.Reasoning)
		require.Zero(t, e.chat(t, user("x", object{"reasoning_effort": "none"})).Usage.Reasoning)
		require.Zero(t, e.chat(t, user("x", object{"chat_template_kwargs": object{"enable_thinking": false}})).Usage.Reasoning)
	})
	t.Run("at least min_tokens are made, and all that fit without an end", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 100, e.chat(t, user("x", object{"min_tokens": 100})).Usage.Completion)
		r := e.chat(t, user("x", object{"ignore_eos": true, "max_tokens": 333}))
		require.Equal(t, 333, r.Usage.Completion)
		require.Equal(t, "length", r.Choices[0].Finish)
	})
}

func (e *engine) tokenize(t *testing.T, path string, body any) int {
	t.Helper()
	var r struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
	}
	require.NoError(t, json.UnmarshalRead(e.post(t, path, body).Body, &r))
	require.Len(t, r.Tokens, r.Count)
	require.Equal(t, sim.WindowUsual, r.MaxModelLen)
	return r.Count
}

func TestTools(t *testing.T) {
	t.Parallel()
	e := start(t)
	calls := func(t *testing.T, body object) []toolCall {
		t.Helper()
		c := e.chat(t, body).Choices[0]
		if len(c.Message.ToolCalls) > 0 {
			require.Equal(t, "tool_calls", c.Finish)
		}
		for _, call := range c.Message.ToolCalls {
			require.Regexp(t, `^call_[0-9a-f]+$`, call.ID)
			var args struct {
				City string `json:"city"`
				Days int    `json:"days"`
			}
			require.NoError(t, json.Unmarshal([]byte(call.Function.Arguments), &args, json.RejectUnknownMembers(true)))
			require.NotEmpty(t, args.City)
			require.Positive(t, args.Days)
		}
		return c.Message.ToolCalls
	}
	t.Run("nothing is called unasked", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, calls(t, user("good morning", weather())))
		require.Empty(t, calls(t, user("call get_tide", weather(object{"tool_choice": "none"}))))
	})
	t.Run("a tool is called by its name, by words, and by choice", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "get_tide", calls(t, user("what does GET_TIDE say", weather()))[0].Function.Name)
		require.Equal(t, "get_weather", calls(t, user("use the tool", weather()))[0].Function.Name)
		named := object{"tool_choice": object{"type": "function", "function": object{"name": "get_tide"}}}
		require.Equal(t, "get_tide", calls(t, user("good morning", weather(named)))[0].Function.Name)
		require.Equal(t, "get_tide", calls(t, user("x [[sim tool=get_tide]]", weather()))[0].Function.Name)
	})
	t.Run("several are called at once unless that is forbidden", func(t *testing.T) {
		t.Parallel()
		require.Len(t, calls(t, user("both tools", weather())), 2)
		require.Len(t, calls(t, user("x [[sim calls=5]]", weather())), 5)
		require.Len(t, calls(t, user("both tools", weather(object{"parallel_tool_calls": false}))), 1)
	})
	t.Run("a result is answered with text", func(t *testing.T) {
		t.Parallel()
		body := weather(object{"messages": []object{
			{"role": "user", "content": "call get_tide"},
			{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "call_1", "type": "function", "function": object{"name": "get_tide", "arguments": ""}}}},
			{"role": "tool", "tool_call_id": "call_1", "content": "low"},
		}})
		require.Empty(t, calls(t, body))
	})
	t.Run("a directive spells the arguments out", func(t *testing.T) {
		t.Parallel()
		body := user(`x [[sim tool=get_tide calls=2 args={"city":"New%20York","days":[[1%5D,2]}]]`, weather())
		c := e.chat(t, body).Choices[0].Message.ToolCalls
		require.Len(t, c, 2)
		for _, call := range c {
			require.Equal(t, "get_tide", call.Function.Name)
			require.Equal(t, `{"city":"New York","days":[[1],2]}`, call.Function.Arguments)
		}
	})
	t.Run("an answer repeats what the tools said when told", func(t *testing.T) {
		t.Parallel()
		messages := []object{
			{"role": "user", "content": "call get_tide [[sim echo_result]]"},
			{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "call_1", "type": "function", "function": object{"name": "get_tide", "arguments": ""}}}},
			{"role": "tool", "tool_call_id": "call_1", "content": "low"},
			{"role": "tool", "tool_call_id": "call_2", "content": []object{{"type": "text", "text": "high"}, {"type": "text", "text": "tide"}}},
			{"role": "system", "content": "be brief"},
		}
		require.Equal(t, "low\nhigh\ntide", e.chat(t, weather(object{"messages": messages})).Choices[0].Message.Content)
		require.NotEmpty(t, calls(t, weather(object{"messages": messages[:1]})), "before there is a result it has no effect")
	})
	t.Run("a tool that was not offered is called when a directive says so", func(t *testing.T) {
		t.Parallel()
		c := e.chat(t, user("x [[sim tool=ghost]]", weather())).Choices[0].Message.ToolCalls
		require.Equal(t, "ghost", c[0].Function.Name)
		require.Equal(t, "{}", c[0].Function.Arguments)
	})
	t.Run("the last event of a call repeats its arguments when told", func(t *testing.T) {
		t.Parallel()
		s := e.open(t, "/v1/chat/completions", user("call get_tide [[sim repeat_args]]", weather()))
		data, err := s.rest(t)
		require.NoError(t, err)
		list := chunks(t, data)
		whole := list[len(list)-3].Choices[0].Delta.ToolCalls[0].Function.Arguments
		require.Equal(t, whole+whole, fold(t, list).Choices[0].Message.ToolCalls[0].Function.Arguments)
		require.NotEmpty(t, whole)
	})
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	e := start(t)
	ask := func(t *testing.T, body object) reply {
		t.Helper()
		delete(body, "stream")
		res := e.post(t, "/v1/completions", body)
		require.Equal(t, http.StatusOK, res.StatusCode)
		var r reply
		require.NoError(t, json.UnmarshalRead(res.Body, &r))
		return r
	}
	t.Run("the stream says what the JSON says", func(t *testing.T) {
		t.Parallel()
		body := object{"model": "m", "prompt": "once [[sim tokens=30]]", "max_tokens": 40}
		want := ask(t, body)
		data, err := e.open(t, "/v1/completions", body).rest(t)
		require.NoError(t, err)
		got := fold(t, chunks(t, data))
		require.Equal(t, want.Choices, got.Choices)
		require.Equal(t, want.Usage, got.Usage)
		require.Equal(t, 30, got.Usage.Completion)
		require.Equal(t, "text_completion", got.Object)
	})
	t.Run("sixteen tokens are the default", func(t *testing.T) {
		t.Parallel()
		r := ask(t, object{"prompt": "once"})
		require.Equal(t, 16, r.Usage.Completion)
		require.Equal(t, "length", r.Choices[0].Finish)
	})
	t.Run("ids and their text are the same prompt", func(t *testing.T) {
		t.Parallel()
		const text = "ids of a prompt, 北京"
		var ids struct {
			Tokens []uint32 `json:"tokens"`
		}
		require.NoError(t, json.UnmarshalRead(e.post(t, "/tokenize", object{"prompt": text}).Body, &ids))
		a, b, c := ask(t, object{"prompt": text}), ask(t, object{"prompt": ids.Tokens}), ask(t, object{"prompt": [][]uint32{ids.Tokens}})
		require.Equal(t, a.Choices, b.Choices)
		require.Equal(t, a.Choices, c.Choices)
		require.Equal(t, len(ids.Tokens), b.Usage.Prompt)
		var back struct {
			Prompt string `json:"prompt"`
		}
		require.NoError(t, json.UnmarshalRead(e.post(t, "/detokenize", ids).Body, &back))
		require.Equal(t, text, back.Prompt)
	})
	t.Run("logprobs come as parallel lists", func(t *testing.T) {
		t.Parallel()
		res := e.post(t, "/v1/completions", object{"prompt": "x", "logprobs": 2, "max_tokens": 8})
		var r struct {
			Choices []struct {
				Logprobs struct {
					Tokens        []string             `json:"tokens"`
					TokenLogprobs []float64            `json:"token_logprobs"`
					TopLogprobs   []map[string]float64 `json:"top_logprobs"`
					TextOffset    []int                `json:"text_offset"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		require.NoError(t, json.UnmarshalRead(res.Body, &r))
		lp := r.Choices[0].Logprobs
		require.Len(t, lp.Tokens, 8)
		require.Len(t, lp.TokenLogprobs, 8)
		require.Len(t, lp.TopLogprobs, 8)
		require.Len(t, lp.TextOffset, 8)
		require.Equal(t, len(lp.Tokens[0]), lp.TextOffset[1])
	})
}

func TestCache(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("word after word ", 100)
	t.Run("a longer chat reuses whole blocks of the shorter one", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		first := e.chat(t, user(text))
		require.Zero(t, first.Usage.Details.Cached)
		again := e.chat(t, user(text))
		require.Equal(t, (first.Usage.Prompt-1)/64*64, again.Usage.Details.Cached)
		longer := e.chat(t, object{"model": "m", "messages": []object{
			{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"},
		}})
		require.Equal(t, again.Usage.Details.Cached, longer.Usage.Details.Cached)
	})
	t.Run("another model or salt shares nothing", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.Models = sim.Models{{ID: "m"}, {ID: "n"}} })
		e.chat(t, user(text))
		require.Zero(t, e.chat(t, user(text, object{"model": "n"})).Usage.Details.Cached)
		salted := e.chat(t, user(text, object{"cache_salt": "a"}))
		require.Zero(t, salted.Usage.Details.Cached)
		require.Equal(t, e.chat(t, user(text)).Choices, salted.Choices)
	})
	t.Run("without a cache nothing is reported", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.NoCache = true })
		e.chat(t, user(text))
		require.Zero(t, e.chat(t, user(text)).Usage.Details.Cached)
	})
	t.Run("a prompt of a million tokens is counted, cached and answered", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		begun := time.Now()
		long := user(strings.Repeat("word after word, ", 4<<20/17))
		r := e.chat(t, long)
		require.InDelta(t, 1_000_000, r.Usage.Prompt, 30_000)
		require.Equal(t, (r.Usage.Prompt-1)/64*64, e.chat(t, long).Usage.Details.Cached)
		require.Less(t, time.Since(begun), patience)
	})
}

func TestPages(t *testing.T) {
	t.Parallel()
	e := start(t)
	t.Run("models are listed with their windows and their owner", func(t *testing.T) {
		t.Parallel()
		_, body := e.get(t, "/v1/models")
		for _, part := range []string{`"id":"m"`, `"id":"small"`, `"owned_by":"engy-simulator"`, `"max_model_len":1048576`, `"max_model_len":256`} {
			require.Contains(t, body, part)
		}
		_, body = e.get(t, "/get_model_info")
		require.Contains(t, body, `"is_generation":true`)
	})
	t.Run("health says yes and unknown routes say no", func(t *testing.T) {
		t.Parallel()
		status, _ := e.get(t, "/health")
		require.Equal(t, http.StatusOK, status)
		status, body := e.get(t, "/v1/chat/completions")
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, body, `"error"`)
	})
	t.Run("metrics have the names of vLLM and count what runs", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		s := e.open(t, "/v1/chat/completions", user("x [[sim stall=1]]"))
		_, err := s.next()
		require.NoError(t, err)
		_, body := e.get(t, "/metrics")
		require.Contains(t, body, "vllm:num_requests_running{model_name=\"m\"} 1\n")
		require.Contains(t, body, "vllm:num_requests_running{model_name=\"small\"} 0\n")
		require.Contains(t, body, "vllm:num_requests_waiting")
		require.Contains(t, body, "vllm:kv_cache_usage_perc")
	})
	t.Run("a slot is free once the answer was read", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		for i := range 20 {
			e.chat(t, user("x"))
			require.Equal(t, counts{Total: 2*i + 1, Finished: 2*i + 1, Completion: 64 * (2*i + 1)}, e.counts(t))
			_, err := e.open(t, "/v1/chat/completions", user("x")).rest(t)
			require.NoError(t, err)
			require.Zero(t, e.counts(t).Running)
		}
	})
	t.Run("a kept body is the one that came, byte for byte", func(t *testing.T) {
		t.Parallel()
		raw := []byte(`{"zeta":1, "alpha":2,"messages":[ {"role":"user","content":"x [[sim record=mine]]"}]}`)
		require.Equal(t, http.StatusOK, e.post(t, "/v1/chat/completions", raw).StatusCode)
		_, body := e.get(t, "/sim/kept/mine")
		require.Equal(t, string(raw), body)
		status, _ := e.get(t, "/sim/kept/other")
		require.Equal(t, http.StatusNotFound, status)
	})
}
