package billing_test

import (
	"context"
	"log/slog"
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

// benchPlace is a running billing with one rich account.
func benchPlace(b *testing.B) *place {
	b.Helper()
	p := &place{dsn: pgtest.DSN(b, sql.Billing()), bus: bustest.New(b)}
	var err error
	p.admin, err = billing.OpenAdmin(b.Context(), p.dsn)
	require.NoError(b, err)
	b.Cleanup(p.admin.Close)
	a, err := p.admin.CreateAccount(b.Context(), "customer")
	require.NoError(b, err)
	p.account = a.ID
	_, err = p.admin.Credit(b.Context(), billing.Credit{Account: a.ID, Micro: 1e15, Cause: "first"})
	require.NoError(b, err)
	p.key, _, err = p.admin.CreateKey(b.Context(), a.ID, billing.KeyOptions{})
	require.NoError(b, err)
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
	}, soon, check)
	return p
}

// BenchmarkHoldOverTheBus is what an edge waits for one hold, alone.
func BenchmarkHoldOverTheBus(b *testing.B) {
	p := benchPlace(b)
	n := 0
	for b.Loop() {
		a, err := p.bus.Hold(b.Context(), p.hold(n, 10))
		require.NoError(b, err)
		require.Empty(b, a.Code)
		n++
	}
}

// BenchmarkUsageFromTheBus counts events from their way onto the bus to the
// balance that shows them all, one hot account, no holds.
func BenchmarkUsageFromTheBus(b *testing.B) {
	p := benchPlace(b)
	b.ResetTimer()
	for n := range b.N {
		require.NoError(b, p.bus.RecordUsage(p.usage(n, 1)))
	}
	want := money.Micro(1e15 - b.N)
	require.Eventually(b, func() bool {
		got, err := p.admin.Balance(b.Context(), p.account)
		return err == nil && got.Micro == want
	}, 2*time.Minute, check)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
