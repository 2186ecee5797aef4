// Package billing is the front door of the service that owns money: it answers
// holds, books usage, settles jobs whose edge died, sweeps holds that ran out,
// and publishes keys and funds for edges to read. The rules of money are in
// internal/ledger, keys and accounts in internal/account; prices are
// pkg/pricing's.
//
// The invariant: every hold ends, once. A usage event, a report or the sweeper
// ends it, whichever comes first, on any number of replicas, and a failure on
// the way leaves the message on the bus or the hold in the table for the next
// try.
//
// To add a message that billing reads, add the verb to pkg/bus, a function
// beside consumeUsage and a line in Run.
package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/account"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
	"github.com/engy-ai/engy/sql"
)

// service is one running billing.
type service struct {
	Deps
	book  *ledger.Ledger
	store *account.Store
	count counters

	sweepEvery, sweepAfter time.Duration
	// heard is when the sweeper last listened to the bus, deaf when it last could not
	// hear it.
	heard, deaf time.Time
	usageBatch  int
}

// Run serves until ctx ends, then finishes what it has begun.
func Run(ctx context.Context, cfg Config, d Deps) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("billing: %w", err)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	err := serve(ctx, cfg, d)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // a stop that came while it started
	}
	if err != nil {
		return fmt.Errorf("billing: %w", err)
	}
	return nil
}

func serve(ctx context.Context, cfg Config, d Deps) error {
	count, err := newCounters(d.Meter)
	if err != nil {
		return err
	}
	if !cfg.SkipMigrations {
		if err := pg.Migrate(ctx, cfg.DatabaseURL, sql.Billing()); err != nil {
			return err
		}
	}
	book, err := ledger.Open(ctx, cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer book.Close()
	pool, err := pg.Open(ctx, pg.Config{DSN: cfg.DatabaseURL, Role: ledger.Role, Name: "billing accounts"})
	if err != nil {
		return err
	}
	defer pool.Close()
	s := &service{Deps: d, book: book, store: account.NewStore(pool), count: count, sweepEvery: cfg.SweepEvery, sweepAfter: cfg.SweepAfter, usageBatch: cfg.UsageBatch}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.answerHolds(ctx) })
	g.Go(func() error { return s.consumeUsage(ctx) })
	g.Go(func() error { return s.settleOrphans(ctx) })
	g.Go(func() error {
		return s.Bus.ServeRenewals(ctx, func(ctx context.Context, r bus.Renewal) (int64, error) {
			return s.book.Renew(ctx, r.Jobs, r.Expires)
		})
	})
	g.Go(func() error { return s.sweepExpired(ctx) })
	g.Go(func() error { return s.store.Publish(ctx, d.Bus, d.Log) })
	return g.Wait()
}
