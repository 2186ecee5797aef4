package llm_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
)

func TestARawPromptSurvivesTheWay(t *testing.T) {
	t.Parallel()
	from := int64(0)
	for want, raw := range map[string]*llm.Raw{
		`{"text":"a\u0000<&"}`:              {Text: llm.Verbatim(`"a\u0000<&"`)},
		`{"ids":[1, 2],"echo":true}`:        {IDs: llm.TokenIDs(`[1, 2]`), Echo: true},
		`{"ids":[7],"score_from":0}`:        {IDs: llm.TokenIDs(`[7]`), ScoreFrom: &from},
		`{"text":"x","score_from":1048575}`: {Text: llm.NewVerbatim("x"), ScoreFrom: ptr(1_048_575)},
	} {
		data, err := json.Marshal(raw)
		require.NoError(t, err)
		require.JSONEq(t, want, string(data))
		var back llm.Raw
		require.NoError(t, json.Unmarshal([]byte(want), &back))
		require.Equal(t, raw, &back)
	}
	require.Error(t, json.Unmarshal([]byte(`{"ids":"1"}`), new(llm.Raw)))
	require.Error(t, json.Unmarshal([]byte(`{"ids":[]}`), new(llm.Raw)))
}

func ptr(n int64) *int64 { return &n }

func TestIDsAreCounted(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]int64{"": 0, "[5]": 1, "[1,2,3]": 3, "[ 1 ,\n2 ]": 2} {
		require.Equal(t, want, llm.TokenIDs(list).Len())
	}
}

func TestARawPromptIsNeverPrinted(t *testing.T) {
	t.Parallel()
	raw := llm.Raw{Text: llm.NewVerbatim(secret), IDs: llm.TokenIDs("[424242]")}
	for _, v := range []any{
		raw, &raw, &llm.Request{Model: "m", Raw: &raw}, raw.IDs,
		llm.Event{Kind: llm.Scores, Logprobs: json.RawMessage(`[{"id":424242}]`)},
		&llm.Response{Scores: []json.RawMessage{json.RawMessage(`[{"id":424242}]`)}},
		llm.TokenLogprob{Token: secret, ID: 424242, Top: []llm.TokenLogprob{{Token: secret}}},
	} {
		printed := fmt.Sprintf("%v %+v %s %#v", v, v, v, raw.IDs)
		require.NotContains(t, printed, secret)
		require.NotContains(t, printed, "424242")
	}
}

func TestCharsCountsARawPrompt(t *testing.T) {
	t.Parallel()
	chars, media := (&llm.Request{Raw: &llm.Raw{Text: llm.NewVerbatim("naïve ☃")}}).Chars()
	require.Equal(t, 7, chars)
	require.Zero(t, media)
	chars, _ = (&llm.Request{Raw: &llm.Raw{IDs: llm.TokenIDs("[1,2]")}}).Chars()
	require.Zero(t, chars)
}

func TestFoldKeepsScoresApart(t *testing.T) {
	t.Parallel()
	r, err := fold(
		llm.Event{Kind: llm.Scores, Logprobs: json.RawMessage(`[1]`)},
		llm.Event{Kind: llm.Scores, Logprobs: json.RawMessage(`[2]`)},
		llm.Event{Kind: llm.Text, Text: "a"},
		llm.Event{Kind: llm.Done, Finish: llm.Length},
	)
	require.NoError(t, err)
	require.Equal(t, []json.RawMessage{json.RawMessage(`[1]`), json.RawMessage(`[2]`)}, r.Scores)
	require.Empty(t, r.Logprobs)
	require.Equal(t, "a", r.Text)
}

func TestWhatARequestNeedsOfAnEngine(t *testing.T) {
	t.Parallel()
	ids, from := llm.TokenIDs("[1]"), int64(0)
	tools := []llm.ToolSpec{{Name: "f"}}
	text := llm.NewVerbatim("x")
	for want, requests := range map[string][]llm.Request{
		"[]":                               {{}, {Tools: tools, Choice: "none"}},
		"[tools]":                          {{Tools: tools}, {Tools: tools, Choice: "auto"}},
		"[logprobs]":                       {{Logprobs: true}},
		"[completions]":                    {{Raw: &llm.Raw{Text: text}}, {Raw: &llm.Raw{Text: text, Echo: true}}},
		"[completions token_ids]":          {{Raw: &llm.Raw{IDs: ids}}},
		"[logprobs completions token_ids]": {{Raw: &llm.Raw{IDs: ids}, Logprobs: true}},
		"[completions score]":              {{Raw: &llm.Raw{Text: text, ScoreFrom: &from}}},
		"[logprobs completions score]":     {{Raw: &llm.Raw{Text: text, Echo: true}, Logprobs: true}},
		"[completions token_ids score]":    {{Raw: &llm.Raw{IDs: ids, ScoreFrom: &from}}, {Raw: &llm.Raw{IDs: ids, Echo: true}}},
	} {
		for i := range requests {
			require.Equal(t, want, fmt.Sprint(requests[i].Features()))
		}
	}
}
