// Package pace makes an answer take its time.
//
// What lives here: one absolute schedule per answer and the wait for its next
// moment. What does not: what happens at that moment. The invariant: token i is
// due at start + first + i×step however late the tokens before it were, so the
// pace of a long answer does not drift. To shape time in another way (by load,
// by prompt length), change due.
package pace

import (
	"context"
	"time"
)

// Pacer is the schedule of one answer. It belongs to one goroutine.
type Pacer struct {
	start       time.Time
	first, step time.Duration
	timer       *time.Timer
}

// New starts a schedule now: the first token after first, then one per step.
func New(first, step time.Duration) *Pacer {
	return &Pacer{start: time.Now(), first: first, step: step}
}

// Instant tells whether no token after the first is waited for.
func (p *Pacer) Instant() bool { return p.step <= 0 }

// Restart puts the start of the schedule to now.
func (p *Pacer) Restart() { p.start = time.Now() }

// Token waits until token i is due. It returns early with the cause when ctx
// ends, and costs next to nothing when no pace was asked for.
func (p *Pacer) Token(ctx context.Context, i int) error {
	if p.first == 0 && p.step == 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	return p.Wait(ctx, time.Until(p.due(i)))
}

// Due counts how many of the first n tokens are due by now.
func (p *Pacer) Due(n int) int {
	past := time.Since(p.start) - p.first
	if past < 0 {
		return 0
	}
	if p.step == 0 {
		return n
	}
	return min(n, int(past/p.step)+1)
}

// Wait lets d pass, or returns the cause when ctx ends before.
func (p *Pacer) Wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	// One timer for the whole answer: a thousand streams make a thousand timers,
	// not one per token.
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.timer.C:
		return nil
	case <-ctx.Done():
		p.timer.Stop()
		return context.Cause(ctx)
	}
}

func (p *Pacer) due(i int) time.Time {
	return p.start.Add(p.first + time.Duration(i)*p.step)
}
