package billing_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/sql"
)

// benchPlace is a billing that does not run yet, with rich accounts.
func benchPlace(b *testing.B, accounts int) *place {
	b.Helper()
	p := &place{dsn: pgtest.DSN(b, sql.Billing()), bus: bustest.New(b)}
	var err error
	p.admin, err = billing.OpenAdmin(b.Context(), p.dsn)
	require.NoError(b, err)
	b.Cleanup(p.admin.Close)
	for n := range accounts {
		a, err := p.admin.CreateAccount(b.Context(), fmt.Sprintf("customer %d", n))
		require.NoError(b, err)
		_, err = p.admin.Credit(b.Context(), billing.Credit{Account: a.ID, Micro: 1e15, Cause: "first-" + a.ID})
		require.NoError(b, err)
		key, _, err := p.admin.CreateKey(b.Context(), a.ID, billing.KeyOptions{})
		require.NoError(b, err)
		p.benched = append(p.benched, [2]string{a.ID, key})
	}
	p.account, p.key = p.benched[0][0], p.benched[0][1]
	return p
}

// serve runs billing until the benchmark ends, and returns once it answers.
func (p *place) serve(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() {
		done <- billing.Run(ctx, billing.Config{DatabaseURL: p.dsn}, billing.Deps{Bus: p.bus, Log: slog.New(slog.DiscardHandler)})
	}()
	b.Cleanup(func() { cancel(); require.NoError(b, <-done) })
	require.Eventually(b, func() bool {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		a, err := p.bus.Hold(ctx, bus.Hold{Job: "none"})
		return err == nil && a.Code == fault.Invalid
	}, soon, time.Millisecond)
}

// BenchmarkHoldOverTheBus is what an edge waits for one hold, alone.
func BenchmarkHoldOverTheBus(b *testing.B) {
	p := benchPlace(b, 1)
	p.serve(b)
	n := 0
	for b.Loop() {
		a, err := p.bus.Hold(b.Context(), p.hold(n, 10))
		require.NoError(b, err)
		require.Empty(b, a.Code)
		n++
	}
}

// BenchmarkUsageFromTheBus counts events that wait on the bus, without holds,
// from billing's start to the balances that show them all. Ask for 20,000 or
// more (-benchtime=20000x), or the start is what is measured.
func BenchmarkUsageFromTheBus(b *testing.B) {
	for _, accounts := range []int{1, 100} {
		b.Run(fmt.Sprintf("accounts=%d", accounts), func(b *testing.B) {
			p := benchPlace(b, accounts)
			left := make(chan struct{}, b.N)
			for n := range b.N {
				p.account, p.key = p.benched[n%accounts][0], p.benched[n%accounts][1]
				require.NoError(b, p.bus.BookUsage(p.usage(n, 1), func() { left <- struct{}{} }))
			}
			for range b.N {
				<-left
			}
			b.ResetTimer()
			p.serve(b)
			want := money.Micro(1e15*accounts - b.N)
			require.Eventually(b, func() bool {
				all, err := p.admin.ListAccounts(b.Context())
				var sum money.Micro
				for _, a := range all {
					sum += a.Micro
				}
				return err == nil && sum == want
			}, 2*time.Minute, check)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkKeyToTheEdge is how long a new key takes until an edge sees it.
func BenchmarkKeyToTheEdge(b *testing.B) {
	p := benchPlace(b, 1)
	seen := make(chan string, 1000)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	b.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		_ = p.bus.WatchPrincipals(ctx, func() {}, func(hash string, _ *bus.Principal) { seen <- hash })
	})
	p.serve(b)
	var slowest time.Duration
	for b.Loop() {
		began := time.Now()
		_, secret, err := p.admin.CreateKey(b.Context(), p.account, billing.KeyOptions{})
		require.NoError(b, err)
		hash := hashOf(secret)
		for got := ""; got != hash; got = <-seen {
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}
