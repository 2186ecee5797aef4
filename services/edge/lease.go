package edge

import (
	"context"
	"sync"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
)

// lease is what this edge knows of the holds of its jobs: billing gives one back
// that nobody renews, since its edge must be dead. An edge that only stood still for
// so long finds out here.
type lease struct {
	life    time.Duration
	mu      sync.Mutex
	renewed time.Time // when billing was last asked, and answered
	lapsed  time.Time // the same, after a silence that holds may not have outlived
}

// keep notes that billing has answered a renewal that was asked at a time.
func (l *lease) keep(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.renewed.IsZero() && asked.Sub(l.renewed) > l.life/2 {
		l.lapsed = asked
	}
	l.renewed = asked
}

// doubtful tells whether the hold of a job that began at a time may have ended.
func (l *lease) doubtful(begun time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return begun.Before(l.lapsed) || time.Since(begun) > l.life/2 && time.Since(l.renewed) > l.life/2
}

// renew keeps the holds of jobs that take long; the hold of an edge that died is
// not renewed, and billing gives it back. It also tells whether billing answers:
// without it this edge is not ready.
func (e *edge) renew(ctx context.Context) error {
	every := e.cfg.HoldLease / 4
	var renewed time.Time
	for {
		var jobs []string
		asked := time.Now()
		due := asked.Sub(renewed) >= every
		if due {
			jobs = e.desk.Older(every)
		}
		ask, cancel := context.WithTimeout(ctx, bus.HoldWait)
		_, err := e.bus.RenewHolds(ask, jobs, asked.Add(e.cfg.HoldLease))
		cancel()
		wait := min(every, BillingEvery)
		switch up := err == nil; {
		case up && due:
			e.lease.keep(asked)
			if len(jobs) > 0 {
				renewed = asked
			}
		case !up:
			wait = min(every, BillingAgain)
		}
		if was := e.billing.Swap(err == nil); was && err != nil && ctx.Err() == nil {
			e.log.Error("billing does not answer", "jobs", len(jobs), "error", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}
