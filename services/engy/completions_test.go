package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/services/billing"
)

// rawReply is what tests read of an answer to a raw prompt.
type rawReply struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Model   string `json:"model"`
	Choices []struct {
		Text     string          `json:"text"`
		Index    int             `json:"index"`
		Finish   string          `json:"finish_reason"`
		Logprobs json.RawMessage `json:"logprobs"`
	} `json:"choices"`
	Usage usage     `json:"usage"`
	Engy  engy      `json:"x_engy"`
	Error *apiError `json:"error"`

	status int
	header http.Header
}

// rawLists are log-probabilities as raw prompts have them.
type rawLists struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
	IDs      []int64              `json:"token_ids"`
}

func (r *rawReply) lists(t *testing.T) rawLists {
	t.Helper()
	require.Nil(t, r.Error)
	require.Len(t, r.Choices, 1)
	var l rawLists
	require.NoError(t, json.Unmarshal(r.Choices[0].Logprobs, &l))
	return l
}

// total adds up what is known, as callers do.
func total(list []*float64) (sum float64) {
	for _, x := range list {
		if x != nil {
			sum += *x
		}
	}
	return sum
}

// complete sends a raw prompt. The body is JSON text or something that becomes it.
func (c *cluster) complete(body any) *rawReply {
	c.t.Helper()
	text, ok := body.(string)
	if !ok {
		raw, err := json.Marshal(body)
		require.NoError(c.t, err)
		text = string(raw)
	}
	resp := c.do("POST", "/v1/completions", c.key, strings.NewReader(text))
	r := &rawReply{status: resp.StatusCode, header: resp.Header}
	answer := c.body(resp)
	require.NoError(c.t, json.Unmarshal([]byte(answer), r), "%s", answer)
	return r
}

// price is what an answer to a raw prompt of glm-5.2 should cost.
func (r *rawReply) price(t *testing.T) int64 {
	t.Helper()
	micro, err := money.Total(
		money.Term{Units: r.Usage.Prompt - r.Usage.Details.Cached, Rate: 680_000},
		money.Term{Units: r.Usage.Details.Cached, Rate: 180_000},
		money.Term{Units: r.Usage.Completion, Rate: 1_500_000},
	)
	require.NoError(t, err)
	return int64(micro)
}

// encode is the caller's own tokenizer.
func (c *cluster) encode(text string) []int64 {
	c.t.Helper()
	raw, err := json.Marshal(map[string]string{"prompt": text})
	require.NoError(c.t, err)
	resp, err := http.Post(c.sim+"/tokenize", "application/json", bytes.NewReader(raw))
	require.NoError(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	var page struct{ Tokens []int64 }
	require.NoError(c.t, json.NewDecoder(resp.Body).Decode(&page))
	return page.Tokens
}

// heard gives the body that the engine was sent.
func (c *cluster) heard(name string) string {
	c.t.Helper()
	resp, err := http.Get(c.sim + "/sim/kept/" + name)
	require.NoError(c.t, err)
	require.Equal(c.t, 200, resp.StatusCode)
	return c.body(resp)
}

type object = map[string]any

func TestARawPromptIsContinued(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{simEnv: []string{"SIM_THINK=true"}})
	before := c.balance()
	const prompt = "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Prove 2 is irrational.<|assistant|><think>"
	r := c.complete(`{"model":"glm-5.2",
       "prompt":"` + prompt + ` [[sim record=raw tokens=40]]",
       "max_tokens":512,"temperature":0,"reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":true},
       "provider":{"data_collection":"deny","zdr":false}}`)
	require.Equal(t, 200, r.status)
	id := r.header.Get("X-Engy-Request-Id")
	require.Len(t, id, 64)
	require.Equal(t, "cmpl-"+id[:24], r.ID)
	require.Equal(t, id, r.Engy.RequestID)
	require.Equal(t, []string{"text_completion", "glm-5.2", "stop"}, []string{r.Object, r.Model, r.Choices[0].Finish})
	require.Equal(t, "null", string(r.Choices[0].Logprobs))
	require.NotEmpty(t, r.Choices[0].Text)
	require.Equal(t, int64(40), r.Usage.Completion, "no thoughts are made, and none taken out")
	require.Equal(t, int64(len(c.encode(prompt+" [[sim record=raw tokens=40]]"))), r.Usage.Prompt, "no template puts anything around it")
	require.Equal(t, strconv.FormatInt(r.Engy.ChargedMicro, 10), r.header.Get("X-Engy-Charged-Micro"))
	require.Equal(t, r.price(t), r.Engy.ChargedMicro)
	require.Equal(t, r.Engy.ChargedMicro, int64(c.settled(before)))

	var body object
	require.NoError(t, json.Unmarshal([]byte(c.heard("raw")), &body))
	require.Equal(t, prompt+" [[sim record=raw tokens=40]]", body["prompt"])
	require.Equal(t, []any{512.0, 0.0, true}, []any{body["max_tokens"], body["temperature"], body["stream"]}, "an engine notices by its stream that nobody listens")
	for _, member := range []string{"messages", "provider", "reasoning_effort", "chat_template_kwargs", "echo", "logprobs"} {
		require.NotContains(t, body, member)
	}
	// The same as ids is the same.
	ids := c.complete(object{"model": "engy/glm-5.2", "prompt": [][]int64{c.encode(prompt + " [[sim record=ids tokens=40]]")}, "max_tokens": 512})
	require.Equal(t, "engy/glm-5.2", ids.Model)
	require.Equal(t, int64(40), ids.Usage.Completion)
	// Without a limit it is the model's own.
	c.complete(object{"model": "glm-5.2", "prompt": "x [[sim record=unlimited tokens=2]]"})
	require.Contains(t, c.heard("unlimited"), `"max_tokens":65536`)
}

func TestASpanIsScored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	prefix := strings.Repeat("The capital of France is, as far as we know, a large city. ", 1100)
	const action = " So the answer is a long way from here. [[sim record=span]]"
	ids, span := c.encode(prefix+action), len(c.encode(action))
	require.Greater(t, len(ids), 14_000)
	before := c.balance()
	r := c.complete(object{"model": "glm-5.2", "prompt": ids, "max_tokens": 1, "temperature": 0, "logprob_start_len": len(ids) - span})
	require.Equal(t, 200, r.status, "%v", r.Error)
	var members object
	require.NoError(t, json.Unmarshal(r.Choices[0].Logprobs, &members))
	require.Len(t, members, 2, "only token_logprobs and token_ids")
	lp := r.lists(t)
	require.Equal(t, ids[len(ids)-span:], lp.IDs, "what a caller aligns on")
	require.Len(t, lp.Logprobs, span)
	for _, x := range lp.Logprobs {
		require.NotNil(t, x)
		require.Less(t, *x, 0.0)
	}
	// Prefill and one token is what it costs.
	require.Equal(t, []int64{int64(len(ids)), 1}, []int64{r.Usage.Prompt, r.Usage.Completion})
	require.Equal(t, r.price(t), r.Engy.ChargedMicro)
	require.Equal(t, r.Engy.ChargedMicro, int64(c.settled(before)))
	require.Contains(t, c.heard("span"), fmt.Sprintf(`"logprob_start_len":%d`, len(ids)-span-1))

	// An offset wins over echo, which clients send beside it.
	both := c.complete(object{"model": "glm-5.2", "prompt": ids, "max_tokens": 1, "echo": true, "logprobs": 1, "logprob_start_len": len(ids) - span})
	require.JSONEq(t, string(r.Choices[0].Logprobs), string(both.Choices[0].Logprobs))
	require.Equal(t, r.Choices[0].Text, both.Choices[0].Text)

	// A string is scored as well, when it is short.
	short := c.complete(object{"model": "glm-5.2", "prompt": "The capital of France is", "max_tokens": 1, "logprob_start_len": 0})
	lists := short.lists(t)
	require.Equal(t, c.encode("The capital of France is"), lists.IDs)
	require.Nil(t, lists.Logprobs[0], "nothing precedes it")
	require.NotNil(t, lists.Logprobs[1])
	tail := c.complete(object{"model": "glm-5.2", "prompt": "The capital of France is", "max_tokens": 1, "logprob_start_len": 2}).lists(t)
	require.Equal(t, lists.Logprobs[2:], tail.Logprobs)
	late := c.complete(object{"model": "glm-5.2", "prompt": "The capital of France is", "max_tokens": 1, "logprob_start_len": len(lists.IDs)})
	require.Equal(t, 400, late.status)
	require.Contains(t, late.Error.Message, "logprob_start_len must be below")
}

func TestScoresAddUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	prompt := c.encode("Once there was a house. [[sim tokens=60]]")
	made := c.complete(object{"model": "glm-5.2", "prompt": prompt, "max_tokens": 60, "logprobs": 2})
	generated := made.lists(t)
	require.Len(t, generated.Logprobs, 60)
	require.Equal(t, made.Choices[0].Text, strings.Join(generated.Tokens, ""))
	for i := range generated.Top {
		require.Len(t, generated.Top[i], 2)
		require.Equal(t, -1, generated.Offsets[i])
	}
	whole := append(append([]int64{}, prompt...), c.encode(made.Choices[0].Text)...)
	echo := c.complete(object{"model": "glm-5.2", "prompt": whole, "max_tokens": 1, "echo": true, "logprobs": 1}).lists(t)
	require.Len(t, echo.Logprobs, len(whole)+1)
	score := func(ids []int64, from int) []*float64 {
		lp := c.complete(object{"model": "glm-5.2", "prompt": ids, "max_tokens": 1, "logprob_start_len": from}).lists(t)
		require.Equal(t, ids[from:], lp.IDs)
		require.Len(t, lp.Logprobs, len(ids)-from)
		return lp.Logprobs
	}
	n := len(prompt)
	for _, from := range []int{0, 1, n - 1, n, n + 1, len(whole) - 1} {
		span := score(whole, from)
		require.Equal(t, echo.Logprobs[from:len(whole)], span, "the same tokens behind the same text")
		require.Equal(t, from == 0, span[0] == nil)
		if from > 0 {
			require.InDelta(t, total(score(whole, 0))-total(score(whole[:from], 0)), total(span), 1e-9)
		}
	}
	require.Equal(t, generated.Logprobs, score(whole, n), "made or supplied, it is as likely")
	require.InDelta(t, total(generated.Logprobs), total(score(whole, n)), 0)
}

func TestWhatIsScoredIsBoundedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	ids := make([]int64, 3000)
	for i, id := range c.encode(strings.Repeat("a b ", 1500))[:3000] {
		ids[i] = id
	}
	ask := func(prompt any, more object) *rawReply {
		body := object{"model": "glm-5.2", "prompt": prompt, "max_tokens": 1}
		for k, v := range more {
			body[k] = v
		}
		return c.complete(body)
	}
	before, ran := c.balance(), c.counters().Total
	for name, r := range map[string]struct {
		reply  *rawReply
		quotes []string
	}{
		"one more than the limit":      {ask(ids, object{"logprob_start_len": 3000 - 1025}), []string{"1025", "1024"}},
		"the offset the wrong way":     {ask(ids, object{"logprob_start_len": 64}), []string{"2936"}},
		"an echo that is too long":     {ask(ids[:1025], object{"echo": true, "logprobs": 1}), []string{"1025", "1024", "logprob_start_len"}},
		"an echo of a long string":     {ask(strings.Repeat("word ", 900), object{"echo": true, "logprobs": 1}), []string{"logprob_start_len"}},
		"a long string, a small span":  {ask(strings.Repeat("word ", 900), object{"logprob_start_len": 899}), []string{"1125", "token ids"}},
		"behind the end":               {ask(ids, object{"logprob_start_len": 3000}), []string{"3000"}},
		"no limit on the echo path":    {ask("x", object{"echo": true, "logprobs": 1, "max_tokens": 0}), []string{"max_tokens", "at least 1"}},
		"no limit on the span path":    {ask(ids, object{"logprob_start_len": 2999, "max_tokens": 0}), []string{"max_tokens", "at least 1"}},
		"no logprobs on the echo path": {ask("x", object{"echo": true, "logprobs": 0}), []string{"logprobs", "at least 1"}},
		"no logprobs on the span path": {ask(ids, object{"logprob_start_len": 2999, "logprobs": 0}), []string{"logprobs", "at least 1"}},
		"a stream":                     {ask("x", object{"stream": true}), []string{"stream"}},
		"two prompts":                  {ask([]string{"a", "b"}, nil), []string{"one a request"}},
		"two answers":                  {ask("x", object{"n": 2}), []string{"one answer"}},
		"the best of two":              {ask("x", object{"best_of": 2}), []string{"one answer"}},
		"a suffix":                     {ask("x", object{"suffix": "y"}), []string{"suffix"}},
		"an unknown region":            {ask("x", object{"provider": object{"region_only": []string{"EU"}}}), []string{"region"}},
		"a typo that could be read":    {ask("x", object{"provider": object{"data_collection": "denied"}}), []string{"data_collection"}},
	} {
		require.Equal(t, 400, r.reply.status, name)
		require.Equal(t, []any{"invalid_request_error", 400}, []any{r.reply.Error.Type, r.reply.Error.Code}, name)
		require.Len(t, r.reply.header.Get("X-Engy-Request-Id"), 64)
		for _, q := range r.quotes {
			require.Contains(t, r.reply.Error.Message, q, name)
		}
	}
	require.Equal(t, ran, c.counters().Total, "no engine has heard of it")
	require.Equal(t, before, c.balance())

	for name, r := range map[string]*rawReply{
		"as many as the limit": ask(ids, object{"logprob_start_len": 3000 - 1024}),
		"an echo at the limit": ask(ids[:1024], object{"echo": true, "logprobs": 1}),
		"both absent":          c.complete(object{"model": "glm-5.2", "prompt": append(ids[:5:5], c.encode(" [[sim tokens=3]]")...), "logprob_start_len": 4}),
		"an echo, both absent": c.complete(object{"model": "glm-5.2", "prompt": "x [[sim tokens=3]]", "echo": true}),
		"many likely tokens":   ask(ids[:700], object{"echo": true, "logprobs": 30}),
	} {
		require.Equal(t, 200, r.status, "%s: %v", name, r.Error)
	}
	span := ask(ids, object{"logprob_start_len": 3000 - 1024}).lists(t)
	require.Len(t, span.Logprobs, 1024)
	require.Equal(t, ids[3000-1024:], span.IDs)
	many := ask(ids[:700], object{"echo": true, "logprobs": 30}).lists(t)
	require.Len(t, many.Top, 701)
	require.Len(t, many.Top[699], 30, "megabytes of them come through")
	bare := c.complete(object{"model": "glm-5.2", "prompt": "The sea is [[sim tokens=3]]", "echo": true, "max_tokens": 9})
	require.True(t, strings.HasPrefix(bare.Choices[0].Text, "The sea is [[sim tokens=3]]"))
	require.Equal(t, "null", string(bare.Choices[0].Logprobs), "without log-probabilities at all")
	require.Equal(t, int64(3), bare.Usage.Completion)
	c.settled(before)
}

func TestZerosReachTheEngineAsZeros(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	const zeros = `"temperature":0,"seed":0,"frequency_penalty":0,"top_p":0`
	for name, send := range map[string]func(mark string) int{
		"chat": func(mark string) int {
			resp := c.do("POST", "/v1/chat/completions", c.key, strings.NewReader(
				`{"model":"glm-5.2","logprobs":false,`+zeros+`,"messages":[{"role":"user","content":"x `+mark+`"}]}`))
			c.body(resp)
			return resp.StatusCode
		},
		"raw": func(mark string) int {
			return c.complete(`{"model":"glm-5.2",` + zeros + `,"prompt":"x ` + mark + `"}`).status
		},
		"echo": func(mark string) int {
			return c.complete(`{"model":"glm-5.2","echo":true,"logprobs":1,` + zeros + `,"prompt":"x ` + mark + `"}`).status
		},
	} {
		require.Equal(t, 200, send("[[sim tokens=1 record="+name+"]]"))
		require.Contains(t, c.heard(name), zeros, name)
		if name == "chat" {
			require.NotContains(t, c.heard(name), `"logprobs":true`)
		}
	}
	// The route of scores has names of its own.
	r := c.complete(`{"model":"glm-5.2","logprob_start_len":0,"max_tokens":1,` + zeros + `,"prompt":"x [[sim record=scored]]"}`)
	require.Equal(t, 200, r.status)
	require.Contains(t, c.heard("scored"), `"temperature":0,"sampling_seed":0,"frequency_penalty":0,"top_p":0`)
}

func TestAThinBalanceStretchesARawPrompt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	_, c.key = c.customer("thin", "0.001000", billing.KeyOptions{}) // 666 output tokens
	r := c.complete(object{"model": "glm-5.2", "prompt": c.encode("go on [[sim tokens=30000]]")})
	require.Equal(t, 200, r.status, "%v", r.Error)
	require.Equal(t, "length", r.Choices[0].Finish)
	require.Greater(t, r.Usage.Completion, int64(600))
	require.LessOrEqual(t, r.Engy.ChargedMicro, int64(1000))
}

func TestOpenAIsGoClientCompletes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client := c.openai(c.key)
	b := c.bill()
	plain, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "glm-5.2", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once [[sim tokens=7]]")},
		MaxTokens: openai.Int(50), Logprobs: openai.Int(2),
	})
	require.NoError(t, err)
	lp := plain.Choices[0].Logprobs
	require.Len(t, lp.TokenLogprobs, 7)
	require.Len(t, lp.TopLogprobs, 7)
	require.Equal(t, plain.Choices[0].Text, strings.Join(lp.Tokens, ""))
	require.Equal(t, openai.CompletionChoiceFinishReasonStop, plain.Choices[0].FinishReason)
	require.Equal(t, int64(7), plain.Usage.CompletionTokens)
	b.add(chatSpent(plain.Usage))

	echo, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "glm-5.2", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("The capital of France is")},
		MaxTokens: openai.Int(1), Temperature: openai.Float(0), Echo: openai.Bool(true), Logprobs: openai.Int(1),
	})
	require.NoError(t, err)
	lp = echo.Choices[0].Logprobs
	require.Equal(t, echo.Choices[0].Text, strings.Join(lp.Tokens, ""))
	require.True(t, strings.HasPrefix(echo.Choices[0].Text, "The capital of France is"))
	require.Len(t, lp.Tokens, int(echo.Usage.PromptTokens)+1)
	for _, offset := range lp.TextOffset {
		require.Equal(t, int64(-1), offset)
	}
	b.add(chatSpent(echo.Usage))

	ids := c.encode("an action behind a prefix")
	scored, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "glm-5.2", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: ids}, MaxTokens: openai.Int(1), Temperature: openai.Float(0),
	}, option.WithJSONSet("logprob_start_len", len(ids)-3))
	require.NoError(t, err)
	require.Len(t, scored.Choices[0].Logprobs.TokenLogprobs, 3)
	var own struct {
		IDs []int64 `json:"token_ids"`
	}
	require.NoError(t, json.Unmarshal([]byte(scored.Choices[0].Logprobs.RawJSON()), &own))
	require.Equal(t, ids[len(ids)-3:], own.IDs)
	b.add(chatSpent(scored.Usage))
	b.agrees()

	_, err = client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "glm-5.2", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("x")}, MaxTokens: openai.Int(0),
	})
	var refused *openai.Error
	require.True(t, errors.As(err, &refused), "%v", err)
	require.Equal(t, 400, refused.StatusCode)
	require.Equal(t, "max_tokens", refused.Param)
}

func TestAClientLeavesARawPrompt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	const begun = " [[sim tokens=900 itl=50ms]]"
	for name, more := range map[string]object{"a completion": {}, "a score": {"logprob_start_len": 1}} {
		t.Run(name, func(t *testing.T) {
			before, aborted := c.balance(), c.counters().Aborted
			body := object{"model": "glm-5.2", "prompt": c.encode("a prefix" + begun), "max_tokens": 1000}
			for k, v := range more {
				body[k] = v
			}
			raw, err := json.Marshal(body)
			require.NoError(t, err)
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+"/v1/completions", bytes.NewReader(raw))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+c.key)
			ended := make(chan error, 1)
			go func() {
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				ended <- err
			}()
			c.running(1)
			made := time.NewTimer(500 * time.Millisecond) // what a few tokens take
			<-made.C
			leave()
			require.Error(t, <-ended)
			c.running(0)
			require.Equal(t, aborted+1, c.counters().Aborted)
			spent := int64(c.settled(before))
			// The prompt and at least a few tokens, far fewer than all.
			require.Greater(t, spent, int64(5*1500/1000))
			require.Less(t, spent, int64(500*1500/1000))
		})
	}
}
