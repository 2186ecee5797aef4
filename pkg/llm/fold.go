package llm

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
)

// CallsMax bounds the tool calls of one answer. An engine that names a higher
// index is broken, and the index never sizes anything.
const CallsMax = 128

// Response is a whole answer: the fold of its events.
type Response struct {
	Text      string
	Reasoning string
	Calls     []Call
	Logprobs  []json.RawMessage
	Finish    Finish
	Usage     Usage
	Receipt   Receipt
}

// Fold gathers the events of one exchange into a Response. The zero value is
// ready; pass its Add as a Sink.
type Fold struct {
	text, reasoning strings.Builder
	calls           []*foldCall
	logprobs        []json.RawMessage
	end             *Event
}

type foldCall struct {
	Call
	arguments strings.Builder
}

// Add takes the next event. It refuses events after the last and tool calls
// that skip an index.
func (f *Fold) Add(e Event) error {
	if f.end != nil {
		return fault.New(fault.Engine, "event after the end of the answer")
	}
	switch e.Kind {
	case Text:
		f.text.WriteString(e.Text)
	case Reasoning:
		f.reasoning.WriteString(e.Text)
	case ToolCall:
		return f.addCall(e)
	case Done, Failed:
		f.end = &e
	case Ping:
	}
	if len(e.Logprobs) > 0 {
		f.logprobs = append(f.logprobs, e.Logprobs)
	}
	return nil
}

func (f *Fold) addCall(e Event) error {
	if e.Call == nil || e.Call.Index < 0 || e.Call.Index > len(f.calls) || e.Call.Index >= CallsMax {
		return fault.New(fault.Engine, "tool call out of order")
	}
	if e.Call.Index == len(f.calls) {
		f.calls = append(f.calls, &foldCall{})
	}
	c := f.calls[e.Call.Index]
	if e.Call.ID != "" {
		c.ID = e.Call.ID
	}
	if e.Call.Name != "" {
		c.Name = e.Call.Name
	}
	c.arguments.WriteString(e.Text)
	return nil
}

// Response gives the whole answer, or the failure that ended it.
func (f *Fold) Response() (*Response, error) {
	switch {
	case f.end == nil:
		return nil, fault.New(fault.Engine, "the answer has no end")
	case f.end.Kind == Failed && f.end.Fault == nil:
		return nil, fault.New(fault.Internal, "failure without a cause")
	case f.end.Kind == Failed:
		return nil, f.end.Fault.Err()
	}
	r := &Response{
		Text: f.text.String(), Reasoning: f.reasoning.String(),
		Logprobs: f.logprobs, Finish: f.end.Finish,
	}
	for _, c := range f.calls {
		c.Call.Arguments = c.arguments.String()
		r.Calls = append(r.Calls, c.Call)
	}
	if f.end.Usage != nil {
		r.Usage = *f.end.Usage
	}
	if f.end.Receipt != nil {
		r.Receipt = *f.end.Receipt
	}
	return r, nil
}

// String gives sizes only.
func (r *Response) String() string {
	return fmt.Sprintf("response(%d bytes, %d calls, %s)", len(r.Text), len(r.Calls), r.Finish)
}

// LogValue keeps content out of logs.
func (r *Response) LogValue() slog.Value { return slog.StringValue(r.String()) }
