package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/worker"
)

// id waits for the worker to join, and gives its id.
func (w *world) id() (id string) {
	w.t.Helper()
	w.eventually("the worker has joined", func() bool {
		for id = range w.fleet {
			return true
		}
		return false
	})
	return id
}

// dispatch sends a job to a worker unasked.
func (w *world) dispatch(job, to string, attempt int) {
	w.t.Helper()
	body := w.body(job)
	require.NoError(w.t, w.bus.Dispatch(bus.Dispatch{Attempt: attempt, Ticket: bus.Ticket{
		Job: job, Owner: "edge-1", Region: "eu", Model: "glm-5.2", Class: bus.ZDR, Offer: 1, Worker: to,
		BodyBytes: int64(len(body)), Deadline: time.Now().Add(time.Minute),
	}}, body))
}

func TestADispatchedJobRunsToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	id := w.id()
	w.dispatch("j1", id, 1)
	w.eventually("the first word has come", func() bool { return w.texts["j1"] == "one " })
	w.eventually("the fleet knows", func() bool { h := w.fleet[id]; return h.InFlight == 1 && h.Dispatched == 1 })
	w.offer("j2", 1)
	w.eventually("a ticket beside it", func() bool { return w.texts["j2"] == "one " })
	w.eventually("the fleet tells them apart", func() bool { h := w.fleet[id]; return h.InFlight == 2 && h.Dispatched == 1 })
	close(w.engine.release)
	w.eventually("the ends have come", func() bool { return len(w.ends) == 2 })
	require.Equal(t, "one two", w.texts["j1"])
	require.Equal(t, llm.Usage{Prompt: 7, Completion: 2}, w.ends["j1"].Usage)
	require.Zero(t, w.granted["j1"], "nothing was asked for")
	w.eventually("both slots are free", func() bool { h := w.fleet[id]; return h.InFlight == 0 && h.Dispatched == 0 })
	require.Empty(t, w.reports)
	require.Empty(t, w.declined)
}

func TestAWorkerDeclinesWhatItHasNoRoomFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	id := w.id()
	for i := range 2 {
		w.dispatch(fmt.Sprintf("j%d", i), id, 1)
	}
	w.dispatch("j2", id, 1)
	require.Equal(t, "j2", <-w.declined)
	w.eventually("two run", func() bool { return len(w.texts) == 2 })
	w.dispatch("j0", id, 1)
	w.dispatch("j2", id, 1)
	require.Equal(t, "j2", <-w.declined, "what came twice is neither run nor declined")
	close(w.engine.release)
	w.eventually("two have ended", func() bool { return len(w.ends) == 2 })
	w.dispatch("j3", id, 1)
	w.eventually("there is room again", func() bool { return len(w.ends) == 3 })
	require.EqualValues(t, 3, w.engine.calls.Load())
}

// A ticket that came to a full worker waits no longer than if nobody had passed
// it by.
func TestATicketThatWasGivenBackComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Slots = 1 })
	w.own()
	id := w.id()
	// The worker has asked for a ticket when the job takes its only slot.
	w.dispatch("j1", id, 1)
	w.eventually("it runs", func() bool { return w.texts["j1"] != "" })
	w.offer("j2", 1)
	close(w.engine.release)
	n := 0
	require.Eventually(t, func() bool {
		n++
		w.dispatch(fmt.Sprintf("d%d", n), id, 1)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ends["j2"].Outcome == pricing.Finished
	}, patience, time.Millisecond)
}

func TestAStoppingWorkerDeclines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	id := w.id()
	w.dispatch("j1", id, 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	w.eventually("the fleet is left", func() bool { return len(w.fleet) == 0 })
	w.dispatch("j2", id, 1)
	require.Equal(t, "j2", <-w.declined)
	close(w.engine.release)
	<-stopped
	require.Equal(t, pricing.Finished, w.ends["j1"].Outcome)
	w.dispatch("j3", id, 1)
	require.Equal(t, "j3", <-w.declined, "nobody is there")
}

func TestADispatchedJobOfADeadOwnerIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	die := w.own()
	w.dispatch("j1", w.id(), 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	die()
	r := <-w.reports
	require.Equal(t, pricing.Failed, r.Outcome)
	require.Equal(t, "j1", r.Job)
}
