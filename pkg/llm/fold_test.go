package llm_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

func fold(events ...llm.Event) (*llm.Response, error) {
	var f llm.Fold
	for _, e := range events {
		if err := f.Add(e); err != nil {
			return nil, err
		}
	}
	return f.Response()
}

func call(index int, id, name, arguments string) llm.Event {
	return llm.Event{Kind: llm.ToolCall, Text: arguments, Call: &llm.CallDelta{Index: index, ID: id, Name: name}}
}

func TestFoldKeepsTheOrderOfEachKind(t *testing.T) {
	t.Parallel()
	thought := int64(2)
	usage := llm.Usage{Prompt: 9, Cached: 4, Completion: 5, Reasoning: &thought}
	got, err := fold(
		llm.Event{Kind: llm.Reasoning, Text: "let me "},
		llm.Event{Kind: llm.Ping},
		llm.Event{Kind: llm.Reasoning, Text: "see"},
		llm.Event{Kind: llm.Text, Text: "It ", Logprobs: json.RawMessage(`[1]`)},
		call(0, "a", "find", `{"q":`),
		call(1, "b", "open", ""),
		llm.Event{Kind: llm.Text, Text: "is", Logprobs: json.RawMessage(`[2]`)},
		call(0, "", "", `1}`),
		call(1, "", "", `{}`),
		llm.Event{Kind: llm.Done, Finish: llm.ToolCalls, Usage: &usage, Receipt: &llm.Receipt{Worker: "w", ChargedMicro: 3}},
	)
	require.NoError(t, err)
	require.Equal(t, &llm.Response{
		Text: "It is", Reasoning: "let me see",
		Calls: []llm.Call{
			{ID: "a", Name: "find", Arguments: `{"q":1}`},
			{ID: "b", Name: "open", Arguments: `{}`},
		},
		Logprobs: []json.RawMessage{json.RawMessage(`[1]`), json.RawMessage(`[2]`)},
		Pieces: []llm.Piece{
			{Kind: llm.Reasoning, Text: "let me see"},
			{Kind: llm.Text, Text: "It ", Logprobs: []json.RawMessage{json.RawMessage(`[1]`)}},
			{Kind: llm.ToolCall, Call: llm.Call{ID: "a", Name: "find", Arguments: `{"q":`}},
			{Kind: llm.ToolCall, Call: llm.Call{ID: "b", Name: "open"}},
			{Kind: llm.Text, Text: "is", Logprobs: []json.RawMessage{json.RawMessage(`[2]`)}},
			{Kind: llm.ToolCall, Call: llm.Call{ID: "a", Name: "find", Arguments: `1}`}},
			{Kind: llm.ToolCall, Call: llm.Call{ID: "b", Name: "open", Arguments: `{}`}},
		},
		Finish: llm.ToolCalls, Usage: usage, Receipt: llm.Receipt{Worker: "w", ChargedMicro: 3},
	}, got)
}

func TestFoldOfAnEmptyAnswerIsEmpty(t *testing.T) {
	t.Parallel()
	got, err := fold(llm.Event{Kind: llm.Done, Finish: llm.Stop})
	require.NoError(t, err)
	require.Equal(t, &llm.Response{Finish: llm.Stop}, got)
}

func TestPiecesOfAnOrderedAnswerAreWhole(t *testing.T) {
	t.Parallel()
	var f llm.Fold
	sink := llm.Ordered(f.Add)
	for _, e := range []llm.Event{
		{Kind: llm.Reasoning, Text: "hm"},
		{Kind: llm.Text, Text: ""},
		{Kind: llm.Text, Text: "a", Logprobs: json.RawMessage(`[1]`)},
		{Kind: llm.Text, Logprobs: json.RawMessage(`[2]`)},
		call(0, "a", "find", `{"q":`),
		call(1, "b", "open", "{"),
		{Kind: llm.Text, Text: "b"},
		call(0, "", "", `1}`),
		call(1, "", "", "}"),
		{Kind: llm.Done, Finish: llm.ToolCalls},
	} {
		require.NoError(t, sink(e))
	}
	got, err := f.Response()
	require.NoError(t, err)
	require.Equal(t, []llm.Piece{
		{Kind: llm.Reasoning, Text: "hm"},
		{Kind: llm.Text, Text: "a", Logprobs: []json.RawMessage{json.RawMessage(`[1]`), json.RawMessage(`[2]`)}},
		{Kind: llm.ToolCall, Call: llm.Call{ID: "a", Name: "find", Arguments: `{"q":1}`}},
		{Kind: llm.ToolCall, Call: llm.Call{ID: "b", Name: "open", Arguments: `{}`}},
		{Kind: llm.Text, Text: "b"},
	}, got.Pieces)
	require.NotContains(t, fmt.Sprint(got.Pieces), "hm")
}

func TestFoldDoesNotDependOnWhereTextIsCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.String()).Draw(t, "pieces")
		var events []llm.Event
		whole := ""
		for _, p := range pieces {
			events = append(events, llm.Event{Kind: llm.Text, Text: p})
			whole += p
		}
		got, err := fold(append(events, llm.Event{Kind: llm.Done, Finish: llm.Stop})...)
		require.NoError(t, err)
		require.Equal(t, whole, got.Text)
		if whole != "" {
			require.Equal(t, []llm.Piece{{Kind: llm.Text, Text: whole}}, got.Pieces)
		}
	})
}

func TestFoldGivesTheFailureThatEndedTheAnswer(t *testing.T) {
	t.Parallel()
	_, err := fold(
		llm.Event{Kind: llm.Text, Text: "half"},
		llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Timeout, Message: "too slow"}},
	)
	require.True(t, fault.Is(err, fault.Timeout), err)
	require.ErrorContains(t, err, "too slow")

	_, err = fold(llm.Event{Kind: llm.Failed})
	require.True(t, fault.Is(err, fault.Internal), err)
}

func TestFoldRefusesBrokenAnswers(t *testing.T) {
	t.Parallel()
	done := llm.Event{Kind: llm.Done, Finish: llm.Stop}
	for name, events := range map[string][]llm.Event{
		"no end":                       {{Kind: llm.Text, Text: "half"}},
		"text after the end":           {done, {Kind: llm.Text, Text: "more"}},
		"a ping after the end":         {done, {Kind: llm.Ping}},
		"a second end":                 {done, done},
		"an end after a failure":       {{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Engine}}, done},
		"a call without its place":     {{Kind: llm.ToolCall, Text: "{}"}, done},
		"a call with a negative index": {call(-1, "a", "f", ""), done},
		"a call that skips an index":   {call(1, "a", "f", ""), done},
		"a second call that skips one": {call(0, "a", "f", ""), call(2, "b", "f", ""), done},
		"a call with a huge index":     {call(1<<40, "a", "f", ""), done},
	} {
		_, err := fold(events...)
		require.True(t, fault.Is(err, fault.Engine), name)
	}
}

func TestFoldTakesCallsUpToItsBound(t *testing.T) {
	t.Parallel()
	var f llm.Fold
	for i := range llm.CallsMax {
		require.NoError(t, f.Add(call(i, "", "f", "{}")))
	}
	require.NoError(t, f.Add(call(llm.CallsMax-1, "", "", " ")))
	require.True(t, fault.Is(f.Add(call(llm.CallsMax, "", "f", "{}")), fault.Engine))

	require.NoError(t, f.Add(llm.Event{Kind: llm.Done}))
	r, err := f.Response()
	require.NoError(t, err)
	require.Len(t, r.Calls, llm.CallsMax)
	require.Equal(t, "{} ", r.Calls[llm.CallsMax-1].Arguments)
}

func TestOnlyDoneAndFailedAreLast(t *testing.T) {
	t.Parallel()
	for kind, last := range map[llm.Kind]bool{
		llm.Text: false, llm.Reasoning: false, llm.ToolCall: false, llm.Ping: false, llm.Done: true, llm.Failed: true,
	} {
		require.Equal(t, last, llm.Event{Kind: kind}.Last(), kind)
	}
}
