package api

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/engy-ai/engy/services/sim/internal/register"
	"github.com/engy-ai/engy/services/sim/internal/script"
)

// errEnded says that a directive has ended the answer and nothing follows.
var errEnded = errors.New("answer ended by a directive")

// badIndex is a chunk with indices that must not size anything.
const badIndex = `[{"index":-1,"delta":{"tool_calls":[{"index":99999999}]},"finish_reason":null}]`

// stream is an answer on its way out, event by event.
type stream struct {
	s    *Server
	j    *job
	w    *writer
	e    *events
	sent int // steps that left
	at   int // steps that every choice got, or has none left of
}

// gathers tells whether events may leave together: an engine that never waits
// between tokens fills packets. Where a test looks at what has left, none wait.
func (j *job) gathers() bool {
	set := &j.set
	return j.pacer.Instant() && !set.Split &&
		set.Cut == script.Unset && set.Malformed == script.Unset && set.Stall == script.Unset && set.Die == script.Unset
}

// stream sends the plan as events.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, j *job) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	st := &stream{s: s, j: j, w: newWriter(w, s.opt.WriteStallMax), e: newEvents(s, j)}
	st.w.gathers = j.gathers()
	err := st.w.write(nil)
	if err == nil {
		err = st.run(ctx)
	}
	switch {
	case err == nil:
	case errors.Is(err, errEnded):
		j.end(st.work(register.Finished))
		if j.set.Malformed == script.Unset {
			st.w.reset()
		}
	case errors.Is(err, register.ErrAborted):
		st.aborted()
	default:
		j.end(st.work(register.Aborted))
		// Without a proper end the client sees that the answer is not whole.
		st.w.reset()
	}
}

func (st *stream) run(ctx context.Context) error {
	if err := st.j.pacer.Token(ctx, 0); err != nil {
		return err
	}
	if st.j.chat {
		for c := range st.j.plans {
			if err := st.w.write(st.e.role(c)); err != nil {
				return err
			}
		}
	}
	if st.j.echo != "" {
		for c := range st.j.plans {
			if err := st.w.write(st.e.echo(c)); err != nil {
				return err
			}
		}
	}
	for i := range st.j.longest() {
		if err := st.j.pacer.Token(ctx, i); err != nil {
			return err
		}
		for c := range st.j.plans {
			if i < len(st.j.plans[c].Steps) {
				if err := st.token(ctx, c, i); err != nil {
					return err
				}
			}
		}
		st.at = i + 1
	}
	if err := st.fault(ctx, 0); err != nil {
		return err
	}
	return st.finish()
}

// token sends one step, after the fault that is due before it.
func (st *stream) token(ctx context.Context, choice, at int) error {
	if err := st.fault(ctx, choice); err != nil {
		return err
	}
	line := st.e.step(choice, at)
	var err error
	if st.j.set.Split {
		err = st.w.halves(line)
	} else {
		err = st.w.write(line)
	}
	if st.sent++; st.sent > 1 || err != nil {
		return err
	}
	for _, odd := range []struct {
		on      bool
		choices string
	}{
		{st.j.set.NullChoice, `[null]`},
		{st.j.set.BadIndex, badIndex},
		{st.j.set.ObjectContent, `[{"index":0,"delta":{"content":{"text":"not a string"}},"finish_reason":null}]`},
	} {
		if odd.on && err == nil {
			err = st.w.write(st.e.odd(odd.choices))
		}
	}
	return err
}

// fault does what a directive wants to happen after the steps sent so far.
func (st *stream) fault(ctx context.Context, choice int) error {
	set := &st.j.set
	switch st.sent {
	case set.Cut:
		line := st.e.odd(`[{"index":0,"delta":{"content":"never whole"}}]`)
		return errors.Join(errEnded, st.w.write(line[:len(line)*2/3]))
	case set.Malformed:
		line := st.e.odd(`[{"index":0,"delta":{"content":"bro`)
		return errors.Join(errEnded, st.w.write(append(bytes.TrimSuffix(line, []byte("}\n\n")), "\n\n"...)))
	case set.Stall:
		return st.s.forever(ctx)
	case set.Die:
		st.s.opt.Die()
		return errEnded
	}
	return nil
}

// finish sends the end of every choice, the counts and the end mark.
func (st *stream) finish() error {
	set, options := &st.j.set, st.j.common.StreamOptions
	var tail []byte
	for c := range st.j.plans {
		if !set.NoFinish {
			tail = append(tail, st.e.finish(c, st.j.plans[c].Finish, "")...)
		}
	}
	return st.end(tail, options.IncludeUsage && !set.Usage.None, register.Finished)
}

// aborted ends a stream whose abort was asked for: an ordinary end, as SGLang
// has it, with a reason of its own.
func (st *stream) aborted() {
	var tail []byte
	for c := range st.j.plans {
		text := ""
		if st.j.set.AbortText {
			p := &st.j.plans[c]
			text = p.Join(script.Text, 0, min(st.at, len(p.Steps)))
		}
		tail = append(tail, st.e.finish(c, "abort", text)...)
	}
	usage := st.j.common.StreamOptions.IncludeUsage && !st.j.set.Usage.None
	if err := st.end(tail, usage, register.Aborted); err != nil {
		st.s.opt.Log.Debug("client left before the end of an aborted answer", "id", st.j.id)
	}
}

// end gives the slot back and then sends the last bytes in one write.
func (st *stream) end(tail []byte, usage bool, outcome register.Outcome) error {
	if st.j.set.NullChoices {
		tail = append(tail, st.e.usage("null")...)
	}
	if usage {
		tail = append(tail, st.e.usage("[]")...)
	}
	if !st.j.set.NoDone {
		tail = append(tail, "data: [DONE]\n\n"...)
	}
	st.j.end(st.work(outcome))
	st.w.gathers = false
	return st.w.write(tail)
}

func (st *stream) work(outcome register.Outcome) register.Work {
	w := st.j.work(outcome, 0)
	w.Completion = st.e.made
	return w
}

// writer sends bytes at once and does not wait for ever on a reader that
// stopped reading.
type writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	until time.Time
	// gathers leaves it to full buffers to send.
	gathers bool
}

func newWriter(w http.ResponseWriter, stall time.Duration) *writer {
	return &writer{w: w, rc: http.NewResponseController(w), stall: stall}
}

// write sends b, or the headers alone when b is empty.
func (w *writer) write(b []byte) error {
	// The deadline is moved only when half of it is gone, since moving it for
	// every token would cost more than writing one.
	if now := time.Now(); w.until.Sub(now) < w.stall/2 {
		w.until = now.Add(w.stall)
		if err := w.rc.SetWriteDeadline(w.until); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
	}
	if w.gathers {
		return nil
	}
	return w.rc.Flush()
}

// halves sends b in two writes that part a character of several bytes.
func (w *writer) halves(b []byte) error {
	at := bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
	if at < 0 {
		return w.write(b)
	}
	if err := w.write(b[:at+1]); err != nil {
		return err
	}
	return w.write(b[at+1:])
}

// reset breaks the connection the way a process that dies does.
func (w *writer) reset() {
	conn, _, err := w.rc.Hijack()
	if err != nil {
		// The server has given the connection up already.
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Without lingering, close sends a reset instead of an orderly end.
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
