package llm

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
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
	// Scores holds arrays of entries for a span of the prompt.
	Scores []json.RawMessage
	// Pieces says the same in the order in which it came, for protocols whose
	// answers are a list of blocks. Fold what Ordered passes on, else a call may be
	// in several pieces.
	Pieces  []Piece
	Finish  Finish
	Usage   Usage
	Receipt Receipt
}

// Piece is a stretch of an answer: what consecutive events of one kind, or of one
// call, say together.
type Piece struct {
	// Kind is Text, Reasoning or ToolCall.
	Kind Kind
	// Text belongs to Text and Reasoning.
	Text string
	// Call belongs to ToolCall; its Arguments are those of this piece.
	Call Call
	// Logprobs holds arrays of entries for the tokens of Text.
	Logprobs []json.RawMessage
}

// String gives sizes only.
func (p Piece) String() string {
	return fmt.Sprintf("piece(%s, %d bytes)", p.Kind, len(p.Text)+len(p.Call.Arguments))
}

// LogValue keeps content out of logs.
func (p Piece) LogValue() slog.Value { return slog.StringValue(p.String()) }

// Fold gathers the events of one exchange into a Response. The zero value is
// ready; pass its Add as a Sink.
type Fold struct {
	pieces   []*foldPiece
	calls    []Call
	logprobs []json.RawMessage
	scores   []json.RawMessage
	end      *Event
}

// foldPiece is a piece that may grow. Call is its place among the calls.
type foldPiece struct {
	kind     Kind
	call     int
	text     strings.Builder
	logprobs []json.RawMessage
}

// Add takes the next event. It refuses events after the last and tool calls
// that skip an index.
func (f *Fold) Add(e Event) error {
	if f.end != nil {
		return fault.New(fault.Engine, "event after the end of the answer")
	}
	switch e.Kind {
	case Text, Reasoning:
		f.addText(e)
	case ToolCall:
		return f.addCall(e)
	case Scores:
		f.scores = append(f.scores, e.Logprobs)
	case Done, Failed:
		f.end = &e
	case Ping:
	}
	return nil
}

func (f *Fold) addText(e Event) {
	if e.Text == "" && len(e.Logprobs) == 0 {
		return
	}
	p := f.piece(e.Kind, 0)
	p.text.WriteString(e.Text)
	if len(e.Logprobs) > 0 {
		p.logprobs = append(p.logprobs, e.Logprobs)
		f.logprobs = append(f.logprobs, e.Logprobs)
	}
}

// piece gives the piece that is growing, or begins one.
func (f *Fold) piece(kind Kind, call int) *foldPiece {
	if n := len(f.pieces); n > 0 && f.pieces[n-1].kind == kind && f.pieces[n-1].call == call {
		return f.pieces[n-1]
	}
	p := &foldPiece{kind: kind, call: call}
	f.pieces = append(f.pieces, p)
	return p
}

func (f *Fold) addCall(e Event) error {
	if !e.Call.follows(len(f.calls)) {
		return fault.New(fault.Engine, "tool call out of order")
	}
	if e.Call.Index == len(f.calls) {
		f.calls = append(f.calls, Call{})
	}
	c := &f.calls[e.Call.Index]
	if e.Call.ID != "" {
		c.ID = e.Call.ID
	}
	if e.Call.Name != "" {
		c.Name = e.Call.Name
	}
	f.piece(ToolCall, e.Call.Index).text.WriteString(e.Text)
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
	return f.SoFar(), nil
}

// SoFar gives what has come of an answer, whole or not.
func (f *Fold) SoFar() *Response {
	r := &Response{Calls: slices.Clone(f.calls), Logprobs: f.logprobs, Scores: f.scores}
	f.say(r)
	if f.end == nil {
		return r
	}
	r.Finish = f.end.Finish
	if f.end.Usage != nil {
		r.Usage = *f.end.Usage
	}
	if f.end.Receipt != nil {
		r.Receipt = *f.end.Receipt
	}
	return r
}

// say fills in what the pieces say, in order and by kind.
func (f *Fold) say(r *Response) {
	// One piece is not copied again: joining a single string gives it back.
	var text, reasoning []string
	arguments := make([][]string, len(f.calls))
	for _, p := range f.pieces {
		piece := Piece{Kind: p.kind, Logprobs: p.logprobs}
		switch p.kind {
		case Text:
			piece.Text = p.text.String()
			text = append(text, piece.Text)
		case Reasoning:
			piece.Text = p.text.String()
			reasoning = append(reasoning, piece.Text)
		case ToolCall:
			piece.Call = f.calls[p.call]
			piece.Call.Arguments = p.text.String()
			arguments[p.call] = append(arguments[p.call], piece.Call.Arguments)
		case Scores, Ping, Done, Failed:
		}
		r.Pieces = append(r.Pieces, piece)
	}
	r.Text, r.Reasoning = strings.Join(text, ""), strings.Join(reasoning, "")
	for i := range r.Calls {
		r.Calls[i].Arguments = strings.Join(arguments[i], "")
	}
}

// String gives sizes only.
func (r *Response) String() string {
	return fmt.Sprintf("response(%d bytes, %d calls, %s)", len(r.Text), len(r.Calls), r.Finish)
}

// LogValue keeps content out of logs.
func (r *Response) LogValue() slog.Value { return slog.StringValue(r.String()) }
