package anthropic

import (
	"strconv"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// stream writes the answer as server-sent events. Clients read the name of an
// event as well as its data, and count the blocks: one is open at a time, and
// their numbers have no gaps.
type stream struct {
	answer
	codec Codec
	buf   []byte
	begun bool
	// open is the kind of the open block, empty for none; call tells which call
	// it is, and argued whether its arguments have begun.
	open   llm.Kind
	call   int
	argued bool
	blocks int
	// delta opens every piece of the open block and is built once a block.
	delta []byte
}

func (s *stream) add(e llm.Event) error {
	b := s.buf[:0]
	switch e.Kind {
	case llm.Ping:
		b = s.ping(b)
	case llm.Text:
		if e.Text != "" {
			b = s.piece(s.block(b, llm.Text), e.Text)
		}
	case llm.Reasoning:
		switch {
		case e.Text == "":
		case s.req.Thinking == "disabled":
			// Thoughts part two texts, whether they are shown or not.
			b = s.stop(s.start(b))
		default:
			b = s.piece(s.block(b, llm.Reasoning), e.Text)
		}
	case llm.ToolCall:
		b = s.tool(b, e)
	case llm.Done:
		b = s.done(b, e)
	case llm.Failed:
		err := error(fault.New(fault.Internal, "failure without a cause"))
		if e.Fault != nil {
			err = e.Fault.Err()
		}
		b = s.failed(b, err)
	}
	s.buf = b
	if len(b) == 0 {
		return nil
	}
	_, err := s.w.Write(b)
	return err
}

// event opens an event up to the members behind its type.
func event(b []byte, name string) []byte {
	b = append(append(b, "event: "...), name...)
	b = append(append(b, "\ndata: {\"type\":\""...), name...)
	return append(b, '"')
}

// end closes an event.
func end(b []byte) []byte { return append(b, "}\n\n"...) }

// start opens the message. The prompt's true count comes at its end; the
// estimate stands here because clients show it meanwhile.
func (s *stream) start(b []byte) []byte {
	if s.begun {
		return b
	}
	s.begun = true
	b = s.head(append(event(b, "message_start"), `,"message":`...))
	b = append(b, `],"stop_reason":null,"stop_sequence":null,"usage":`...)
	return end(append(usage(b, llm.Usage{Prompt: s.req.PromptTokens}), '}'))
}

// block makes sure that a block of the kind is open.
func (s *stream) block(b []byte, kind llm.Kind) []byte {
	if s.open == kind {
		return b
	}
	b = s.opening(b, kind)
	if kind == llm.Reasoning {
		b = append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	} else {
		b = append(b, `{"type":"text","text":""}`...)
	}
	return end(b)
}

// opening ends the block before and begins one, up to what it is.
func (s *stream) opening(b []byte, kind llm.Kind) []byte {
	b = s.stop(s.start(b))
	s.open = kind
	n := strconv.Itoa(s.blocks)
	s.delta = append(event(s.delta[:0], "content_block_delta"), `,"index":`...)
	s.delta = append(append(s.delta, n...), `,"delta":{"type":`...)
	switch kind {
	case llm.Reasoning:
		s.delta = append(s.delta, `"thinking_delta","thinking":`...)
	case llm.ToolCall:
		s.delta = append(s.delta, `"input_json_delta","partial_json":`...)
	default:
		s.delta = append(s.delta, `"text_delta","text":`...)
	}
	b = append(append(event(b, "content_block_start"), `,"index":`...), n...)
	return append(b, `,"content_block":`...)
}

// piece writes the next piece of the open block.
func (s *stream) piece(b []byte, text string) []byte {
	return end(append(wire.Quote(append(b, s.delta...), text), '}'))
}

// stop closes the open block. A thought is signed: clients keep the signature
// and send it back. It says nothing, and any string will do.
func (s *stream) stop(b []byte) []byte {
	if s.open == "" {
		return b
	}
	if s.open == llm.Reasoning {
		b = strconv.AppendInt(append(event(b, "content_block_delta"), `,"index":`...), int64(s.blocks), 10)
		b = append(b, `,"delta":{"type":"signature_delta","signature":"`...)
		b = end(append(append(b, s.id[:min(idDigits, len(s.id))]...), `"}`...))
	}
	b = strconv.AppendInt(append(event(b, "content_block_stop"), `,"index":`...), int64(s.blocks), 10)
	s.open = ""
	s.blocks++
	return end(b)
}

// ping keeps the connection alive. Some clients watch for a ping, others only
// for pieces of a block.
func (s *stream) ping(b []byte) []byte {
	b = end(event(s.start(b), "ping"))
	if s.open != "" {
		b = s.piece(b, "")
	}
	return b
}

func (s *stream) tool(b []byte, e llm.Event) []byte {
	if e.Call == nil {
		return b
	}
	if s.open != llm.ToolCall || s.call != e.Call.Index {
		b = s.use(s.opening(b, llm.ToolCall), llm.Call{ID: e.Call.ID, Name: e.Call.Name})
		b = end(append(b, `,"input":{}}`...))
		s.call, s.argued = e.Call.Index, false
	}
	text := e.Text
	if !s.argued {
		// Nothing but white space stands for no arguments, as no pieces do.
		text = strings.TrimLeft(text, " \n\t\r")
	}
	if text == "" {
		return b
	}
	s.argued = true
	return s.piece(b, text)
}

func (s *stream) done(b []byte, e llm.Event) []byte {
	why, err := reason(e.Finish, s.ids.n > 0)
	if err != nil {
		return s.failed(b, err)
	}
	b = s.stop(s.start(b))
	b = append(event(b, "message_delta"), `,"delta":{"stop_reason":"`...)
	b = append(b, why...)
	b = append(b, `","stop_sequence":null},"usage":`...)
	var u llm.Usage
	if e.Usage != nil {
		u = *e.Usage
	}
	b = end(usage(b, u))
	return end(event(b, "message_stop"))
}

// failed ends the stream with an error. What was begun stays open, so that
// nobody takes it for whole.
func (s *stream) failed(b []byte, err error) []byte {
	_, body := s.codec.Error(err, s.id)
	b = append(append(b, "event: error\ndata: "...), body...)
	return append(b, "\n\n"...)
}
