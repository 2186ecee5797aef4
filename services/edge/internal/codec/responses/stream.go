package responses

import (
	"strconv"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/sse"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// stream writes the answer as server-sent events.
type stream struct {
	answer
	ordered  llm.Sink
	buf      []byte
	sequence int64
	begun    bool
	// pieces are those whose items are closed.
	pieces []llm.Piece
	open   *growing
}

// growing is the item that is open.
type growing struct {
	made
	index int // of the call, -1 for others
	text  strings.Builder
	// sent counts the bytes of arguments that went out. Blank ones wait until there
	// are others: they may be all there is.
	sent   int
	argued bool
	custom custom
	// where are the members that say where a delta belongs.
	where []byte
}

// take takes the next event as the engine gave it.
func (s *stream) take(e llm.Event) error {
	switch e.Kind {
	case llm.Done:
		s.finish = e.Finish
	case llm.Failed:
		// What still waits for its turn is never shown as whole.
		return s.add(e)
	case llm.Text, llm.Reasoning, llm.ToolCall, llm.Ping:
	}
	return s.ordered(e)
}

// add takes the next event in order.
func (s *stream) add(e llm.Event) error {
	b := s.buf[:0]
	if !s.begun {
		s.begun = true
		for _, name := range []string{"response.created", "response.in_progress"} {
			b = s.response(b, name, &state{status: inProgress})
		}
	}
	switch e.Kind {
	case llm.Ping:
		b = sse.Comment(b, "keep-alive")
	case llm.Text, llm.Reasoning:
		b = s.words(b, e)
	case llm.ToolCall:
		b = s.call(b, e)
	case llm.Done:
		b = s.done(b, e)
	case llm.Failed:
		f := e.Fault
		if f == nil {
			f = &llm.Fault{Code: fault.Internal}
		}
		b = s.response(b, "response.failed", &state{status: "failed", pieces: s.pieces, usage: e.Usage, failed: f})
	}
	s.buf = b
	if len(b) == 0 {
		return nil
	}
	_, err := s.w.Write(b)
	return err
}

// event opens an event; shut closes it.
func (s *stream) event(b []byte, name string) []byte {
	b = append(append(b, "event: "...), name...)
	b = append(append(b, "\ndata: {\"type\":\""...), name...)
	b = strconv.AppendInt(append(b, `","sequence_number":`...), s.sequence, 10)
	s.sequence++
	return b
}

func shut(b []byte) []byte { return append(b, "}\n\n"...) }

func (s *stream) response(b []byte, name string, st *state) []byte {
	b = append(s.event(b, name), `,"response":`...)
	return shut(s.appendResponse(b, st))
}

// item writes that an item begins or ends.
func (s *stream) item(b []byte, name string, m *made) []byte {
	b = strconv.AppendInt(append(s.event(b, name), `,"output_index":`...), int64(m.place), 10)
	return shut(s.appendItem(append(b, `,"item":`...), m))
}

// at opens an event of the open item.
func (s *stream) at(b []byte, name string) []byte { return append(s.event(b, name), s.open.where...) }

// begin closes the open item and opens another.
func (s *stream) begin(b []byte, p llm.Piece, index int) []byte {
	b = s.close(b, false)
	g := &growing{made: made{place: len(s.pieces), piece: p, status: inProgress}, index: index}
	s.open = g
	switch p.Kind {
	case llm.Text:
		g.item = message
	case llm.Reasoning:
		g.item = reasoning
	default:
		g.tool = s.toolOf(p.Call.Name)
		if _, ok := builtinOf(g.item); ok {
			return b // what kind of item it is shows when its arguments are whole
		}
	}
	return s.show(b)
}

// show writes that the open item has begun.
func (s *stream) show(b []byte) []byte {
	g := s.open
	g.where = s.appendID([]byte(`,"item_id":`), g.item, g.place)
	g.where = strconv.AppendInt(append(g.where, `,"output_index":`...), int64(g.place), 10)
	b = s.item(b, "response.output_item.added", &g.made)
	switch g.item {
	case message:
		g.where = append(g.where, `,"content_index":0`...)
		b = s.appendPart(append(s.at(b, "response.content_part.added"), `,"part":`...), &llm.Piece{})
		return shut(b)
	case reasoning:
		g.where = append(g.where, `,"summary_index":0`...)
		b = appendSummary(append(s.at(b, "response.reasoning_summary_part.added"), `,"part":`...), "")
		return shut(b)
	}
	return b
}

// words takes a piece of text or of thoughts.
func (s *stream) words(b []byte, e llm.Event) []byte {
	if e.Text == "" && len(e.Logprobs) == 0 {
		return b
	}
	if s.open == nil || s.open.piece.Kind != e.Kind {
		b = s.begin(b, llm.Piece{Kind: e.Kind}, -1)
	}
	s.open.text.WriteString(e.Text)
	if len(e.Logprobs) > 0 {
		s.open.piece.Logprobs = append(s.open.piece.Logprobs, e.Logprobs)
	}
	if e.Kind == llm.Reasoning {
		b = wire.Quote(append(s.at(b, "response.reasoning_summary_text.delta"), `,"delta":`...), e.Text)
		return shut(b)
	}
	b = wire.Quote(append(s.at(b, "response.output_text.delta"), `,"delta":`...), e.Text)
	return shut(s.appendLogprobs(append(b, `,"logprobs":`...), e.Logprobs))
}

// call takes a piece of a tool call.
func (s *stream) call(b []byte, e llm.Event) []byte {
	if e.Call == nil {
		return b
	}
	if s.open == nil || s.open.index != e.Call.Index {
		b = s.begin(b, llm.Piece{Kind: llm.ToolCall, Call: llm.Call{ID: e.Call.ID, Name: e.Call.Name}}, e.Call.Index)
	}
	g := s.open
	g.text.WriteString(e.Text)
	switch g.item {
	case customCall:
		return s.input(b, g.custom.take(e.Text))
	case functionCall:
		if g.argued = g.argued || !wire.Blank(e.Text); g.argued {
			return s.arguments(b, g.text.String())
		}
	}
	return b
}

// arguments writes what has not gone out of a call's arguments.
func (s *stream) arguments(b []byte, all string) []byte {
	if s.open.sent == len(all) {
		return b
	}
	b = append(s.at(b, "response.function_call_arguments.delta"), `,"delta":`...)
	b = wire.Quote(b, all[s.open.sent:])
	s.open.sent = len(all)
	return shut(b)
}

// input writes the next piece of a custom tool's text.
func (s *stream) input(b []byte, text string) []byte {
	if text == "" {
		return b
	}
	b = append(s.at(b, "response.custom_tool_call_input.delta"), `,"delta":`...)
	return shut(wire.Quote(b, text))
}

// close ends the open item. Last tells that the answer ends with it.
func (s *stream) close(b []byte, last bool) []byte {
	g := s.open
	if g == nil {
		return b
	}
	if g.piece.Kind == llm.ToolCall {
		g.piece.Call.Arguments = g.text.String()
	} else {
		g.piece.Text = g.text.String()
	}
	whole := s.make(g.piece, g.place, last)
	if g.where == nil {
		g.tool = whole.tool
		b = s.show(b)
	}
	switch whole.item {
	case message:
		b = wire.Quote(append(s.at(b, "response.output_text.done"), `,"text":`...), g.piece.Text)
		b = shut(s.appendLogprobs(append(b, `,"logprobs":`...), g.piece.Logprobs...))
		b = shut(s.appendPart(append(s.at(b, "response.content_part.done"), `,"part":`...), &g.piece))
	case reasoning:
		b = shut(wire.Quote(append(s.at(b, "response.reasoning_summary_text.done"), `,"text":`...), g.piece.Text))
		b = shut(appendSummary(append(s.at(b, "response.reasoning_summary_part.done"), `,"part":`...), g.piece.Text))
	case customCall:
		b = s.input(b, g.custom.end(g.piece.Call.Arguments))
		b = append(s.at(b, "response.custom_tool_call_input.done"), `,"input":`...)
		b = shut(wire.Quote(b, customText(g.piece.Call.Arguments)))
	case functionCall:
		all := whole.arguments()
		b = s.arguments(b, all)
		b = wire.Quote(append(s.at(b, "response.function_call_arguments.done"), `,"name":`...), whole.name)
		b = shut(wire.Quote(append(b, `,"arguments":`...), all))
	}
	s.pieces, s.open = append(s.pieces, g.piece), nil
	return s.item(b, "response.output_item.done", &whole)
}

func (s *stream) done(b []byte, e llm.Event) []byte {
	b = s.close(b, true)
	st := &state{status: statusOf(e.Finish), pieces: s.pieces, usage: e.Usage, receipt: e.Receipt}
	if st.usage == nil {
		st.usage = &llm.Usage{}
	}
	name := "response." + st.status
	return s.response(b, name, st)
}
