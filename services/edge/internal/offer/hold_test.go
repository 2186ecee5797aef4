package offer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

func TestTheHoldIsAskedForWhenAWorkerHasTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.HoldAfter = time.Hour })
	first, second := w.worker("w1", true), w.worker("w2", false)
	w.other = []string{"w1", "w2"}
	var asked atomic.Int64
	w.hold = func() { asked.Add(1) }
	j := w.place(false)
	require.Zero(t, asked.Load())
	first.claim()
	require.EqualValues(t, 1, asked.Load())
	first.die()
	a := second.claim()
	require.EqualValues(t, 1, asked.Load(), "another attempt is the same job")
	a.finish(done(), pricing.Finished)
	w.all(j)
	j.Booked()
}

func TestOnlyAFewHoldsArePutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.HoldAfter = time.Hour })
	var asked atomic.Int64
	w.hold = func() { asked.Add(1) }
	const few = 4
	for range few {
		w.place(false)
	}
	require.Zero(t, asked.Load())
	w.place(false)
	require.EqualValues(t, 1, asked.Load())
	// One that is not put off any more makes room.
	w.worker("w1", true).claim()
	require.EqualValues(t, 2, asked.Load())
	w.place(false)
	require.EqualValues(t, 2, asked.Load())
}

func TestTheHoldDoesNotWaitLongForAWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.HoldAfter = 5 * time.Millisecond })
	var asked atomic.Int64
	w.hold = func() { asked.Add(1) }
	w.place(false)
	require.Eventually(t, func() bool { return asked.Load() == 1 }, patience, time.Millisecond)
	w.worker("w1", true).claim()
	require.EqualValues(t, 1, asked.Load(), "it is asked for once")
}
