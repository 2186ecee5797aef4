package main_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/services/billing"
)

func TestBothFormsCostTheSame(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{simEnv: []string{"SIM_NO_CACHE=true"}})
	for _, directive := range []string{"tokens=23", "usage=2454:23:2450", "tokens=7 think=5", "tokens=1"} {
		var charges []int64
		var texts []string
		for _, stream := range []bool{false, true} {
			before := c.balance()
			resp := c.chat(c.key, hello("count [[sim "+directive+"]]", stream))
			require.Equal(t, 200, resp.StatusCode)
			header := resp.Header.Get("X-Engy-Charged-Micro")
			id := resp.Header.Get("X-Engy-Request-Id")
			r := c.fold(resp)
			require.Equal(t, id, r.Engy.RequestID)
			require.Equal(t, "chatcmpl-"+id[:24], r.ID)
			require.Equal(t, stream, r.Done)
			require.Equal(t, stream, header == "")
			if !stream {
				require.Equal(t, header, strconv.FormatInt(r.Engy.ChargedMicro, 10))
			}
			// 0.68, 0.18 and 1.50 USD per million tokens.
			want, err := money.Total(
				money.Term{Units: r.Usage.Prompt - r.Usage.Details.Cached, Rate: 680_000},
				money.Term{Units: r.Usage.Details.Cached, Rate: 180_000},
				money.Term{Units: r.Usage.Completion, Rate: 1_500_000},
			)
			require.NoError(t, err)
			require.Equal(t, int64(want), r.Engy.ChargedMicro)
			require.Equal(t, want, c.settled(before))
			charges, texts = append(charges, r.Engy.ChargedMicro), append(texts, r.Text)
		}
		require.Equal(t, charges[0], charges[1], directive)
		require.Equal(t, texts[0], texts[1], directive)
	}
}

func TestASpellingChangesNothingButItsEcho(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{simEnv: []string{"SIM_NO_CACHE=true"}})
	var charge int64
	for _, model := range []string{"glm-5.2", "engy/glm-5.2", "anything/glm-5.2", "glm-5.2[1m]"} {
		a := hello("hi [[sim tokens=3]]", false)
		a.Model = model
		body := c.body(c.chat(c.key, a))
		require.Contains(t, body, `"model":"`+model+`"`)
		var r reply
		r.add(t, []byte(body))
		if charge == 0 {
			charge = r.Engy.ChargedMicro
		}
		require.Equal(t, charge, r.Engy.ChargedMicro)
	}
	for _, model := range []string{"", ">", "*", "glm-5.2.>", "glm 5.2", "a/b/../glm-5.2", strings.Repeat("a", 10_000), "MiniMax-H3", "glm-5.3"} {
		a := hello("hi", true)
		a.Model = model
		resp := c.chat(c.key, a)
		c.body(resp)
		require.Contains(t, []int{400, 404}, resp.StatusCode, model)
		require.Len(t, resp.Header.Get("X-Engy-Request-Id"), 64)
	}
}

func TestTheOfficialClientWorks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client := openai.NewClient(option.WithBaseURL(c.api+"/v1"), option.WithAPIKey(c.key), option.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{
		Model:    "engy/glm-5.2",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("say something [[sim tokens=20]]")},
	}
	whole, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		require.True(t, acc.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, whole.Choices[0].Message.Content, acc.Choices[0].Message.Content)
	require.Equal(t, whole.Usage.CompletionTokens, int64(20))

	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name:       "get_weather",
		Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
	})}
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	called, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "tool_calls", called.Choices[0].FinishReason)
	require.Equal(t, "get_weather", called.Choices[0].Message.ToolCalls[0].Function.Name)

	models, err := client.Models.List(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, models.Data)
	one, err := client.Models.Get(t.Context(), "glm-5.2")
	require.NoError(t, err)
	require.Equal(t, "glm-5.2", one.ID)

	wrong := openai.NewClient(option.WithBaseURL(c.api+"/v1"), option.WithAPIKey("sk-engy-wrong"), option.WithMaxRetries(0))
	_, err = wrong.Chat.Completions.New(t.Context(), params)
	var refused *openai.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 401, refused.StatusCode)
}

func TestAMillionTokensPassAndMoreIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	// About 4 MiB of text: a little under the window by the edge's estimate.
	text := strings.Repeat("the quick brown fox jumps over the lazy dog and on ", 4_150_000/52)
	for _, stream := range []bool{false, true} {
		a := hello(text+"[[sim tokens=5]]", stream)
		a.Model, a.MaxTokens = "kimi-k3", 100
		resp := c.chat(c.key, a)
		r := c.fold(resp)
		require.Equal(t, 200, resp.StatusCode, "%+v", r.Error)
		require.Greater(t, r.Usage.Prompt, int64(800_000))
		require.Equal(t, int64(5), r.Usage.Completion)
	}
	require.Positive(t, c.settled(before))

	tooLong := hello(strings.Repeat("word ", 1_048_576), true)
	resp := c.chat(c.key, tooLong)
	require.Equal(t, 400, resp.StatusCode)
	require.Contains(t, c.body(resp), "context window of 262144")

	resp = c.do("POST", "/v1/chat/completions", c.key, strings.NewReader(strings.Repeat("x", 33<<20)))
	require.Equal(t, 413, resp.StatusCode)
	require.Contains(t, c.body(resp), "request_too_large")
}

func TestTheBalanceGateUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	// Each request holds 100 micro-USD exactly: 16 + 4 prompt tokens at 0.68
	// and 57 output tokens at 1.50 give 99.1, rounded.
	// All have asked before the first is over, whose hold then comes back.
	a := hello("0123456789abcdef[[sim tokens=1 hang=8s]]", false)
	prompt := int64(len("0123456789abcdef[[sim tokens=1 hang=8s]]"))/4 + 16
	a.MaxTokens = 57
	hold, err := money.Total(money.Term{Units: prompt, Rate: 680_000}, money.Term{Units: 57, Rate: 1_500_000})
	require.NoError(t, err)
	account, key := c.customer("poor", (10 * hold).USD(), billing.KeyOptions{})
	var mu sync.Mutex
	got := map[int]int{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			resp := c.chat(key, a)
			for try := 0; resp.StatusCode == 503 && try < 10; try++ {
				// Billing has two seconds, which a busy machine may not do with.
				_ = resp.Body.Close()
				resp = c.chat(key, a)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			got[resp.StatusCode]++
		})
	}
	all.Wait()
	require.Equal(t, map[int]int{200: 10, 402: 40}, got)
	c.eventually("every hold ends", func() bool {
		b, err := c.admin.Balance(t.Context(), account.ID)
		require.NoError(t, err)
		require.GreaterOrEqual(t, b.Micro, money.Micro(0))
		return b.OpenHolds == 0
	})
}

func TestAThinBalanceIsStretched(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	_, key := c.customer("thin", "0.001000", billing.KeyOptions{}) // 666 output tokens
	a := hello("go on [[sim tokens=30000]]", false)
	a.MaxTokens = 0
	resp := c.chat(key, a)
	require.Equal(t, 200, resp.StatusCode)
	r := c.fold(resp)
	require.Equal(t, "length", r.Finish)
	require.Greater(t, r.Usage.Completion, int64(600))
	require.LessOrEqual(t, r.Engy.ChargedMicro, int64(1000))

	_, key = c.customer("empty", "0", billing.KeyOptions{})
	resp = c.chat(key, a)
	require.Equal(t, 402, resp.StatusCode)
	require.Contains(t, c.body(resp), "insufficient_quota")
}

func TestAKeyLimitsWhatItMayDo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	one := int64(1)
	_, key := c.customer("limited", "10", billing.KeyOptions{Models: []string{"glm-5.2"}, ConcurrentMax: &one})
	a := hello("hi", false)
	a.Model = "qwen3.8-27b"
	resp := c.chat(key, a)
	require.Equal(t, 403, resp.StatusCode)
	c.body(resp)

	slow := c.chat(key, hello("[[sim tokens=2 itl=5s]]", true))
	resp = c.chat(key, hello("hi", false))
	require.Equal(t, 429, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	c.body(resp)
	require.Equal(t, "stop", c.fold(slow).Finish)

	keys, err := c.admin.ListKeys(t.Context(), c.account.ID)
	require.NoError(t, err)
	require.NoError(t, c.admin.RevokeKey(t.Context(), keys[0].ID))
	c.eventually("the key is dead", func() bool {
		resp := c.chat(c.key, hello("hi", false))
		c.body(resp)
		return resp.StatusCode == 401
	})
}

func TestRequirementsOfTheProviderAreKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	for status, provider := range map[int]map[string]any{
		503: {"region_only": []string{"apac"}},
		200: {"region_only": []string{"us"}, "order": []string{"x"}},
		400: {"region_only": []string{"EU"}},
	} {
		a := hello("hi [[sim tokens=2 record=provider]]", true)
		a.Provider = provider
		resp := c.chat(c.key, a)
		c.body(resp)
		require.Equal(t, status, resp.StatusCode, "%v", provider)
	}
	resp, err := http.Get(c.sim + "/sim/kept/provider")
	require.NoError(t, err)
	require.NotContains(t, c.body(resp), "region_only")
	c.settled(before)
}

func TestAnEnginesRefusalIsTheCallers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	for directive, status := range map[string]int{"status=400": 400, "status=429": 429, "status=503": 429, "status=500": 502} {
		for _, stream := range []bool{false, true} {
			resp := c.chat(c.key, hello("hi [[sim "+directive+"]]", stream))
			body := c.body(resp)
			require.Equal(t, status, resp.StatusCode, "%s: %s", directive, body)
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		}
	}
	require.Zero(t, c.settled(before))
}

func TestEveryAnswerOfTheEngineIsSurvived(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	normal := c.chat(c.key, hello("[[sim tokens=40 itl=50ms]]", true))
	for _, directive := range []string{
		"tokens=9 cut=3", "tokens=9 malformed=3", "tokens=9 no_finish", "tokens=3 bad_index", "tokens=3 object_content",
		"tokens=3 null_choice", "big=70000", "big=2097152", "tokens=5 no_done", "tokens=30 unicode=split",
		"tokens=5 usage=wrong", "tokens=5 usage=none", "tokens=3 empty_tools",
	} {
		for _, stream := range []bool{false, true} {
			resp := c.chat(c.key, hello("hi [[sim "+directive+"]]", stream))
			r := c.fold(resp)
			if r.Error != nil {
				require.Empty(t, r.Finish, directive)
				require.False(t, r.Done, directive)
				require.GreaterOrEqual(t, r.Error.Code, 400, directive)
				continue
			}
			require.NotEmpty(t, r.Finish, directive)
			require.NotContains(t, r.Text, "\ufffd", directive)
		}
	}
	r := c.fold(normal)
	require.Equal(t, 40, r.Chunks)
	require.Nil(t, r.Error)
	c.settled(before)
}
