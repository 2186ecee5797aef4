package llm

import (
	"bytes"

	"github.com/engy-ai/engy/pkg/fault"
)

// Check holds the events of one exchange to the rules that sinks rely on. Who makes
// the events may be broken or belong to somebody else, and encoders write some of
// what they hold as it is. The zero value is ready.
type Check struct {
	calls int
	over  bool
}

// Add looks at the next event. It refuses unknown kinds and finishes, tool calls that
// skip an index, entries that are no array on one line, failures that are not a
// worker's to tell, and whatever follows the last event.
func (c *Check) Add(e Event) error {
	if c.over {
		return broken("event after the end of the answer")
	}
	if raw := e.Logprobs; len(raw) > 0 && (raw[0] != '[' || bytes.ContainsAny(raw, "\r\n")) {
		return broken("log-probabilities are not an array")
	}
	c.over = e.Last()
	switch e.Kind {
	case Text, Reasoning, Scores, Ping:
		return nil
	case ToolCall:
		return c.call(e.Call)
	case Done:
		return known(e.Finish)
	case Failed:
		return told(e.Fault)
	}
	return broken("unknown event")
}

func (c *Check) call(d *CallDelta) error {
	if !d.follows(c.calls) {
		return broken("tool call out of order")
	}
	c.calls = max(c.calls, d.Index+1)
	return nil
}

func known(f Finish) error {
	switch f {
	case Stop, Length, ToolCalls, Filter:
		return nil
	}
	return broken("unknown reason for the end")
}

// told refuses what only an edge or billing may say to a caller.
func told(f *Fault) error {
	if f == nil {
		return nil
	}
	switch f.Code {
	case fault.Invalid, fault.Overlong, fault.TooLarge, fault.Busy, fault.Engine, fault.Timeout, fault.Canceled, fault.Unavailable, fault.Internal:
		return nil
	case fault.Unauthorized, fault.Forbidden, fault.NoFunds, fault.NotFound, fault.HeadTooLarge, fault.NoWorker:
	}
	return broken("a failure that is not the engine's to tell")
}

func broken(what string) error {
	return fault.New(fault.Engine, "the engine's answer is broken: "+what)
}
