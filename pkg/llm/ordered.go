package llm

import "strings"

// Ordered gives a sink for protocols whose answers are a list of blocks, of which
// one is open at a time. It passes events on to next such that the pieces of one
// tool call follow each other, and leaves out white space that stands alone
// between thoughts and calls. A call whose arguments are not whole holds back
// what comes for others until they are, or until the answer ends; nothing is
// lost, and nothing is held back by engines that make one call after another.
func Ordered(next Sink) Sink {
	o := &ordered{next: next, open: -1}
	return o.add
}

type ordered struct {
	next Sink
	// blank is white space that may yet prove to begin a text.
	blank []Event
	// text tells that a text is open, and said that anything has been passed on.
	text, said bool
	// calls counts those that have begun. open is the one whose arguments are not whole, -1 for none.
	calls, open int
	args        Arguments
	// later waits for the open call to end.
	later []Event
}

func (o *ordered) add(e Event) error {
	switch {
	case e.Kind == Ping:
		return o.next(e)
	case e.Last():
		return o.end(e)
	case o.foreign(e):
		o.later = append(o.later, e)
		return nil
	}
	if err := o.pass(e); err != nil || o.open >= 0 {
		return err
	}
	return o.catchUp()
}

// foreign tells whether an event would come between the pieces of the open call.
func (o *ordered) foreign(e Event) bool {
	return o.open >= 0 && (e.Kind != ToolCall || e.Call != nil && e.Call.Index != o.open)
}

// catchUp passes on what waited, up to the next call that is not whole.
func (o *ordered) catchUp() error {
	for o.open < 0 && len(o.later) > 0 {
		waiting := o.later
		o.later = nil
		for i, e := range waiting {
			if o.foreign(e) {
				o.later = append(o.later, e)
				continue
			}
			if err := o.pass(e); err != nil {
				return err
			}
			if o.open < 0 && len(o.later) > 0 {
				o.later = append(o.later, waiting[i+1:]...)
				break
			}
		}
	}
	return nil
}

func (o *ordered) pass(e Event) error {
	switch e.Kind {
	case Text:
		if !o.text && strings.TrimSpace(e.Text) == "" {
			o.blank = append(o.blank, e)
			return nil
		}
		for _, b := range o.blank {
			if err := o.next(b); err != nil {
				return err
			}
		}
		o.blank, o.text = nil, true
	case ToolCall:
		if e.Call == nil || e.Call.Index < o.calls && e.Call.Index != o.open {
			return nil // nothing can follow a call that is whole
		}
		o.blank, o.text = nil, false
		if e.Call.Index != o.open {
			o.open, o.calls, o.args = e.Call.Index, e.Call.Index+1, Arguments{}
		}
		if o.args.Take(e.Text); o.args.Whole() {
			o.open = -1
		}
	case Reasoning:
		o.blank, o.text = nil, false
	case Ping, Done, Failed:
	}
	o.said = true
	return o.next(e)
}

// end passes on all that waited. White space that is the whole answer is one.
func (o *ordered) end(e Event) error {
	for len(o.later) > 0 {
		o.open = -1
		if err := o.catchUp(); err != nil {
			return err
		}
	}
	if !o.said {
		for _, b := range o.blank {
			if err := o.next(b); err != nil {
				return err
			}
		}
	}
	return o.next(e)
}

// Arguments watches the brackets of a tool call's arguments, JSON text that
// comes in pieces.
type Arguments struct {
	depth           int
	quoted, escaped bool
	whole           bool
}

// Take looks at the next piece.
func (a *Arguments) Take(text string) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case a.escaped:
			a.escaped = false
		case a.quoted:
			a.escaped, a.quoted = c == '\\', c != '"'
		case c == '"':
			a.quoted = true
		case c == '{' || c == '[':
			a.depth++
		case c == '}' || c == ']':
			if a.depth--; a.depth <= 0 {
				a.whole = true
			}
		}
	}
}

// Whole tells whether all brackets are closed: nothing can follow.
func (a *Arguments) Whole() bool { return a.whole }

// Open tells whether the arguments stop in the middle.
func (a *Arguments) Open() bool { return !a.whole && (a.depth > 0 || a.quoted) }
