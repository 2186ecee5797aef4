package offer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// lossy is how a bus fails without the desk's worker being at fault.
type lossy struct {
	offers atomic.Int64 // that will be lost
	hangs  atomic.Bool
}

// Offer loses what is to be lost, as a connection does that breaks.
func (l listening) Offer(t bus.Ticket, told func(error)) (*bus.Offered, error) {
	if l.w.lossy.offers.Add(-1) >= 0 {
		t.Region = "other" // nobody pulls there
		offered, err := l.Bus.Offer(t, func(error) {})
		go told(fault.New(fault.Unavailable, "the job queue cannot be reached"))
		return offered, err
	}
	return l.Bus.Offer(t, told)
}

func (l listening) Answers(ctx context.Context, within time.Duration) bool {
	return !l.w.lossy.hangs.Load() && l.Bus.Answers(ctx, within)
}

func TestATicketThatTheQueueDidNotGetIsOfferedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lossy.offers.Store(2)
	h := w.worker("w1", true)
	j := w.place(false)
	a := h.claim()
	w.served(j, a)
}

func TestAQueueThatStaysAwayIsNotWaitedForForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ClaimWait = 500 * time.Millisecond })
	w.lossy.offers.Store(1000)
	j := w.place(true)
	require.Eventually(t, func() bool { return w.lossy.offers.Load() < 999 }, patience, time.Millisecond, "it was tried again")
	_, last := w.all(j)
	require.Equal(t, fault.Unavailable, last.Fault.Code)
}

// When the bus itself hangs, nobody can answer: no worker is to blame.
func TestAWorkerBehindABusThatHangsKeepsItsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ProbeWait = 200 * time.Millisecond })
	// The bus hangs from the beginning, and to the end: a probe that takes long because
	// the machine is busy is not told from one that hangs.
	w.lossy.hangs.Store(true)
	h := w.worker("w1", true)
	j := w.place(false)
	a := h.claim()
	probed := make(chan struct{})
	h.hangs.Store(&probed)
	require.Never(t, func() bool { return len(h.stops) > 0 || j.Result().Failure != nil }, time.Second, 20*time.Millisecond)
	close(probed)
	w.served(j, a)
}

// A worker that gives up by itself, because it takes the edge for dead, has no client
// that left: another one gets the job, or it costs nothing.
func TestACancelThatNobodyAskedForIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	gone := llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Canceled, Message: "the owner died"}}
	h := w.worker("w1", true)
	other := w.worker("w2", false)
	w.other = []string{"w2"}
	j := w.place(false)
	h.claim().finish(gone, pricing.Left)
	a := other.claim()
	a.text("here")
	a.finish(gone, pricing.Left)
	_, last := w.all(j)
	require.Equal(t, fault.Engine, last.Fault.Code)
}

// Frames may go with a bus: while the client has seen nothing, the same worker may
// begin again when there is no other.
func TestAGapBeforeTheFirstByteBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(false)
	h.claim()
	require.False(t, w.desk.Take("w1", bus.Frame{Job: "j1", Attempt: 1, Seq: 2, Events: []llm.Event{{Kind: llm.Text, Text: "two"}}}, nil))
	require.Equal(t, bus.Running{Job: "j1", Attempt: 1}, <-h.stops)
	a := h.claim()
	w.served(j, a)
}
