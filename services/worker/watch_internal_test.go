package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/worker/internal/engine"
)

// watchedEngine is an engine of which only its health is asked.
type watchedEngine struct {
	engine.Engine
	health func(context.Context) error
}

func (e watchedEngine) Health(ctx context.Context) error { return e.health(ctx) }

func TestAnEngineThatMayBeBusyHasItsTime(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context) error {
		<-ctx.Done()
		return fault.New(fault.Timeout, "no answer")
	}
	refused := func(context.Context) error { return fault.New(fault.Unavailable, "nobody listens") }
	for name, c := range map[string]struct {
		health func(context.Context) error
		after  time.Duration // may say nothing for
		lost   time.Duration
	}{
		"it says nothing":         {silent, 15 * time.Second, 17 * time.Second},
		"it may for long":         {silent, 2 * time.Minute, 2 * time.Minute},
		"it may not at all":       {silent, 0, 17 * time.Second},
		"nobody listens any more": {refused, 2 * time.Minute, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				require.Error(t, watch(t.Context(), watchedEngine{health: c.health}, c.after))
				require.InDelta(t, c.lost, time.Since(begun), float64(ProbeWait))
			})
		})
	}
	t.Run("it says something in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			n := 0
			require.NoError(t, watch(ctx, watchedEngine{health: func(ctx context.Context) error {
				if n++; n%20 == 0 {
					return nil
				}
				return silent(ctx)
			}}, 2*time.Minute))
		})
	})
}
