package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/engy-ai/engy/pkg/fault"
)

// holds groups what one service asks of billing: a message leaves at once while
// fewer than holdsFlying are unanswered, and what is asked meanwhile shares the
// next one. A message is holds, a line each, and its answer as many lines in the
// same order.
type holds struct {
	b       *Bus
	mu      sync.Mutex
	waiting []asking
	flying  int

	answered atomic.Int64 // when billing was last heard, in Unix nanoseconds
}

type asking struct {
	hold  Hold
	since time.Time
	done  func(HoldAnswer, error)
}

// AskHold asks billing for a hold and does not wait: done is called once, on
// another goroutine, and must not block. An error means that nobody answered in
// time, at most twice HoldWait: the hold may or may not stand, so the job must
// still be settled. Only when Vanished is true of it nobody has ever got the question.
func (b *Bus) AskHold(h Hold, done func(HoldAnswer, error)) {
	b.holds.mu.Lock()
	b.holds.waiting = append(b.holds.waiting, asking{h, time.Now(), done})
	b.holds.fly()
	b.holds.mu.Unlock()
}

// Hold asks billing for a hold and waits while ctx lives; see AskHold.
func (b *Bus) Hold(ctx context.Context, h Hold) (HoldAnswer, error) {
	type result struct {
		a   HoldAnswer
		err error
	}
	answered := make(chan result, 1)
	b.AskHold(h, func(a HoldAnswer, err error) { answered <- result{a, err} })
	select {
	case r := <-answered:
		return r.a, r.err
	case <-ctx.Done():
		return HoldAnswer{}, fmt.Errorf("hold %s: %w", h.Job, translate(ctx.Err()))
	}
}

// fly sends the next group when one may leave. The lock is held.
func (s *holds) fly() {
	if s.flying >= holdsFlying || len(s.waiting) == 0 {
		return
	}
	n := min(len(s.waiting), HoldGroupMax)
	group := s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	s.flying++
	go s.ask(group)
}

func (s *holds) ask(group []asking) {
	answers, err := s.b.askHolds(group)
	s.mu.Lock()
	s.flying--
	if err != nil {
		// Who has waited as long as a message may take waits no longer.
		for len(s.waiting) > 0 && time.Since(s.waiting[0].since) >= HoldWait {
			group = append(group, s.waiting[0])
			s.waiting = s.waiting[1:]
		}
	}
	s.fly()
	s.mu.Unlock()
	for i, g := range group {
		if err != nil {
			g.done(HoldAnswer{}, fmt.Errorf("hold %s: %w", g.hold.Job, err))
			continue
		}
		g.done(answers[i], nil)
	}
}

func (b *Bus) askHolds(group []asking) ([]HoldAnswer, error) {
	raw := make([]byte, 0, len(group)*quickBytes)
	for i, g := range group {
		if i > 0 {
			raw = append(raw, '\n')
		}
		line, err := Marshal(g.hold)
		if err != nil {
			return nil, err
		}
		raw = append(raw, line...)
	}
	msg, err := b.holds.answer(raw)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(msg.Data, []byte("\n"))
	if len(lines) != len(group) {
		return nil, fault.New(fault.Unavailable, "billing answered something else")
	}
	answers := make([]HoldAnswer, len(group))
	for i, line := range lines {
		if err := Unmarshal(line, &answers[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// answer sends a message of holds and waits for its answer. It may be lost with its
// connection or with the billing that has taken it, and one that was there a moment
// ago may be back in another. So it is sent again, which changes nothing when it did
// arrive.
func (s *holds) answer(raw []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(s.b.life, HoldWait)
	defer cancel()
	begun := time.Now()
	asked := false // of somebody who may have heard it
	for {
		msg, err := s.b.billings.ask(ctx, holdsPrefix, raw)
		asked = asked || !Vanished(err)
		switch {
		case err == nil:
			s.heard()
			return msg, nil
		case Vanished(err):
			if (s.b.Fresh() || s.lately() || s.early()) && time.Since(begun) < HoldWait-holdLast && rest(ctx, holdPause) {
				continue
			}
			if asked {
				err = context.DeadlineExceeded
			}
			return nil, translate(err)
		case ctx.Err() != nil, !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
			return nil, translate(err)
		}
	}
}

// heard notes a sign of life of billing, and lately tells of one. It is early while
// services that were started together may not have found each other.
func (s *holds) heard()       { s.answered.Store(time.Now().UnixNano()) }
func (s *holds) lately() bool { return time.Since(time.Unix(0, s.answered.Load())) < freshFor }
func (s *holds) early() bool  { return time.Since(s.b.born) < freshFor }

// HoldAsk is a hold that somebody waits for.
type HoldAsk struct {
	Hold  Hold
	place int
	group *heldGroup
}

// heldGroup is one message of holds. It is answered when all of them are.
type heldGroup struct {
	msg   *nats.Msg
	lines [][]byte
	left  atomic.Int64
}

// Answer gives billing's word to the one who asked.
func (h HoldAsk) Answer(a HoldAnswer) error {
	raw, err := Marshal(a)
	if err != nil {
		return err
	}
	h.group.lines[h.place] = raw
	if h.group.left.Add(-1) > 0 {
		return nil
	}
	if err := h.group.msg.Respond(bytes.Join(h.group.lines, []byte("\n"))); err != nil {
		return fmt.Errorf("hold %s: %w", h.Hold.Job, translate(err))
	}
	return nil
}

// ServeHolds hands holds to take until ctx ends; those of one message go to one
// of the billing services that serve. Take must not block, and every hold must be
// answered.
func (b *Bus) ServeHolds(ctx context.Context, take func(HoldAsk)) error {
	return b.billings.serve(ctx, holdsPrefix, func(m *nats.Msg) {
		lines := bytes.Split(m.Data, []byte("\n"))
		if len(lines) > HoldGroupMax {
			b.garbled("holds", nil)
			return
		}
		group := &heldGroup{msg: m, lines: make([][]byte, len(lines))}
		group.left.Store(int64(len(lines)))
		for i, line := range lines {
			ask := HoldAsk{place: i, group: group}
			if err := Unmarshal(line, &ask.Hold); err != nil {
				b.garbled("hold", err)
				err = ask.Answer(HoldAnswer{Code: fault.Invalid, Message: "the hold cannot be read"})
				if err != nil {
					b.log.Warn("hold not answered", "error", err)
				}
				continue
			}
			take(ask)
		}
	})
}
