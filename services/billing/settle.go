package billing

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// consumeUsage books usage events in batches. A batch is acknowledged once it
// is committed, and comes again otherwise: the stream is the retry state.
// In which order they are booked does not matter.
func (s *service) consumeUsage(ctx context.Context) error {
	return s.Bus.Usages(ctx, usageDurable, bus.Batches{
		Most: cmp.Or(s.usageBatch, usageBatchMax), Wait: usageBatchWait, AtOnce: usageBatches,
	}, s.bookUsage)
}

func (s *service) bookUsage(ctx context.Context, events []bus.UsageEvent) error {
	ended := make([]ledger.Ended, len(events))
	for i, e := range events {
		ended[i] = ledger.ByUsage(e)
	}
	return s.settle(ctx, ended)
}

// sweepExpired ends holds that ran out: by the report of their worker when
// there is one, else by giving them back.
func (s *service) sweepExpired(ctx context.Context) error {
	// While billing was away nobody could renew: edges have a moment for it.
	if !rest(ctx, cmp.Or(s.sweepAfter, sweepAfterDefault)) {
		return nil
	}
	s.heard = time.Now()
	for rest(ctx, cmp.Or(s.sweepEvery, sweepEveryDefault)) {
		for {
			n, err := s.sweep(ctx)
			if err != nil && ctx.Err() == nil {
				s.Log.Error("sweep not finished, comes again", "error", err)
				s.count.alarm(ctx, "sweep_failed", 1)
			}
			if err != nil || n < sweepBatch {
				break
			}
		}
	}
	return nil
}

// sweep ends one batch of holds and tells how many it took up.
func (s *service) sweep(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepWait)
	defer cancel()
	if !s.hears(ctx) {
		return 0, nil
	}
	now := s.Clock()
	holds, err := s.book.Expired(ctx, now.Add(-sweepGrace), sweepLease, sweepBatch)
	if err != nil {
		return 0, err
	}
	ended := s.ends(ctx, holds, now)
	if len(ended) == 0 || !s.hears(ctx) {
		return 0, nil
	}
	return len(ended), s.settle(ctx, ended)
}

// ends gives the ends of holds that ran out. Of one whose report could not be asked
// for it is not known whether the work was done: it comes again.
func (s *service) ends(ctx context.Context, holds []ledger.OpenHold, now time.Time) []ledger.Ended {
	ended := make([]ledger.Ended, len(holds))
	known := make([]bool, len(holds))
	var asks errgroup.Group
	asks.SetLimit(sweepAsks)
	for i, h := range holds {
		asks.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, hearWait)
			defer cancel()
			r, err := s.Bus.ReportOf(ctx, h.Job)
			if err != nil {
				return err
			}
			ended[i], known[i] = s.end(ctx, h, r, now), true
			return nil
		})
	}
	if err := asks.Wait(); err != nil {
		s.Log.Error("not every hold that ran out was ended, they come again", "error", err)
		s.count.alarm(ctx, "sweep_failed", 1)
		s.deaf = time.Now() // a bus that was away may say of a report that there is none
	}
	n := 0
	for i, e := range ended {
		if known[i] {
			ended[n] = e
			n++
		}
	}
	return ended[:n]
}

// end is the end of a hold that ran out: by its report, or else the money goes back.
func (s *service) end(ctx context.Context, h ledger.OpenHold, r *bus.Report, now time.Time) ledger.Ended {
	if r != nil {
		if e, ok := s.byReport(ctx, h, *r); ok {
			return e
		}
	}
	return ledger.ByExpiry(h, now)
}

// hears tells whether the bus has answered for so long that edges have renewed their
// holds: a hold that ran out while nobody could renew it is not over.
func (s *service) hears(ctx context.Context) bool {
	missed := time.Since(s.heard) > sweepWait // this process itself may have stood still
	if missed || !s.Bus.Connected() || !s.Bus.Answers(ctx, hearWait) {
		s.deaf = time.Now()
	}
	s.heard = time.Now()
	after := cmp.Or(s.sweepAfter, sweepAfterDefault)
	return time.Since(s.deaf) >= after && time.Since(s.Bus.Reconnected()) >= after
}

// settle books and raises the alarms.
func (s *service) settle(ctx context.Context, ended []ledger.Ended) error {
	bookings, err := s.book.Settle(ctx, ended)
	if err != nil {
		s.count.alarm(ctx, "settlement_failed", int64(len(ended)))
		return fmt.Errorf("batch of %d: %w", len(ended), err)
	}
	for i, b := range bookings {
		s.count.settlement(ctx, string(ended[i].Source), b.Verdict.String())
		switch b.Verdict {
		case ledger.Booked, ledger.Repeated:
		default:
			s.Log.Error("ALARM: end of job not booked", "job", b.Job, "source", ended[i].Source, "verdict", b.Verdict.String(), "account", ended[i].Usage.Account)
			s.count.alarm(ctx, b.Verdict.String(), 1)
			continue
		}
		if b.Doubt != "" {
			s.Log.Error("ALARM: end of job doubted", "job", b.Job, "source", ended[i].Source, "doubt", b.Doubt, "charged_micro", b.Charged)
			s.count.alarm(ctx, "doubt", 1)
		}
		if b.Shortfall > 0 {
			s.Log.Error("ALARM: charge not covered", "job", b.Job, "account", ended[i].Usage.Account, "charged_micro", b.Charged, "shortfall_micro", b.Shortfall)
			s.count.alarm(ctx, "shortfall", 1)
		}
	}
	return nil
}
