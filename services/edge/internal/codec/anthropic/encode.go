package anthropic

import (
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// idDigits is how much of the request id an answer's own id shows.
const idDigits = 24

// Encode gives the sink that writes a message. A whole one is the fold of the
// very stream that the other form shows, without its thoughts.
func (c Codec) Encode(w io.Writer, req *llm.Request, id string, _ int64) llm.Sink {
	a := answer{w: w, req: req, id: id, ids: callIDs{request: id}}
	if req.Stream {
		s := &stream{answer: a, codec: c}
		return llm.Ordered(s.add)
	}
	var fold llm.Fold
	return llm.Ordered(func(e llm.Event) error {
		if err := fold.Add(e); err != nil || !e.Last() {
			return err
		}
		r, err := fold.Response()
		if err != nil {
			return err
		}
		b, err := a.whole(r)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
}

type answer struct {
	w   io.Writer
	req *llm.Request
	id  string
	ids callIDs
}

// head writes the members that open a message, up to its content.
func (a *answer) head(b []byte) []byte {
	b = append(b, `{"id":"msg_`...)
	b = append(b, a.id[:min(idDigits, len(a.id))]...)
	b = append(b, `","type":"message","role":"assistant","model":`...)
	b = wire.Quote(b, a.req.Spelling)
	return append(b, `,"content":[`...)
}

// whole writes the answer as one body.
func (a *answer) whole(r *llm.Response) ([]byte, error) {
	b := a.head(nil)
	first := true
	for i := range r.Pieces {
		p := &r.Pieces[i]
		if p.Kind == llm.Reasoning || p.Kind == llm.Text && p.Text == "" {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		if p.Kind == llm.Text {
			b = append(wire.Quote(append(b, `{"type":"text","text":`...), p.Text), '}')
			continue
		}
		b = a.use(b, p.Call)
		b = append(input(append(b, `,"input":`...), p.Call.Arguments), '}')
	}
	why, err := reason(r.Finish, a.ids.n > 0)
	if err != nil {
		return nil, err
	}
	b = append(b, `],"stop_reason":"`...)
	b = append(b, why...)
	b = append(b, `","stop_sequence":null,"usage":`...)
	return append(usage(b, r.Usage), '}'), nil
}

// use opens a block of the next call, up to its input.
func (a *answer) use(b []byte, c llm.Call) []byte {
	b = wire.Quote(append(b, `{"type":"tool_use","id":`...), a.ids.outward(c.ID))
	return wire.Quote(append(b, `,"name":`...), c.Name)
}

// input writes the arguments of a call. What was cut is no JSON; it is shown as
// it is, in a string, so that nobody takes it for a whole call. A list or a number,
// which the tool did not ask for, is shown as it is too: a stream has shown its
// pieces when that is seen, and an object made of it would be arguments that the
// model never gave.
func input(b []byte, arguments string) []byte {
	arguments = strings.Trim(arguments, " \n\t\r")
	switch {
	case arguments == "":
		return append(b, "{}"...)
	case jsontext.Value(arguments).IsValid(jsontext.AllowDuplicateNames(true)):
		return append(b, arguments...)
	}
	return wire.Quote(b, arguments)
}

// reason says why a message ended. A reason that the dialect has no word for
// must not look like a good end.
func reason(f llm.Finish, calls bool) (string, error) {
	switch f {
	case llm.ToolCalls:
		if calls {
			return "tool_use", nil
		}
		return "end_turn", nil
	case llm.Stop:
		return "end_turn", nil
	case llm.Length:
		return "max_tokens", nil
	case llm.Filter:
		return "refusal", nil
	}
	return "", fault.New(fault.Engine, "the answer ended for an unknown reason")
}

// usage writes the counts. Tokens read from a cache are no input tokens here.
func usage(b []byte, u llm.Usage) []byte {
	cached := max(0, min(u.Cached, u.Prompt))
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), u.Prompt-cached, 10)
	b = append(b, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...)
	b = strconv.AppendInt(b, cached, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens":`...), u.Completion, 10)
	return append(b, '}')
}
