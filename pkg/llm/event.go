package llm

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/engy-ai/engy/pkg/fault"
)

// Kind says what an Event is.
type Kind string

const (
	// Text and Reasoning carry the next piece of the answer or of the thoughts.
	Text      Kind = "text"
	Reasoning Kind = "reasoning"
	// ToolCall carries the next piece of one tool call.
	ToolCall Kind = "call"
	// Scores carries log-probabilities of the prompt's next tokens.
	Scores Kind = "scores"
	// Ping says that nothing happened for a while; codecs write a keep-alive.
	Ping Kind = "ping"
	// Done is the end of a good exchange, Failed of a bad one. One of them is
	// the last event, and nothing follows it.
	Done   Kind = "done"
	Failed Kind = "failed"
)

// Finish says why a good exchange ended.
type Finish string

const (
	Stop      Finish = "stop"
	Length    Finish = "length"
	ToolCalls Finish = "tool_calls"
	Filter    Finish = "content_filter"
)

// Event is one thing that happened in an exchange.
type Event struct {
	Kind Kind `json:"k"`
	// Text belongs to Text and Reasoning; for ToolCall it is the next piece of
	// the arguments.
	Text string `json:"t,omitzero"`
	// Call belongs to ToolCall.
	Call *CallDelta `json:"c,omitzero"`
	// Logprobs holds the entries for the tokens of Text, as the engine gave
	// them: a JSON array. The entries of Scores and of raw prompts are
	// TokenLogprobs.
	Logprobs json.RawMessage `json:"l,omitzero"`
	// Finish and Usage belong to Done. Usage may stand on Failed too: what the
	// engine had produced by then.
	Finish Finish `json:"f,omitzero"`
	Usage  *Usage `json:"u,omitzero"`
	// Fault belongs to Failed.
	Fault *Fault `json:"e,omitzero"`
	// Receipt is added to Done by the edge; it does not travel.
	Receipt *Receipt `json:"-"`
}

// CallDelta is a piece of the tool call with the given index. ID and Name come
// with the first piece only.
type CallDelta struct {
	Index int    `json:"i"`
	ID    string `json:"id,omitzero"`
	Name  string `json:"n,omitzero"`
}

// follows tells whether a piece may come after so many calls: it is of one of them, or
// of the next.
func (d *CallDelta) follows(calls int) bool {
	return d != nil && d.Index >= 0 && d.Index <= calls && d.Index < CallsMax
}

// Fault is a failure as it travels: a code and a message safe to show.
type Fault struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	// Tokens and Window belong to fault.Overlong.
	Tokens int64 `json:"tokens,omitzero"`
	Window int64 `json:"window,omitzero"`
	// Retry is how long the caller of a fault.Busy should wait. The edge knows; it
	// does not travel.
	Retry time.Duration `json:"-"`
}

// FaultOf makes a failure fit to travel: what only operators may see stays.
func FaultOf(err error) *Fault {
	f := fault.Of(err)
	return &Fault{Code: f.Code, Message: f.Message, Tokens: f.Tokens, Window: f.Window, Retry: f.Retry}
}

// Err turns a travelled failure back into an error.
func (f *Fault) Err() error {
	return &fault.Error{Code: f.Code, Message: f.Message, Tokens: f.Tokens, Window: f.Window, Retry: f.Retry}
}

// Usage counts tokens. Cached is part of Prompt, Reasoning part of Completion;
// Reasoning is nil when the engine does not tell.
type Usage struct {
	Prompt     int64  `json:"prompt"`
	Cached     int64  `json:"cached,omitzero"`
	Completion int64  `json:"completion"`
	Reasoning  *int64 `json:"reasoning,omitzero"`
}

// Receipt tells the caller who served and what it cost.
type Receipt struct {
	RequestID    string
	Worker       string
	ChargedMicro int64
}

// Sink takes the events of one exchange in order; the last is Done or Failed.
// An error from a Sink ends the exchange.
type Sink func(Event) error

// String gives sizes only.
func (e Event) String() string { return fmt.Sprintf("event(%s, %d bytes)", e.Kind, len(e.Text)) }

// LogValue keeps content out of logs.
func (e Event) LogValue() slog.Value { return slog.StringValue(e.String()) }

// Last tells whether no event follows this one.
func (e Event) Last() bool { return e.Kind == Done || e.Kind == Failed }
