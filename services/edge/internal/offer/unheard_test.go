package offer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// hasty is a desk that soon asks after what nobody has owned up to.
func hasty(c *offer.Config) { c.Unheard, c.Forgotten = 200*time.Millisecond, time.Minute }

// A job that was sent into a dying bus is not waited for: whoever is free gets it,
// also the worker that it was sent to.
func TestADispatchThatWasLostIsOfferedAgain(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		quiet, unheard time.Duration
		tell           func(w *world, h *hand)
	}{
		"found by a probe": {100 * time.Millisecond, 200 * time.Millisecond, func(*world, *hand) {}},
		"found when the bus is back": {100 * time.Millisecond, time.Minute, func(w *world, _ *hand) {
			w.cut.Store(time.Now().UnixNano())
		}},
		"found by a worker's own word": {time.Minute, 200 * time.Millisecond, func(w *world, h *hand) {
			require.Eventually(w.t, func() bool {
				_, err := w.bus.StillWanted(w.t.Context(), "edge-1", h.id, nil)
				return err == nil && len(h.tickets) > 0
			}, patience, 20*time.Millisecond)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *offer.Config) {
				c.Quiet, c.Unheard, c.Forgotten = how.quiet, how.unheard, time.Minute
			})
			h := w.worker("w1", true).open(1)
			h.expects("j1", 2)
			w.idle = h.id
			j := w.place(false)
			<-h.sent // it is as if it had never come
			how.tell(w, h)
			a := h.claim()
			require.Equal(t, bus.Running{Job: "j1", Attempt: 1}, <-h.stops, "should it come late, nobody wants it")
			require.Equal(t, []bus.Running{{Job: "j1", Attempt: 2}}, *h.runs.Load())
			w.served(j, a)
		})
	}
}

func TestAGrantIsLostOnlySoOften(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	h := w.worker("w1", true)
	j := w.place(false)
	for range 3 {
		h.claim()
		h.runs.Store(nil)
	}
	_, last := w.all(j)
	require.Equal(t, fault.Engine, last.Fault.Code)
	require.Equal(t, 3, j.Result().Attempt)
}

// A large body is still on its way long after its grant, and a worker that has begun
// has heard of the job.
func TestWhatWasHeardOrIsLargeIsNotOfferedAgain(t *testing.T) {
	t.Parallel()
	for _, large := range []bool{false, true} {
		w := newWorld(t, func(c *offer.Config) {
			hasty(c)
			c.HoldAfter = time.Hour
		})
		var heard atomic.Bool
		w.hold = func() { heard.Store(true) }
		if large {
			w.body = make([]byte, bus.ChunkBytes+1)
		}
		h := w.worker("w1", true)
		h.expects("j1", 1)
		j := w.place(false)
		a := h.claim()
		if !large {
			a.text("here")
			// The hold is asked for at the first frame: it has come.
			require.Eventually(t, heard.Load, patience, time.Millisecond)
		}
		h.runs.Store(nil)
		require.Never(t, func() bool { return len(h.tickets) > 0 }, time.Second, 50*time.Millisecond)
		j.Close(t.Context())
	}
}
