package sim_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

// plainLists are the log-probabilities of a plain completion.
type plainLists struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

type ranked struct {
	Logprob float64 `json:"logprob"`
	Rank    int     `json:"rank"`
	Decoded string  `json:"decoded_token"`
}

type plainReply struct {
	Choices []struct {
		Text           string              `json:"text"`
		Finish         string              `json:"finish_reason"`
		Logprobs       *plainLists         `json:"logprobs"`
		PromptLogprobs []map[string]ranked `json:"prompt_logprobs"`
		PromptIDs      []uint32            `json:"prompt_token_ids"`
		IDs            []uint32            `json:"token_ids"`
	} `json:"choices"`
	Usage usage `json:"usage"`
}

type nativeReply struct {
	Text      string   `json:"text"`
	OutputIDs []uint32 `json:"output_ids"`
	Meta      struct {
		ID     string `json:"id"`
		Finish *struct {
			Type   string `json:"type"`
			Length int    `json:"length"`
		} `json:"finish_reason"`
		Prompt     int     `json:"prompt_tokens"`
		Completion int     `json:"completion_tokens"`
		Cached     int     `json:"cached_tokens"`
		Input      [][]any `json:"input_token_logprobs"`
		Output     [][]any `json:"output_token_logprobs"`
	} `json:"meta_info"`
}

func ask[T any](t *testing.T, e *engine, path string, body object) T {
	t.Helper()
	res := e.post(t, path, body)
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", raw)
	var r T
	require.NoError(t, json.Unmarshal(raw, &r))
	return r
}

func tokenIDs(t *testing.T, e *engine, text string) []uint32 {
	t.Helper()
	return ask[struct {
		Tokens []uint32 `json:"tokens"`
	}](t, e, "/tokenize", object{"prompt": text}).Tokens
}

// scores reads the values of native entries; the first may be missing.
func scores(t *testing.T, entries [][]any) []float64 {
	t.Helper()
	var list []float64
	for i, e := range entries {
		require.Len(t, e, 3)
		if e[0] == nil {
			require.Zero(t, i)
			list = append(list, 0)
			continue
		}
		list = append(list, e[0].(float64))
	}
	return list
}

func sum(list []float64) float64 {
	total := 0.0
	for _, x := range list {
		total += x
	}
	return total
}

// The same token behind the same text is as likely on every path: made, echoed,
// scored in either way, and in a chat.
func TestATokenIsAsLikelyOnEveryPath(t *testing.T) {
	t.Parallel()
	e := start(t)
	const text = "The capital of France is like a house, about the city. One day 北京 [[sim tokens=40]]"
	prompt := tokenIDs(t, e, text)
	made := ask[nativeReply](t, e, "/generate", object{
		"input_ids": prompt, "return_logprob": true, "sampling_params": object{"max_new_tokens": 40},
	})
	generated := scores(t, made.Meta.Output)
	require.Len(t, made.OutputIDs, 40)
	require.Len(t, generated, 40)
	require.Empty(t, made.Meta.Input)

	plain := ask[plainReply](t, e, "/v1/completions", object{"prompt": text, "logprobs": 1, "max_tokens": 40, "return_token_ids": true}).Choices[0]
	require.Equal(t, prompt, plain.PromptIDs)
	require.Equal(t, made.OutputIDs, plain.IDs)
	require.Equal(t, made.Text, plain.Text)
	for i, p := range plain.Logprobs.TokenLogprobs {
		require.Equal(t, generated[i], *p)
	}

	whole := append(append([]uint32{}, prompt...), made.OutputIDs...)
	n := len(prompt)
	echoed := ask[plainReply](t, e, "/v1/completions", object{"prompt": whole, "echo": true, "logprobs": 2, "max_tokens": 1}).Choices[0].Logprobs
	require.Len(t, echoed.TokenLogprobs, len(whole)+1)
	require.Nil(t, echoed.TokenLogprobs[0])
	require.Nil(t, echoed.TopLogprobs[0])
	read := ask[plainReply](t, e, "/v1/completions", object{"prompt": whole, "prompt_logprobs": 0, "max_tokens": 1}).Choices[0].PromptLogprobs
	require.Len(t, read, len(whole))
	require.Nil(t, read[0])
	native := ask[nativeReply](t, e, "/generate", object{"input_ids": whole, "return_logprob": true, "logprob_start_len": 0, "sampling_params": object{"max_new_tokens": 1}})
	scored := scores(t, native.Meta.Input)
	require.Len(t, scored, len(whole))
	for i := 1; i < len(whole); i++ {
		require.Equal(t, scored[i], *echoed.TokenLogprobs[i], i)
		require.Len(t, read[i], 1)
		require.Equal(t, scored[i], read[i][strconv.Itoa(int(whole[i]))].Logprob)
		require.Equal(t, float64(whole[i]), native.Meta.Input[i][1])
		if i >= n {
			require.Equal(t, generated[i-n], scored[i])
		}
	}
	// What was made is as likely as its tokens together.
	require.InDelta(t, sum(generated), sum(scored[n:]), 0)

	// A chat is a prompt of tokens like any other.
	chat := user("hello there [[sim tokens=12 think=5]]", object{"logprobs": true, "top_logprobs": 3, "chat_template_kwargs": object{"enable_thinking": true}})
	said := e.chat(t, chat).Choices[0]
	template := ask[struct {
		Tokens []uint32 `json:"tokens"`
	}](t, e, "/tokenize", chat).Tokens
	behind := append(tokenIDs(t, e, said.Message.ReasoningContent), tokenIDs(t, e, said.Message.Content)...)
	again := ask[nativeReply](t, e, "/generate", object{
		"input_ids": append(template, behind...), "return_logprob": true, "logprob_start_len": len(template) - 1, "sampling_params": object{"max_new_tokens": 1},
	})
	values := scores(t, again.Meta.Input)[1:]
	require.Len(t, said.Logprobs.Content, len(values))
	for i, entry := range said.Logprobs.Content {
		require.Equal(t, values[i], entry.Logprob, "%d %q", i, entry.Token)
	}
}

func TestASpanIsWhatItsPrefixesDifferBy(t *testing.T) {
	t.Parallel()
	e := start(t)
	ids := tokenIDs(t, e, strings.Repeat("a span of text, behind a longer one. ", 30))
	from := func(ids []uint32, start int) []float64 {
		r := ask[nativeReply](t, e, "/generate", object{
			"input_ids": ids, "return_logprob": true, "logprob_start_len": start, "sampling_params": object{"max_new_tokens": 1},
		})
		values := scores(t, r.Meta.Input)
		require.Len(t, values, len(ids)-start)
		require.Nil(t, r.Meta.Input[0][0], "the first value is missing wherever it starts")
		require.Equal(t, len(ids), r.Meta.Prompt)
		require.LessOrEqual(t, r.Meta.Cached, start, "what is scored is not taken from a cache")
		return values
	}
	whole := from(ids, 0)
	for _, at := range []int{1, 64, 100, len(ids) - 1} {
		require.Equal(t, whole[at+1:], from(ids, at)[1:])
		require.InDelta(t, sum(whole)-sum(from(ids[:at+1], 0)), sum(from(ids, at)), 1e-9)
	}
	// Texts and ids are the same prompt.
	r := ask[nativeReply](t, e, "/generate", object{
		"text": "a span of text", "return_logprob": true, "logprob_start_len": 0, "return_text_in_logprobs": true, "sampling_params": object{"max_new_tokens": 2},
	})
	require.Equal(t, whole[:4], scores(t, r.Meta.Input))
	require.Equal(t, []any{"a", " span", " of", " text"}, []any{r.Meta.Input[0][2], r.Meta.Input[1][2], r.Meta.Input[2][2], r.Meta.Input[3][2]})
}

func TestAnEchoBeginsWithThePrompt(t *testing.T) {
	t.Parallel()
	e := start(t)
	body := func(more object) object {
		b := object{"prompt": "é The capital of France is", "echo": true, "max_tokens": 3}
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	bare := ask[plainReply](t, e, "/v1/completions", body(nil)).Choices[0]
	require.True(t, strings.HasPrefix(bare.Text, "é The capital of France is"))
	require.Nil(t, bare.Logprobs)
	whole := ask[plainReply](t, e, "/v1/completions", body(object{"logprobs": 2}))
	lp := whole.Choices[0].Logprobs
	require.Equal(t, bare.Text, whole.Choices[0].Text)
	require.Equal(t, bare.Text, strings.Join(lp.Tokens, ""))
	require.Equal(t, whole.Usage.Prompt+3, len(lp.Tokens))
	require.Equal(t, 3, whole.Usage.Completion)
	require.Equal(t, []int{0, 1, 5}, lp.TextOffset[:3], "in characters")
	for i, top := range lp.TopLogprobs[1:] {
		require.Len(t, top, 2, i)
	}
	s := e.open(t, "/v1/completions", body(object{"logprobs": 2}))
	data, err := s.rest(t)
	require.NoError(t, err)
	var streamed plainLists
	text := ""
	for _, raw := range data {
		if raw == "[DONE]" {
			continue
		}
		var c plainReply
		require.NoError(t, json.Unmarshal([]byte(raw), &c))
		for _, choice := range c.Choices {
			text += choice.Text
			if l := choice.Logprobs; l != nil {
				streamed.Tokens = append(streamed.Tokens, l.Tokens...)
				streamed.TokenLogprobs = append(streamed.TokenLogprobs, l.TokenLogprobs...)
				streamed.TopLogprobs = append(streamed.TopLogprobs, l.TopLogprobs...)
				streamed.TextOffset = append(streamed.TextOffset, l.TextOffset...)
			}
		}
	}
	require.Equal(t, bare.Text, text)
	require.Equal(t, *lp, streamed)
}

func TestPromptLogprobsRankTheirTokens(t *testing.T) {
	t.Parallel()
	e := start(t)
	ids := tokenIDs(t, e, "house. The house")
	places := ask[plainReply](t, e, "/v1/completions", object{"prompt": ids, "prompt_logprobs": 3, "max_tokens": 1}).Choices[0].PromptLogprobs
	require.Len(t, places, len(ids))
	for i, place := range places[1:] {
		own := place[strconv.Itoa(int(ids[i+1]))]
		require.Positive(t, own.Rank)
		require.GreaterOrEqual(t, len(place), 3)
		for _, other := range place {
			require.False(t, other.Rank < own.Rank && other.Logprob < own.Logprob)
			require.False(t, other.Rank > own.Rank && other.Logprob > own.Logprob)
		}
	}
	require.Equal(t, " The", places[2][strconv.Itoa(int(ids[2]))].Decoded)
}

func TestTheNativeRoute(t *testing.T) {
	t.Parallel()
	e := start(t)
	body := func(stream bool, more object) object {
		b := object{"text": "once [[sim tokens=9]]", "stream": stream, "return_logprob": true, "logprob_start_len": 1, "sampling_params": object{"max_new_tokens": 20}}
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	t.Run("the stream says the JSON so far, again and again", func(t *testing.T) {
		t.Parallel()
		want := ask[nativeReply](t, e, "/generate", body(false, object{"rid": "native-1"}))
		require.Equal(t, "native-1", want.Meta.ID)
		require.Equal(t, "stop", want.Meta.Finish.Type)
		require.Equal(t, 9, want.Meta.Completion)
		data, err := e.open(t, "/generate", body(true, nil)).rest(t)
		require.NoError(t, err)
		require.Equal(t, "[DONE]", data[len(data)-1])
		data = data[:len(data)-1]
		require.Len(t, data, 10)
		for i, raw := range data {
			var got nativeReply
			require.NoError(t, json.Unmarshal([]byte(raw), &got))
			n := min(i+1, 9)
			require.Equal(t, want.OutputIDs[:n], got.OutputIDs)
			require.True(t, strings.HasPrefix(want.Text, got.Text))
			require.Equal(t, want.Meta.Input, got.Meta.Input)
			require.Equal(t, want.Meta.Output[:n], got.Meta.Output)
			require.Equal(t, i == 9, got.Meta.Finish != nil)
		}
	})
	t.Run("an answer that is cut tells its limit", func(t *testing.T) {
		t.Parallel()
		r := ask[nativeReply](t, e, "/generate", object{"text": "once", "sampling_params": object{"max_new_tokens": 4}})
		require.Equal(t, "length", r.Meta.Finish.Type)
		require.Equal(t, 4, r.Meta.Finish.Length)
		require.Empty(t, r.Meta.Output)
		r = ask[nativeReply](t, e, "/generate", object{"text": "once [[sim tokens=500]]"})
		require.Equal(t, 128, r.Meta.Completion)
	})
	t.Run("it is aborted by its rid, with what was made", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		for _, stream := range []bool{false, true} {
			slow := body(stream, object{"text": "once [[sim tokens=100 itl=1m]]", "rid": fmt.Sprint("abort-", stream), "sampling_params": object{"max_new_tokens": 200}})
			got := make(chan nativeReply, 1)
			go func() {
				raw, err := json.Marshal(slow, json.Deterministic(true))
				if err != nil {
					return
				}
				res, err := e.client.Post(e.url+"/generate", "application/json", bytes.NewReader(raw))
				if err != nil {
					return
				}
				defer res.Body.Close()
				all, _ := io.ReadAll(res.Body)
				lines := strings.Split(strings.TrimSuffix(strings.TrimSpace(string(all)), "data: [DONE]"), "data: ")
				var last nativeReply
				_ = json.Unmarshal([]byte(strings.TrimSpace(lines[len(lines)-1])), &last)
				got <- last
			}()
			e.until(t, func(c counts) bool { return c.Running == 1 })
			require.Equal(t, http.StatusOK, e.post(t, "/abort_request", object{"rid": slow["rid"]}).StatusCode)
			last := <-got
			require.Equal(t, "abort", last.Meta.Finish.Type)
			require.Less(t, last.Meta.Completion, 100)
			require.Len(t, last.OutputIDs, last.Meta.Completion)
			require.Positive(t, last.Meta.Prompt)
		}
		require.Equal(t, 2, e.counts(t).Aborted)
	})
	t.Run("what is wrong is refused", func(t *testing.T) {
		t.Parallel()
		for raw, part := range map[string]string{
			`{}`:                "missing",
			`{"input_ids":[]}`:  "no tokens",
			`{"input_ids":[0]}`: "vocabulary",
			`{"text":"x","return_logprob":true,"logprob_start_len":-2}`: "at least -1",
			`{"text":"x","return_logprob":true,"logprob_start_len":1}`:  "higher than the number of input tokens 1",
			`{"text":"x","return_logprob":true,"top_logprobs_num":31}`:  "top_logprobs",
			`{"text":"x","sampling_params":{"n":2}}`:                    "one answer",
			`{"text":"x","sampling_params":{"max_new_tokens":0}}`:       "max_tokens",
			`{"model":"none","text":"x"}`:                               "none",
		} {
			status, message := e.refused(t, "/generate", []byte(raw))
			require.Contains(t, []int{400, 404}, status)
			require.Contains(t, message, part, raw)
		}
		ask[nativeReply](t, e, "/generate", object{"text": "x", "return_logprob": true, "logprob_start_len": -1})
		ask[nativeReply](t, e, "/generate", object{"text": "x", "return_logprob": true, "logprob_start_len": 0})
	})
	t.Run("prompt_logprobs hold at their bounds", func(t *testing.T) {
		t.Parallel()
		for k, want := range map[int]int{-1: 400, 0: 200, 30: 200, 31: 400} {
			res := e.post(t, "/v1/completions", object{"prompt": "x", "prompt_logprobs": k})
			require.Equal(t, want, res.StatusCode, k)
		}
		require.Equal(t, 400, e.post(t, "/v1/completions", object{"prompt": "x", "prompt_logprobs": 0, "stream": true}).StatusCode)
	})
}
