package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
)

// A process that hangs keeps its place among those that share questions.
func TestABillingThatHangsIsPassedBy(t *testing.T) {
	t.Parallel()
	s := bustest.Server(t)
	b := bustest.Connect(t, s, bus.Config{})
	nc, err := nats.Connect(s.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	billing := func() (stop func()) {
		of := bustest.Connect(t, s, bus.Config{})
		stops := []func(){
			bustest.Run(t, func(ctx context.Context) error {
				return of.ServeHolds(ctx, func(h bus.HoldAsk) {
					if err := h.Answer(bus.HoldAnswer{Micro: 1}); err != nil {
						t.Error(err)
					}
				})
			}),
			bustest.Run(t, func(ctx context.Context) error {
				return of.ServeRenewals(ctx, func(context.Context, bus.Renewal) (int64, error) { return 1, nil })
			}),
		}
		return func() {
			for _, stop := range stops {
				stop()
			}
		}
	}
	for name, ask := range map[string]func(n int) error{
		"holds.v1": func(n int) error {
			_, err := b.Hold(t.Context(), bus.Hold{Job: fmt.Sprintf("%064x", n)})
			return err
		},
		"renewals.v1": func(int) error {
			ctx, cancel := context.WithTimeout(t.Context(), bus.HoldWait)
			defer cancel()
			_, err := b.RenewHolds(ctx, []string{"a"}, time.Now())
			return err
		},
	} {
		stop := billing()
		require.Eventually(t, func() bool { return ask(0) == nil }, 20*time.Second, time.Millisecond)
		var swallowed atomic.Int64
		hung, err := nc.QueueSubscribe(name, "billing", func(*nats.Msg) { swallowed.Add(1) })
		require.NoError(t, err)
		require.NoError(t, nc.Flush())
		n := 0
		for ; swallowed.Load() == 0; n++ {
			require.NoError(t, ask(n), "%s %d", name, n)
			require.Less(t, n, 1000)
		}
		for range 50 {
			n++
			require.NoError(t, ask(n), "%s %d", name, n)
		}
		require.EqualValues(t, 1, swallowed.Load(), "once it is known, nobody waits for it")
		// The one that is asked alone may go.
		another := billing()
		require.Eventually(t, func() bool { return ask(n) == nil }, 20*time.Second, time.Millisecond)
		stop()
		for range 50 {
			n++
			require.NoError(t, ask(n), "%s %d", name, n)
		}
		require.NoError(t, hung.Unsubscribe())
		another()
	}
}
