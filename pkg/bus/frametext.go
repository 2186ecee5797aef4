package bus

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/llm"
)

// Frames are the one message whose cost is paid for every token. Their usual
// form, events of text only, is written and read here by hand; anything else in
// them takes the general way. Both ways give and take the same JSON, which a
// test and a fuzz target hold them to.

// appendFrames writes frames; ok is false when they hold something unusual.
func appendFrames(b []byte, frames []Frame) (_ []byte, ok bool) {
	b = append(b, `{"frames":[`...)
	for i := range frames {
		f := &frames[i]
		if f.End != nil || len(f.Events) == 0 || !hexText(f.Job) {
			return nil, false
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"job":"`...), f.Job...)
		b = strconv.AppendInt(append(b, `","attempt":`...), int64(f.Attempt), 10)
		b = strconv.AppendInt(append(b, `,"seq":`...), int64(f.Seq), 10)
		b = append(b, `,"events":[`...)
		for k := range f.Events {
			e := &f.Events[k]
			if e.Kind != llm.Text && e.Kind != llm.Reasoning || !onlyText(e) {
				return nil, false
			}
			if k > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, `{"k":"`...), e.Kind...), `","t":`...)
			var err error
			if b, err = jsontext.AppendQuote(b, e.Text); err != nil {
				return nil, false
			}
			b = append(b, '}')
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...), true
}

func onlyText(e *llm.Event) bool {
	return e.Text != "" && e.Call == nil && len(e.Logprobs) == 0 && e.Finish == "" && e.Usage == nil && e.Fault == nil
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
	r := frameReader{rest: string(raw)}
	if !r.word(`{"frames":[`) {
		return nil, false
	}
	r.events = make([]llm.Event, 0, strings.Count(r.rest, `{"k":`))
	frames = make([]Frame, 0, strings.Count(r.rest, `{"job":`))
	for {
		f, ok := r.frame()
		if !ok {
			return nil, false
		}
		frames = append(frames, f)
		if r.word(`,`) {
			continue
		}
		return frames, r.word(`]}`) && len(r.rest) == 0
	}
}

type frameReader struct {
	rest   string
	events []llm.Event
}

// word takes an exact text.
func (r *frameReader) word(w string) bool {
	rest, ok := strings.CutPrefix(r.rest, w)
	r.rest = rest
	return ok
}

func (r *frameReader) frame() (f Frame, ok bool) {
	if !r.word(`{"job":"`) {
		return f, false
	}
	end := strings.IndexByte(r.rest, '"')
	if end < 0 {
		return f, false
	}
	f.Job = r.rest[:end]
	if r.rest = r.rest[end:]; !hexText(f.Job) || !r.word(`","attempt":`) {
		return f, false
	}
	if f.Attempt, ok = r.number(); !ok || !r.word(`,"seq":`) {
		return f, false
	}
	if f.Seq, ok = r.number(); !ok || !r.word(`,"events":[`) {
		return f, false
	}
	from := len(r.events)
	for {
		e, ok := r.event()
		if !ok {
			return f, false
		}
		r.events = append(r.events, e)
		if r.word(`,`) {
			continue
		}
		f.Events = r.events[from:len(r.events):len(r.events)]
		return f, r.word(`]}`)
	}
}

// number takes a number of at most nine digits without leading zeros.
func (r *frameReader) number() (n int, ok bool) {
	i := 0
	for i < len(r.rest) && i < 9 && r.rest[i] >= '0' && r.rest[i] <= '9' {
		n = n*10 + int(r.rest[i]-'0')
		i++
	}
	ok = i > 0 && (i == 1 || r.rest[0] != '0')
	r.rest = r.rest[i:]
	return n, ok
}

func (r *frameReader) event() (e llm.Event, ok bool) {
	switch {
	case r.word(`{"k":"text","t":"`):
		e.Kind = llm.Text
	case r.word(`{"k":"reasoning","t":"`):
		e.Kind = llm.Reasoning
	default:
		return e, false
	}
	end := 0
	for end < len(r.rest) && r.rest[end] != '"' {
		if r.rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(r.rest) {
		return e, false
	}
	if text := r.rest[:end]; plainText(text) {
		e.Text = text
	} else {
		out, err := jsontext.AppendUnquote(nil, `"`+text+`"`)
		if err != nil {
			return e, false
		}
		e.Text = string(out)
	}
	r.rest = r.rest[end:]
	return e, e.Text != "" && r.word(`"}`)
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
