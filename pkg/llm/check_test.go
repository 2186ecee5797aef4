package llm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

func TestCheckRefusesWhatSinksCannotSay(t *testing.T) {
	t.Parallel()
	failed := func(c fault.Code) llm.Event {
		return llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: c, Message: "m"}}
	}
	logprobs := func(raw string) llm.Event {
		return llm.Event{Kind: llm.Text, Text: "x", Logprobs: json.RawMessage(raw)}
	}
	for name, c := range map[string]struct {
		events []llm.Event
		ok     bool
	}{
		"an answer":                 {[]llm.Event{thought("hm"), text("a"), {Kind: llm.Ping}, logprobs(`[{"token":"x"}]`), done}, true},
		"calls":                     {[]llm.Event{call(0, "a", "f", "{"), call(1, "b", "g", "{"), call(0, "", "", "}"), done}, true},
		"the last call":             {append(calls(llm.CallsMax), done), true},
		"a failure":                 {[]llm.Event{text("a"), failed(fault.Busy)}, true},
		"one without a cause":       {[]llm.Event{{Kind: llm.Failed}}, true},
		"unknown kind":              {[]llm.Event{{Kind: "odd"}}, false},
		"unknown finish":            {[]llm.Event{{Kind: llm.Done, Finish: `stop","a":"b`}}, false},
		"no finish":                 {[]llm.Event{{Kind: llm.Done}}, false},
		"a call too far":            {[]llm.Event{call(0, "a", "f", ""), call(2, "b", "g", "")}, false},
		"a call before the first":   {[]llm.Event{call(-1, "a", "f", "")}, false},
		"a call without itself":     {[]llm.Event{{Kind: llm.ToolCall}}, false},
		"a call too many":           {calls(llm.CallsMax + 1), false},
		"entries that are no array": {[]llm.Event{logprobs(`{}`)}, false},
		"entries on two lines":      {[]llm.Event{logprobs("[\n]")}, false},
		"after the end":             {[]llm.Event{done, text("a")}, false},
		"two ends":                  {[]llm.Event{done, done}, false},
		"billing's word":            {[]llm.Event{failed(fault.NoFunds)}, false},
		"an unknown code":           {[]llm.Event{failed("odd")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var check llm.Check
			var err error
			for _, e := range c.events {
				if err = check.Add(e); err != nil {
					break
				}
			}
			require.Equal(t, c.ok, err == nil, err)
			require.True(t, c.ok || fault.Is(err, fault.Engine))
		})
	}
}

func calls(n int) []llm.Event {
	events := make([]llm.Event, n)
	for i := range events {
		events[i] = call(i, "c", "f", "{}")
	}
	return events
}

// What Check lets pass Fold takes.
func TestWhatIsCheckedFolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var check llm.Check
		var fold llm.Fold
		for _, n := range rapid.SliceOf(rapid.IntRange(-1, 6)).Draw(t, "events") {
			e := text("x")
			if n < 5 {
				e = call(n, "", "f", "{")
			}
			if check.Add(e) == nil {
				require.NoError(t, fold.Add(e))
			}
		}
	})
}
