package llm_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
)

func text(s string) llm.Event    { return llm.Event{Kind: llm.Text, Text: s} }
func thought(s string) llm.Event { return llm.Event{Kind: llm.Reasoning, Text: s} }

// ordered gives what comes through, one word an event.
func ordered(t require.TestingT, events ...llm.Event) []string {
	var got []string
	sink := llm.Ordered(func(e llm.Event) error {
		word := string(e.Kind) + ":" + e.Text
		if e.Call != nil {
			word = strconv.Itoa(e.Call.Index) + word
		}
		got = append(got, word)
		return nil
	})
	for _, e := range events {
		require.NoError(t, sink(e))
	}
	return got
}

var done = llm.Event{Kind: llm.Done, Finish: llm.Stop} // read-only

func TestWhiteSpaceAloneIsNoText(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"reasoning:hm", "text:\n", "text:a", "text: ", "0call:{}", "1call:{}", "text: b", "done:"},
		ordered(t, text("\n"), thought("hm"), text("\n"), text("a"), text(" "), call(0, "", "f", "{}"), text("\n"),
			call(1, "", "f", "{}"), text(" b"), done))
	require.Equal(t, []string{"text:\n", "done:"}, ordered(t, text("\n"), done), "an answer of white space is one")
	require.Equal(t, []string{"0call:{}", "done:"}, ordered(t, call(0, "", "f", "{}"), text("\n"), done))
}

func TestThePiecesOfACallStayTogether(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"0call:{", "ping:", "0call:}", "1call:[", "1call:]", "text:x", "done:"},
		ordered(t, call(0, "", "f", "{"), call(1, "", "g", "["), llm.Event{Kind: llm.Ping}, text("x"), call(0, "", "", "}"),
			call(1, "", "", "]"), done))
	require.Equal(t, []string{"0call:", "1call:{", "2call:{}", "done:"},
		ordered(t, call(0, "", "f", ""), call(1, "", "g", "{"), call(2, "", "h", "{}"), done), "calls that are never whole")
	require.Equal(t, []string{"0call:{", "text:x", "failed:"},
		ordered(t, call(0, "", "f", "{"), text("x"), llm.Event{Kind: llm.Failed}))
}

// Nothing is lost or doubled, whatever the order, but for what follows a call
// that is whole.
func TestOrderedKeepsEveryPiece(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var events []llm.Event
		calls, want, args := 0, map[string]string{}, map[string]*llm.Arguments{}
		argue := func(at int, piece string) {
			name := strconv.Itoa(at)
			if args[name] == nil {
				args[name] = &llm.Arguments{}
			}
			if !args[name].Whole() {
				args[name].Take(piece)
				want[name] += piece
			}
		}
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "events") {
			piece := rapid.SampledFrom([]string{"x", "{", "}", `"`, `\`}).Draw(t, "piece")
			switch {
			case n < 3:
				events, want["text"] = append(events, text(piece)), want["text"]+piece
			case n < 5 || calls == 0:
				events = append(events, call(calls, "", "f", piece))
				argue(calls, piece)
				calls++
			default:
				at := n % calls
				events = append(events, call(at, "", "", piece))
				argue(at, piece)
			}
		}
		got, last := map[string]string{}, -1
		sink := llm.Ordered(func(e llm.Event) error {
			switch e.Kind {
			case llm.Text:
				got["text"] += e.Text
			case llm.ToolCall:
				got[strconv.Itoa(e.Call.Index)] += e.Text
				if e.Call.Index != last {
					require.Equal(t, "f", e.Call.Name, "a call is not opened again")
					last = e.Call.Index
				}
			case llm.Reasoning, llm.Ping, llm.Done, llm.Failed:
			}
			return nil
		})
		for _, e := range events {
			require.NoError(t, sink(e))
		}
		require.NoError(t, sink(done))
		require.Equal(t, want, got)
	})
}
