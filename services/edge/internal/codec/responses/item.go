package responses

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

const (
	message   = "message"
	reasoning = "reasoning"

	completed  = "completed"
	incomplete = "incomplete"
	inProgress = "in_progress"
)

// answer is what both forms of an answer know.
type answer struct {
	w       io.Writer
	req     *llm.Request
	note    *note
	id      string
	created int64
	finish  llm.Finish
}

// idDigits is how much of the request id an answer's own ids show.
const idDigits = 24

// made is an item as the caller sees it.
type made struct {
	tool
	place  int
	piece  llm.Piece
	status string
}

// make turns a piece into an item. Place is the item's among all, last tells that
// the answer ends with it.
func (a *answer) make(p llm.Piece, place int, last bool) made {
	m := made{place: place, piece: p, status: a.status(p, last)}
	switch p.Kind {
	case llm.Text:
		m.item = message
	case llm.Reasoning:
		m.item = reasoning
	default:
		m.tool = a.toolOf(p.Call.Name)
		if b, ok := builtinOf(m.item); ok {
			if _, ok := b.call(p.Call.Arguments); !ok {
				m.tool = tool{item: functionCall, name: m.name}
			}
		}
	}
	return m
}

// toolOf finds a tool by the model's name for it. One that nobody declared is
// called as it is.
func (a *answer) toolOf(name string) tool {
	if t, ok := a.note.tools[name]; ok {
		return t
	}
	return tool{item: functionCall, name: name}
}

// status tells whether an item is whole. The limit cuts what comes last, and calls
// that stop in the middle.
func (a *answer) status(p llm.Piece, last bool) string {
	if a.finish != llm.Length && a.finish != llm.Filter {
		return completed
	}
	cut := last
	if p.Kind == llm.ToolCall {
		var args llm.Arguments
		args.Take(p.Call.Arguments)
		cut = args.Open() || last && !args.Whole()
	}
	if cut {
		return incomplete
	}
	return completed
}

// arguments of a call without any are an empty object, unless the limit struck
// before they came.
func (m *made) arguments() string {
	if wire.Blank(m.piece.Call.Arguments) && m.status != incomplete {
		return "{}"
	}
	return m.piece.Call.Arguments
}

// appendID writes an id that follows from the request's and from the item's place.
func (a *answer) appendID(b []byte, item string, place int) []byte {
	prefix := "fc_"
	switch item {
	case message:
		prefix = "msg_"
	case reasoning:
		prefix = "rs_"
	case customCall:
		prefix = "ctc_"
	case "local_shell_call":
		prefix = "lsh_"
	case "shell_call":
		prefix = "sh_"
	case "apply_patch_call":
		prefix = "apc_"
	}
	b = append(append(b, '"'), prefix...)
	b = append(append(b, a.id[:min(idDigits, len(a.id))]...), '_')
	return append(strconv.AppendInt(b, int64(place), 10), '"')
}

// appendItem writes an item; one that is in progress has nothing in it yet.
func (a *answer) appendItem(b []byte, m *made) []byte {
	b = a.appendID(append(b, `{"id":`...), m.item, m.place)
	b = wire.Quote(append(b, `,"type":`...), m.item)
	b = wire.Quote(append(b, `,"status":`...), m.status)
	begun := m.status == inProgress
	switch m.item {
	case message:
		b = append(b, `,"role":"assistant","content":[`...)
		if !begun {
			b = a.appendPart(b, &m.piece)
		}
		return append(b, "]}"...)
	case reasoning:
		b = append(b, `,"summary":[`...)
		if !begun {
			b = appendSummary(b, m.piece.Text)
		}
		b = append(b, ']')
		if a.note.thoughts && !begun {
			b = wire.Quote(append(b, `,"encrypted_content":`...), seal(m.piece.Text))
		}
		return append(b, '}')
	}
	b = append(b, `,"call_id":`...)
	if m.piece.Call.ID != "" {
		b = wire.Quote(b, m.piece.Call.ID)
	} else {
		b = a.appendID(b, m.item, m.place) // outputs must find their call
	}
	switch builtin, ok := builtinOf(m.item); {
	case ok:
		return appendBuiltin(b, builtin, m)
	case m.item == customCall:
		b = append(b, `,"input":`...)
		b = wire.Quote(b, customText(m.piece.Call.Arguments))
	case begun:
		b = append(b, `,"arguments":""`...)
	default:
		b = wire.Quote(append(b, `,"arguments":`...), m.arguments())
	}
	b = wire.Quote(append(b, `,"name":`...), m.name)
	if m.namespace != "" {
		b = wire.Quote(append(b, `,"namespace":`...), m.namespace)
	}
	return append(b, '}')
}

func appendBuiltin(b []byte, t builtin, m *made) []byte {
	call, _ := t.call(m.piece.Call.Arguments)
	b = append(wire.Quote(append(b, ','), t.member), ':')
	b = append(b, call...)
	if t.kind == "shell" {
		b = append(b, `,"environment":{"type":"local"}`...)
	}
	return append(b, '}')
}

func (a *answer) appendPart(b []byte, p *llm.Piece) []byte {
	b = wire.Quote(append(b, `{"type":"output_text","text":`...), p.Text)
	b = a.appendLogprobs(append(b, `,"annotations":[],"logprobs":`...), p.Logprobs...)
	return append(b, '}')
}

func appendSummary(b []byte, text string) []byte {
	return append(wire.Quote(append(b, `{"type":"summary_text","text":`...), text), '}')
}

// appendLogprobs joins arrays of entries, as the engine gave them. There are none
// unless they were asked for.
func (a *answer) appendLogprobs(b []byte, arrays ...json.RawMessage) []byte {
	b = append(b, '[')
	empty := len(b)
	for _, raw := range arrays {
		if !a.req.Logprobs || len(raw) <= len("[]") {
			continue
		}
		if len(b) > empty {
			b = append(b, ',')
		}
		b = append(b, raw[1:len(raw)-1]...)
	}
	return append(b, ']')
}
