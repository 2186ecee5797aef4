package offer_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// sent is a job that was dispatched to a worker.
type sent struct {
	ticket bus.Ticket
	work   bus.Work
}

// open lets a worker take what is dispatched to it, as many jobs as it has slots.
func (h *hand) open(slots int) *hand {
	h.w.t.Helper()
	h.sent = make(chan sent, 10)
	ready := make(chan struct{})
	taken := 0
	h.w.run(func(ctx context.Context) error {
		return h.w.bus.Dispatches(ctx, h.id, func(t bus.Ticket, w bus.Work) bool {
			if taken++; taken > slots {
				return false
			}
			h.sent <- sent{t, w}
			return true
		}, func() { close(ready) })
	})
	<-ready
	return h
}

// next begins the next job that was dispatched.
func (h *hand) next() *attempt {
	h.w.t.Helper()
	select {
	case s := <-h.sent:
		require.Equal(h.w.t, h.id, s.ticket.Worker)
		return h.begin(s.ticket, s.work)
	case <-time.After(patience):
		require.FailNow(h.w.t, "nothing was dispatched to "+h.id)
		return nil
	}
}

// dispatched gives a worker that pulls too when it is shared, and a streamed job
// that was dispatched to it and has begun.
func (w *world) dispatched(shared bool) (*hand, *offer.Job, *attempt) {
	w.t.Helper()
	h := w.worker("w1", shared).open(1)
	w.idle = h.id
	j := w.place(true)
	return h, j, h.next()
}

func TestADispatchedJobIsInNoQueue(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 100, "at the bound of a message": bus.ChunkBytes, "large": bus.ChunkBytes + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.body = bytes.Repeat([]byte("x"), size)
			h, j, a := w.dispatched(true)
			require.True(t, a.body == string(w.body), "the body came whole")
			a.text("one ")
			wanted := a.finish(done(), pricing.Finished)
			text, last := w.all(j)
			require.Equal(t, "one ", text)
			require.Equal(t, llm.Done, last.Kind)
			j.Booked()
			require.True(t, <-wanted)
			require.Equal(t, 1, j.Result().Attempt)
			jobs, ok := w.desk.Jobs("w1")
			require.True(t, ok)
			require.Zero(t, jobs)
			require.Empty(t, h.tickets)
		})
	}
}

// Whoever does not take a job costs it a little time and none of its attempts.
func TestADispatchThatIsDeclinedGoesToTheQueue(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(w *world){
		"full":      func(w *world) { w.worker("w1", false).open(0) },
		"not there": func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *offer.Config) { c.Attempts = 1 })
			make(w)
			w.idle = "w1"
			j := w.place(true)
			h := w.worker("w2", true)
			a := h.claim()
			a.text("late")
			a.finish(done(), pricing.Finished)
			text, _ := w.all(j)
			require.Equal(t, "late", text)
			require.Equal(t, offer.Result{Worker: "w2", Attempt: 1, End: j.Result().End}, j.Result())
			if name == "not there" {
				require.Eventually(t, func() bool { return w.Ended("w1") }, patience, time.Millisecond)
			}
			// The job is offered before the fleet hears of it.
			require.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.full) > 0 }, patience, time.Millisecond)
			w.mu.Lock()
			defer w.mu.Unlock()
			require.Equal(t, name == "not there", w.dead["w1"])
			require.Equal(t, []string{"w1"}, w.full)
		})
	}
}

// Nobody is left with a full queue and a full worker: that is a 429.
func TestADispatchThatIsDeclinedMayFindTheQueueClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ClaimWait = 300 * time.Millisecond })
	w.worker("w1", false).open(0)
	w.idle = "w1"
	j := w.place(true)
	_, last := w.all(j)
	require.Equal(t, fault.Busy, last.Fault.Code)
}

func TestOnlyTheWorkerThatHasAJobDeclinesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h, j, a := w.dispatched(true)
	w.desk.Declined("w2", "j1", 1, false)
	w.desk.Declined("w1", "j1", 2, true)
	w.desk.Declined("w1", "j9", 1, true)
	a.text("mine")
	require.Eventually(t, func() bool {
		events, err := j.Next(t.Context(), time.Millisecond)
		return err == nil && events[0].Text == "mine"
	}, patience, time.Millisecond)
	w.desk.Declined("w1", "j1", 1, false) // too late: it has begun
	a.finish(done(), pricing.Finished)
	_, last := w.all(j)
	require.Equal(t, llm.Done, last.Kind)
	require.Empty(t, h.tickets)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.full)
	require.Empty(t, w.dead)
}

func TestADispatchedJobMovesWhenItsWorkerDies(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*hand){
		"killed": func(h *hand) { h.die() },
		"it never ran the job": func(h *hand) {
			h.runs.Store(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *offer.Config) { c.Forgotten = 500 * time.Millisecond })
			first, second := w.worker("w1", false).open(1), w.worker("w2", false)
			first.expects("j1", 1)
			second.expects("j1", 2)
			w.other = []string{"w1", "w2"}
			w.idle = "w1"
			j := w.place(false)
			first.next()
			end(first)
			b := second.claim()
			b.text("whole")
			b.finish(done(), pricing.Finished)
			text, _ := w.all(j)
			require.Equal(t, "whole", text)
			require.Equal(t, 2, j.Result().Attempt)
		})
	}
}

// Whoever looks after a worker starts it anew, under another name.
func TestAJobWaitsForWhoeverComesWhenItsOnlyWorkerDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ClaimWait = patience })
	first, j, _ := w.dispatched(false)
	first.die()
	require.Equal(t, "eu w1", <-w.forsaken)
	a := w.worker("w1b", true).claim()
	w.served(j, a)
	require.Equal(t, 2, j.Result().Attempt)
}

func TestAJobWhoseOnlyWorkerDiesDoesNotWaitForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ClaimWait = 400 * time.Millisecond })
	first, j, _ := w.dispatched(false)
	first.die()
	text, last := w.all(j)
	require.Empty(t, text)
	require.Equal(t, fault.Engine, last.Fault.Code)
	// Who comes too late is told so.
	tk := w.worker("w1b", true).ticket()
	_, verdict, err := w.bus.Claim(t.Context(), tk, "w1b")
	require.NoError(t, err)
	require.Equal(t, bus.Gone, verdict)
}

// A worker that hangs keeps its free slots in everybody's picture.
func TestAWorkerThatHangsGetsNothingMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ProbeWait, c.ClaimWait = 2*time.Second, 400*time.Millisecond })
	h := w.worker("w1", false).open(1)
	hangs := make(chan struct{})
	defer close(hangs)
	h.hangs.Store(&hangs)
	w.idle = "w1"
	j := w.place(false)
	h.next()
	require.Eventually(t, func() bool { _, ok := w.desk.Jobs("w1"); return !ok }, patience, time.Millisecond, "it is being probed")
	_, last := w.all(j)
	require.Equal(t, fault.Engine, last.Fault.Code)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, []string{"w1"}, w.full)
	require.Empty(t, w.dead)
}

func TestAReplacedBodyOfADispatchedJobStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h, j, _ := w.dispatched(true)
	require.NoError(t, j.Replace([]byte("less work")))
	require.Equal(t, 1, (<-h.stops).Attempt)
	again := h.claim()
	require.Equal(t, "less work", again.body)
	again.finish(done(), pricing.Finished)
	_, last := w.all(j)
	require.Equal(t, llm.Done, last.Kind)
	require.Equal(t, 2, j.Result().Attempt)
}

func TestAClientThatLeavesStopsADispatchedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h, j, a := w.dispatched(false)
	go func() {
		<-h.stops
		a.finish(llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Canceled}}, pricing.Left)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := j.Abandon(ctx)
	require.NotNil(t, r.End)
	require.Equal(t, pricing.Left, r.End.Outcome)
	j.Booked()
}
