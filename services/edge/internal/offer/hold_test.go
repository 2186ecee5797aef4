package offer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

func TestTheHoldIsAskedForAtTheFirstFrame(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]string{"dispatched": "w1", "claimed": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *offer.Config) { c.HoldAfter = time.Hour })
			first, second := w.worker("w1", true).open(1), w.worker("w2", false)
			w.other, w.idle = []string{"w1", "w2"}, idle
			var asked atomic.Int64
			w.hold = func() { asked.Add(1) }
			j := w.place(false)
			var a *attempt
			if idle != "" {
				a = first.next()
			} else {
				a = first.claim()
			}
			require.Zero(t, asked.Load())
			a.text("half")
			require.Eventually(t, func() bool { return asked.Load() == 1 }, patience, time.Millisecond)
			first.die()
			b := second.claim()
			b.text("whole")
			b.finish(done(), pricing.Finished)
			text, _ := w.all(j)
			require.Equal(t, "whole", text)
			require.EqualValues(t, 1, asked.Load(), "another attempt is the same job")
			j.Booked()
		})
	}
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
	w.worker("w1", true).claim().text("one")
	require.Eventually(t, func() bool { return asked.Load() == 2 }, patience, time.Millisecond)
	w.place(false)
	require.EqualValues(t, 2, asked.Load())
}

func TestTheHoldIsPutOffForAMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.HoldAfter = 5 * time.Millisecond })
	var asked atomic.Int64
	w.hold = func() { asked.Add(1) }
	w.place(false)
	require.Eventually(t, func() bool { return asked.Load() == 1 }, patience, time.Millisecond)
	w.worker("w1", true).claim().text("one")
	require.EqualValues(t, 1, asked.Load(), "it is asked for once")
}

func TestTheHoldOfALargeBodyIsNotPutOff(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int64{bus.ChunkBytes: 0, bus.ChunkBytes + 1: 1} {
		w := newWorld(t, func(c *offer.Config) { c.HoldAfter = time.Hour })
		var asked atomic.Int64
		w.hold = func() { asked.Add(1) }
		w.body = make([]byte, size)
		w.place(false)
		require.Equal(t, want, asked.Load())
	}
}
