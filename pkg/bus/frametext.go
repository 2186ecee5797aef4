package bus

import (
	"strings"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// Frames are the one message whose cost is paid for every token. Their usual
// form, events of text only and an end, is written and read here by hand, as
// quick.go tells.

// appendFrames writes frames; ok is false when they hold something unusual.
func appendFrames(b []byte, frames []Frame) (_ []byte, ok bool) {
	m := members{append(b, `{"frames":[`...), true}
	for i := range frames {
		f := &frames[i]
		if len(f.Events) == 0 || !hexText(f.Job) {
			return nil, false
		}
		if i > 0 {
			m.b = append(m.b, ',')
		}
		m.b = append(append(m.b, `{"job":"`...), f.Job...)
		m.number(`","attempt":`, int64(f.Attempt))
		m.number(`,"seq":`, int64(f.Seq))
		m.b = append(m.b, `,"events":[`...)
		for k := range f.Events {
			if k > 0 {
				m.b = append(m.b, ',')
			}
			m.event(&f.Events[k])
		}
		m.b = append(m.b, ']')
		if f.End != nil {
			m.text(`,"end":{"outcome":`, string(f.End.Outcome))
			m.tokens(`,"usage":`, f.End.Usage)
			m.b = append(m.b, '}')
		}
		m.b = append(m.b, '}')
		if !m.ok {
			return nil, false
		}
	}
	return append(m.b, `]}`...), true
}

func (m *members) event(e *llm.Event) {
	plain := e.Call == nil && len(e.Logprobs) == 0 && e.Fault == nil
	switch {
	case plain && (e.Kind == llm.Text || e.Kind == llm.Reasoning) && e.Text != "" && e.Finish == "" && e.Usage == nil:
		m.b = append(append(append(m.b, `{"k":"`...), e.Kind...), '"')
		m.text(`,"t":`, e.Text)
	case plain && e.Kind == llm.Done && e.Text == "" && e.Finish != "" && e.Usage != nil:
		m.text(`{"k":"done","f":`, string(e.Finish))
		m.tokens(`,"u":`, *e.Usage)
	default:
		m.ok = false
		return
	}
	m.b = append(m.b, '}')
}

func hexText(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// readFrames reads what appendFrames writes; ok is false for any other form,
// which may still be right.
// All texts of a message share one copy of its bytes, and all events one array.
func readFrames(raw []byte) (frames []Frame, ok bool) {
	r := reader{rest: string(raw)}
	r.want(`{"frames":[`)
	events := make([]llm.Event, 0, strings.Count(r.rest, `{"k":`))
	frames = make([]Frame, 0, strings.Count(r.rest, `{"job":`))
	for {
		f := Frame{Job: r.hex(`{"job":"`), Attempt: r.small(`","attempt":`), Seq: r.small(`,"seq":`)}
		r.want(`,"events":[`)
		from := len(events)
		for {
			events = append(events, r.event())
			if r.bad {
				return nil, false
			}
			if !r.word(`,`) {
				break
			}
		}
		f.Events = events[from:len(events):len(events)]
		r.want(`]`)
		if r.word(`,"end":{"outcome":`) {
			f.End = &End{Outcome: pricing.Outcome(r.text("")), Usage: r.tokens(`,"usage":`)}
			r.want(`}`)
		}
		r.want(`}`)
		if r.bad {
			return nil, false
		}
		frames = append(frames, f)
		if !r.word(`,`) {
			return frames, r.end(`]}`)
		}
	}
}

// hex takes hexadecimal digits up to a quote.
func (r *reader) hex(name string) string {
	r.want(name)
	end := max(0, strings.IndexByte(r.rest, '"'))
	text := r.rest[:end]
	r.rest = r.rest[end:]
	r.bad = r.bad || !hexText(text)
	return text
}

func (r *reader) event() (e llm.Event) {
	switch {
	case r.word(`{"k":"text","t":`):
		e.Kind = llm.Text
	case r.word(`{"k":"reasoning","t":`):
		e.Kind = llm.Reasoning
	case r.word(`{"k":"done","f":`):
		e.Kind, e.Finish = llm.Done, llm.Finish(r.text(""))
		u := r.tokens(`,"u":`)
		e.Usage = &u
		r.want(`}`)
		r.bad = r.bad || e.Finish == ""
		return e
	default:
		r.bad = true
		return e
	}
	e.Text = r.text("")
	r.want(`}`)
	r.bad = r.bad || e.Text == ""
	return e
}

// plainText tells whether a JSON text stands for itself: ASCII without escapes.
func plainText(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x80 || c == '\\' {
			return false
		}
	}
	return true
}
