package openai

import (
	"io"
	"strconv"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/sse"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// idDigits is how much of the request id an answer's own id shows.
const idDigits = 24

// Encode gives the sink that writes a chat completion, or a completion of a raw
// prompt.
func (c Codec) Encode(w io.Writer, req *llm.Request, id string, created int64) llm.Sink {
	if req.Raw != nil {
		return encodeCompletion(w, req, id, created)
	}
	a := answer{w: w, req: req, id: id, created: created}
	n, _ := req.Note.(note)
	if req.Stream {
		s := &stream{answer: a, codec: c, hidden: n.hidden}
		s.head = a.head(nil, "chatcmpl-", "chat.completion.chunk")
		return inTurn(s.add)
	}
	var fold llm.Fold
	add := inTurn(fold.Add)
	return func(e llm.Event) error {
		if err := add(e); err != nil || !e.Last() {
			return err
		}
		r, err := fold.Response()
		if err != nil {
			return err
		}
		if n.hidden {
			r.Reasoning = ""
		}
		_, err = w.Write(a.whole(r))
		return err
	}
}

// note is what the answer needs of the request beside its fields.
type note struct {
	// hidden leaves the thoughts out.
	hidden bool
}

// inTurn passes the calls of an answer on one after another, whatever comes
// between them: clients take a call for whole when the next one begins.
func inTurn(next llm.Sink) llm.Sink {
	calls := llm.Ordered(next)
	return func(e llm.Event) error {
		if e.Kind == llm.ToolCall || e.Kind == llm.Done {
			return calls(e)
		}
		return next(e)
	}
}

type answer struct {
	w       io.Writer
	req     *llm.Request
	id      string
	created int64
}

// head writes the members that open every object of an answer.
func (a *answer) head(b []byte, prefix, object string) []byte {
	b = append(append(b, `{"id":"`...), prefix...)
	b = append(b, a.id[:min(idDigits, len(a.id))]...)
	b = append(b, `","object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.created, 10)
	b = append(b, `,"model":`...)
	b = wire.Quote(b, a.req.Spelling)
	return append(b, ',')
}

// whole writes the answer as one body.
func (a *answer) whole(r *llm.Response) []byte {
	b := a.head(nil, "chatcmpl-", "chat.completion")
	b = append(b, `"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	if r.Text == "" && len(r.Calls) > 0 {
		b = append(b, "null"...)
	} else {
		b = wire.Quote(b, r.Text)
	}
	if r.Reasoning != "" {
		b = wire.Quote(append(b, `,"reasoning_content":`...), r.Reasoning)
	}
	if len(r.Calls) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i, call := range r.Calls {
			if i > 0 {
				b = append(b, ',')
			}
			b = wire.Quote(append(b, `{"id":`...), call.ID)
			b = wire.Quote(append(b, `,"type":"function","function":{"name":`...), call.Name)
			arguments := call.Arguments
			if wire.Blank(arguments) {
				arguments = ""
				if r.Finish != llm.Length || i < len(r.Calls)-1 {
					arguments = "{}"
				}
			}
			b = wire.Quote(append(b, `,"arguments":`...), arguments)
			b = append(b, `}}`...)
		}
		b = append(b, ']')
	}
	b = append(b, `,"refusal":null},"logprobs":`...)
	if a.req.Logprobs {
		b = append(b, `{"content":[`...)
		for i, entries := range r.Logprobs {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, inner(entries)...)
		}
		b = append(b, `],"refusal":null}`...)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"finish_reason":"`...)
	b = append(b, r.Finish...)
	b = append(b, `"}],"usage":`...)
	b = usage(b, r.Usage)
	b = append(b, ',')
	b = Receipt(b, r.Receipt)
	return append(b, '}')
}

// inner strips the brackets of a JSON array.
func inner(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	return raw[1 : len(raw)-1]
}

func usage(b []byte, u llm.Usage) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), u.Prompt, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), u.Completion, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), u.Prompt+u.Completion, 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), u.Cached, 10)
	b = append(b, '}')
	if u.Reasoning != nil {
		b = strconv.AppendInt(append(b, `,"completion_tokens_details":{"reasoning_tokens":`...), *u.Reasoning, 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// Receipt writes the member x_engy: who served, and what it cost.
func Receipt(b []byte, r llm.Receipt) []byte {
	b = wire.Quote(append(b, `"x_engy":{"request_id":`...), r.RequestID)
	b = append(b, `,"miner":null,"worker":`...)
	if r.Worker == "" {
		b = append(b, "null"...)
	} else {
		b = wire.Quote(b, r.Worker)
	}
	b = strconv.AppendInt(append(b, `,"charged_micro":`...), r.ChargedMicro, 10)
	return append(b, '}')
}

// stream writes the answer as server-sent events.
type stream struct {
	answer
	codec Codec
	// hidden leaves the thoughts out.
	hidden bool
	// head opens every chunk and is built once.
	head  []byte
	buf   []byte
	begun bool
	calls int
	// argued tells whether the newest call has arguments yet. White space waits in
	// blank: it may be all there is.
	argued bool
	blank  []byte
}

// add takes the next event in order.
func (s *stream) add(e llm.Event) error {
	b := s.buf[:0]
	switch e.Kind {
	case llm.Ping:
		b = sse.Comment(b, "keep-alive")
	case llm.Text:
		b = s.delta(b, "content", e)
	case llm.Reasoning:
		if !s.hidden {
			b = s.delta(b, "reasoning_content", e)
		}
	case llm.ToolCall:
		b = s.call(b, e)
	case llm.Done:
		b = s.done(b, e)
	case llm.Failed:
		err := error(fault.New(fault.Internal, "failure without a cause"))
		if e.Fault != nil {
			err = e.Fault.Err()
		}
		_, body := s.codec.Error(err, s.id)
		b = sse.Data(b, body)
	}
	s.buf = b
	if len(b) == 0 {
		return nil
	}
	_, err := s.w.Write(b)
	return err
}

// open begins a chunk up to its delta. The first one names the role.
func (s *stream) open(b []byte) []byte {
	b = append(b, "data: "...)
	b = append(b, s.head...)
	b = append(b, `"choices":[{"index":0,"delta":{`...)
	if !s.begun {
		s.begun = true
		b = append(b, `"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`...)
		b = append(b, "\n\n"...)
		return s.open(b)
	}
	return b
}

func (s *stream) shut(b []byte, logprobs []byte) []byte {
	b = append(b, `},"logprobs":`...)
	if len(logprobs) > 0 && s.req.Logprobs {
		b = append(b, `{"content":`...)
		b = append(b, logprobs...)
		b = append(b, `,"refusal":null}`...)
	} else {
		b = append(b, "null"...)
	}
	return append(b, ",\"finish_reason\":null}]}\n\n"...)
}

func (s *stream) delta(b []byte, name string, e llm.Event) []byte {
	if e.Text == "" && len(e.Logprobs) == 0 {
		return b
	}
	b = s.open(b)
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	b = wire.Quote(b, e.Text)
	return s.shut(b, e.Logprobs)
}

func (s *stream) call(b []byte, e llm.Event) []byte {
	if e.Call == nil {
		return b
	}
	first := e.Call.Index >= s.calls
	if first {
		b = s.settle(b)
		s.calls, s.argued, s.blank = e.Call.Index+1, false, nil
	}
	text := e.Text
	switch {
	case s.argued:
	case wire.Blank(text):
		s.blank, text = append(s.blank, text...), ""
		if !first {
			return b
		}
	default:
		s.argued, text = true, string(s.blank)+text
	}
	b = s.open(b)
	b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(e.Call.Index), 10)
	if first {
		b = wire.Quote(append(b, `,"id":`...), e.Call.ID)
		b = wire.Quote(append(b, `,"type":"function","function":{"name":`...), e.Call.Name)
		b = append(b, ',')
	} else {
		b = append(b, `,"function":{`...)
	}
	b = wire.Quote(append(b, `"arguments":`...), text)
	return s.shut(append(b, `}}]`...), nil)
}

// settle gives a call that ended without arguments an empty object, which is
// what the whole answer shows.
func (s *stream) settle(b []byte) []byte {
	if s.calls == 0 || s.argued {
		return b
	}
	s.argued = true
	b = s.open(b)
	b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(s.calls-1), 10)
	return s.shut(append(b, `,"function":{"arguments":"{}"}}]`...), nil)
}

func (s *stream) receipt(b []byte, e llm.Event) []byte {
	if e.Receipt == nil {
		return b
	}
	return Receipt(append(b, ','), *e.Receipt)
}

func (s *stream) done(b []byte, e llm.Event) []byte {
	if e.Finish != llm.Length {
		b = s.settle(b)
	}
	b = s.open(b)
	b = append(b, `},"logprobs":null,"finish_reason":"`...)
	b = append(b, e.Finish...)
	b = append(b, `"}]`...)
	var u llm.Usage
	if e.Usage != nil {
		u = *e.Usage
	}
	// The counts stand once in a stream: clients add up those of all chunks.
	if s.req.IncludeUsage {
		b = s.receipt(b, e)
		b = append(b, "}\n\ndata: "...)
		b = append(append(b, s.head...), `"choices":[]`...)
	}
	b = s.receipt(usage(append(b, `,"usage":`...), u), e)
	b = append(b, "}\n\n"...)
	return append(b, "data: [DONE]\n\n"...)
}
