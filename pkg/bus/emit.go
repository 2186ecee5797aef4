package bus

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/engy-ai/engy/pkg/llm"
)

// outbox sends one worker's frames to one owner. With few streams a frame
// leaves at once; with many, those of one millisecond share a message, which is
// where most of the cost of a token is saved.
type outbox struct {
	b       *Bus
	subject string
	mu      sync.Mutex
	streams int
	pending []Frame
	bytes   int
	timer   *time.Timer
}

// Stream is the way of one attempt's frames to its owner. It is used by one
// goroutine at a time.
type Stream struct {
	box     *outbox
	key     string
	job     string
	attempt int
	seq     int
}

// Stream opens the way of an attempt's frames. Close must follow.
func (b *Bus) Stream(t Ticket, worker string, attempt int) (*Stream, error) {
	subj, err := subject(framesPrefix, t.Owner, worker)
	if err != nil {
		return nil, err
	}
	for {
		v, _ := b.outboxes.LoadOrStore(subj, &outbox{b: b, subject: subj})
		box := v.(*outbox)
		box.mu.Lock()
		if box.streams < 0 {
			// Closed between the look-up and the lock; take a new one.
			box.mu.Unlock()
			continue
		}
		box.streams++
		box.mu.Unlock()
		return &Stream{box: box, key: subj, job: t.Job, attempt: attempt}, nil
	}
}

// Close ends the stream; what is pending still leaves.
func (s *Stream) Close() {
	box := s.box
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.streams--; box.streams == 0 {
		if err := box.flush(); err != nil {
			box.b.log.Warn("frames not sent", "error", err)
		}
		box.streams = -1
		box.b.outboxes.Delete(s.key)
	}
}

func (s *Stream) frame(events []llm.Event, end *End) Frame {
	s.seq++
	return Frame{Job: s.job, Attempt: s.attempt, Seq: s.seq, Events: events, End: end}
}

// Emit sends events on their way. They are encoded before Emit returns or kept
// until their message leaves, so the slice must not be used again.
func (s *Stream) Emit(events []llm.Event) error {
	for _, part := range split(events) {
		if err := s.box.add(s.frame(part, nil)); err != nil {
			return fmt.Errorf("emit %s: %w", s.job, err)
		}
	}
	return nil
}

// split cuts events into frames that each fit a message well.
func split(events []llm.Event) [][]llm.Event {
	var parts [][]llm.Event
	from, size := 0, 0
	for i := range events {
		n := eventBytes(events[i])
		if size+n > FrameBytesMax && i > from {
			parts = append(parts, events[from:i])
			from, size = i, 0
		}
		size += n
	}
	return append(parts, events[from:])
}

// eventBytes guesses the size of an event on the wire.
func eventBytes(e llm.Event) int { return 64 + len(e.Text) + len(e.Logprobs) }

func (o *outbox) add(f Frame) error {
	size := 96
	for _, e := range f.Events {
		size += eventBytes(e)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes+size > FrameBytesMax && len(o.pending) > 0 {
		if err := o.flush(); err != nil {
			return err
		}
	}
	o.pending = append(o.pending, f)
	o.bytes += size
	if o.streams < joinStreams {
		return o.flush()
	}
	if len(o.pending) == 1 {
		if o.timer == nil {
			o.timer = time.AfterFunc(JoinWindow, o.ring)
		} else {
			o.timer.Reset(JoinWindow)
		}
	}
	return nil
}

// writeFrames writes a message of about size bytes.
func writeFrames(frames []Frame, size int) ([]byte, error) {
	if raw, ok := appendFrames(make([]byte, 0, size), frames); ok {
		return raw, nil
	}
	return Marshal(Frames{Frames: frames})
}

func (o *outbox) ring() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.flush(); err != nil {
		o.b.log.Warn("frames not sent", "error", err)
	}
}

// flush sends what is pending. The lock is held, so that the frames of a stream
// leave in their order.
func (o *outbox) flush() error {
	if len(o.pending) == 0 {
		return nil
	}
	if o.timer != nil {
		o.timer.Stop()
	}
	raw, err := writeFrames(o.pending, o.bytes+64)
	clear(o.pending)
	o.pending, o.bytes = o.pending[:0], 0
	if err != nil {
		return err
	}
	if err := o.b.nc.Publish(o.subject, raw); err != nil {
		return translate(err)
	}
	return nil
}

// Finish sends the last events and the end, and waits, as long as ctx lives,
// until the owner has booked the job or says that it does not want it. An error
// of which Vanished is true means that the owner died; after any error only the
// worker knows the job's end.
func (s *Stream) Finish(ctx context.Context, events []llm.Event, end End) (wanted bool, err error) {
	parts := split(events)
	for _, part := range parts[:len(parts)-1] {
		if err = s.box.add(s.frame(part, nil)); err != nil {
			return false, fmt.Errorf("finish %s: %w", s.job, err)
		}
	}
	s.box.mu.Lock()
	err = s.box.flush()
	s.box.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("finish %s: %w", s.job, err)
	}
	raw, err := writeFrames([]Frame{s.frame(parts[len(parts)-1], &end)}, quickBytes)
	if err != nil {
		return false, err
	}
	for try := 1; ; try++ {
		wanted, err := s.box.b.receipts.ask(ctx, s.box.subject, raw)
		switch {
		case err == nil:
			return wanted, nil
		case Vanished(err) && (try < finishTries || s.box.b.Fresh()) && rest(ctx, finishPause):
			// An owner that has just reconnected, or has yet to, hears it a little later.
			continue
		}
		return false, fmt.Errorf("finish %s: %w", s.job, translate(err))
	}
}

// gone is the owner's word on the end of an attempt that it does not want.
const gone = "gone"

func (b *Bus) frames(m *nats.Msg, o Owner) {
	var fs Frames
	var ok bool
	if fs.Frames, ok = readFrames(m.Data); !ok {
		if err := Unmarshal(m.Data, &fs); err != nil {
			b.garbled("frames", err)
			return
		}
	}
	worker := sender(m.Subject)
	for _, f := range fs.Frames {
		// A worker may name any subject for the answer; it is served at its inbox.
		if !strings.HasPrefix(m.Reply, nats.InboxPrefix) {
			o.Take(worker, f, nil)
			continue
		}
		if o.Take(worker, f, func() { b.bookings.add(m.Reply) }) {
			continue
		}
		if err := m.Respond([]byte(gone)); err != nil {
			b.log.Warn("answer not sent", "error", err)
		}
	}
}

// StillWanted asks an owner about the attempts that the worker runs for it, and
// gives those that nobody wants. An error of which Vanished is true means that
// the owner died.
func (b *Bus) StillWanted(ctx context.Context, owner, worker string, running []Running) ([]Running, error) {
	subj, err := subject(alivePrefix, owner, worker)
	if err != nil {
		return nil, err
	}
	raw, err := Marshal(Alive{Jobs: running})
	if err != nil {
		return nil, err
	}
	msg, err := b.nc.RequestWithContext(ctx, subj, raw)
	if err != nil {
		return nil, fmt.Errorf("alive %s: %w", owner, translate(err))
	}
	var a AliveAnswer
	if err := Unmarshal(msg.Data, &a); err != nil {
		return nil, fmt.Errorf("alive %s: %w", owner, err)
	}
	return a.Gone, nil
}

// Lives asks whether an owner lives, for who settles the jobs of dead ones. An error
// says that this is not known: it did not answer in time, or nobody did on a new
// connection.
func (b *Bus) Lives(ctx context.Context, owner string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, livesWait)
	defer cancel()
	_, err := b.StillWanted(ctx, owner, asker, nil)
	if Vanished(err) && !b.Fresh() {
		return false, nil
	}
	return err == nil, err
}

// asker stands where a worker's name would, and is none.
const asker = "-"

func (b *Bus) alive(m *nats.Msg, o Owner) {
	var a Alive
	if err := Unmarshal(m.Data, &a); err != nil {
		b.garbled("alive", err)
		return
	}
	raw, err := Marshal(AliveAnswer{Gone: o.Alive(sender(m.Subject), a.Jobs)})
	if err == nil {
		err = m.Respond(raw)
	}
	if err != nil {
		b.log.Warn("answer not sent", "error", err)
	}
}

// Cancel tells a worker to stop an attempt. It is a message and may be lost;
// the worker's next StillWanted tells it again.
func (b *Bus) Cancel(worker string, r Running) error {
	subj, err := subject(cancelPrefix, worker)
	if err != nil {
		return err
	}
	raw, err := Marshal(r)
	if err != nil {
		return err
	}
	if err := b.nc.Publish(subj, raw); err != nil {
		return fmt.Errorf("cancel %s: %w", r.Job, translate(err))
	}
	return nil
}

// Cancels hands what is to be stopped to stop, and answers the probes of owners
// with what running gives for them, until ctx ends. Ready is called once both
// are subscribed.
func (b *Bus) Cancels(ctx context.Context, worker string, stop func(Running), running func(owner string) []Running, ready func()) error {
	cancels, err := subject(cancelPrefix, worker)
	if err != nil {
		return err
	}
	probes, err := subject(probePrefix, worker)
	if err != nil {
		return err
	}
	subs := map[string]nats.MsgHandler{
		cancels: func(m *nats.Msg) {
			var r Running
			if Unmarshal(m.Data, &r) == nil {
				stop(r)
			}
		},
		probes: func(m *nats.Msg) {
			raw, err := Marshal(Alive{Jobs: running(string(m.Data))})
			if err == nil {
				err = m.Respond(raw)
			}
			if err != nil {
				b.log.Warn("probe not answered", "error", err)
			}
		},
	}
	if err := b.listen(ctx, subs, ready); err != nil {
		return fmt.Errorf("cancels of %s: %w", worker, err)
	}
	return nil
}

// listen handles messages until ctx ends. Ready is called once all is subscribed.
func (b *Bus) listen(ctx context.Context, subs map[string]nats.MsgHandler, ready func()) error {
	for subj, handle := range subs {
		sub, err := b.nc.Subscribe(subj, handle)
		if err != nil {
			return translate(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	if err := b.nc.FlushTimeout(askTimeout); err != nil {
		return translate(err)
	}
	ready()
	<-ctx.Done()
	return nil
}

// Probe asks a worker which attempts of an owner it runs, within the life of
// ctx. An error of which Vanished is true means that it is dead; a timeout, that
// it hangs.
func (b *Bus) Probe(ctx context.Context, owner, worker string) ([]Running, error) {
	subj, err := subject(probePrefix, worker)
	if err != nil {
		return nil, err
	}
	msg, err := b.nc.RequestWithContext(ctx, subj, []byte(owner))
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", worker, translate(err))
	}
	var a Alive
	if err := Unmarshal(msg.Data, &a); err != nil {
		return nil, fmt.Errorf("probe %s: %w", worker, err)
	}
	return a.Jobs, nil
}
