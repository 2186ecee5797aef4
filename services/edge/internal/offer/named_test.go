package offer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// placeFor offers a job that only some workers can do, to one of them by name.
func (w *world) placeFor(named string, able ...string) *offer.Job {
	w.t.Helper()
	w.jobs++
	j, err := w.desk.Place(offer.Order{
		Ticket:   bus.Ticket{Job: fmt.Sprintf("j%d", w.jobs), Region: "eu", Model: "glm-5.2", Class: bus.Open, Worker: named, Deadline: time.Now().Add(time.Minute)},
		Body:     []byte("the work"),
		Dispatch: func() (string, bool) { return w.idle, w.idle != "" },
		Other: func(except func(string) bool) (string, string, bool) {
			for _, id := range able {
				if !except(id) {
					return id, "eu", true
				}
			}
			return "", "", false
		},
		Free: func() int { return len(able) },
		Fits: func(worker string) bool { return slices.Contains(able, worker) },
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { j.Close(context.WithoutCancel(w.t.Context())) })
	return j
}

func TestAJobThatNotEverybodyCanDoIsOfferedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cannot, can, also := w.worker("w1", true), w.worker("w2", true), w.worker("w3", true)
	j := w.placeFor("w2", "w2", "w3")
	first := can.ticket()
	require.Equal(t, "w2", first.Worker)
	_, verdict, err := w.bus.Claim(t.Context(), first, "w2")
	require.NoError(t, err)
	require.Equal(t, bus.Granted, verdict)

	// A body that is replaced goes to the same, and an attempt that failed to another
	// one that can.
	require.NoError(t, j.Replace([]byte("less work")))
	again := can.claim()
	require.Equal(t, "less work", again.body)
	again.finish(llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Engine, Message: "boom"}}, pricing.Failed)
	third := also.claim()
	third.text("done")
	third.finish(done(), pricing.Finished)
	text, last := w.all(j)
	require.Equal(t, "done", text)
	require.Equal(t, llm.Done, last.Kind)
	require.Empty(t, cannot.tickets, "it has never heard of the job")
}

// A worker that came after a ticket was offered to anybody may pull it.
func TestAWorkerThatCannotDoAJobIsNotGrantedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cannot := w.worker("w1", true)
	j := w.placeFor("", "w2")
	tk := cannot.ticket()
	_, verdict, err := w.bus.Claim(t.Context(), tk, "w1")
	require.NoError(t, err)
	require.Equal(t, bus.Barred, verdict)
	// The next offer names one that can.
	can := w.worker("w2", false)
	answer := w.whole(j)
	a := can.claim()
	a.text("done")
	a.finish(done(), pricing.Finished)
	require.Equal(t, "done", (<-answer)[0].Text)
	require.Equal(t, "w2", j.Result().Worker)
}

func TestANamedWorkerThatIsGoneIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	can := w.worker("w2", false)
	answer := w.whole(w.placeFor("w9", "w2"))
	a := can.claim()
	a.text("done")
	a.finish(done(), pricing.Finished)
	require.Equal(t, "done", (<-answer)[0].Text)
}

// Nobody tells an edge that a worker has died which has none of its jobs.
func TestNamedWorkersThatAreGoneAreFoundOutAndLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ClaimWait = patience })
	can := w.worker("w1", false)
	// The dead ones are always the first choice.
	j := w.placeFor("w9", "w9", "w8", "w1")
	answer := w.whole(j)
	a := can.claim()
	a.finish(done(), pricing.Finished)
	<-answer
	j.Close(t.Context())
	require.ElementsMatch(t, []string{"eu w9", "eu w8"}, []string{<-w.forsaken, <-w.forsaken})
	// Their tickets are gone: who comes under such a name gets the next one.
	for _, id := range []string{"w9", "w8"} {
		late := w.worker(id, false)
		for next := ""; next == ""; {
			w.placeFor(id, id)
			select {
			case d := <-late.tickets:
				next = d.Ticket.Job
				require.NotEqual(t, "j1", next)
			case <-time.After(patience / 6):
				// It went with the old ones, which are thrown away a moment after that was said.
				require.Less(t, w.jobs, 10, "no ticket came to "+id)
			}
		}
	}
}

func TestTheTicketsOfADeadWorkerAreThrownAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.place(false)
	w.desk.Grant(bus.Claim{Job: "j1", Worker: "w1"}) // and nobody answers the probe
	require.Equal(t, "eu w1", <-w.forsaken)
}

// The one that a ticket names may be the one that has just declined the job.
func TestWhoeverDeclinedIsNotAskedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.Again = time.Hour })
	can := w.worker("w2", false)
	w.idle = "w1"
	w.placeFor("w1", "w1", "w2")
	require.Equal(t, "w2", can.ticket().Worker)
	require.Eventually(t, func() bool { return w.Ended("w1") }, patience, time.Millisecond)

	// There may be no other.
	full := w.worker("w3", false).open(0)
	w.idle = "w3"
	w.placeFor("w3", "w3")
	require.Equal(t, "w3", full.ticket().Worker)
}

// A worker of an older version pulls and is not found by dispatches.
func TestAWorkerThatOnlyPullsIsNotTakenForDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	w.idle = "w1"
	j := w.place(false)
	a := h.claim()
	require.Eventually(t, func() bool { return !w.desk.Doubts("w1") }, patience, time.Millisecond)
	a.finish(done(), pricing.Finished)
	_, last := w.all(j)
	require.Equal(t, llm.Done, last.Kind)
	require.False(t, w.Ended("w1"))
	require.Equal(t, 1, j.Result().Attempt)
}

// whole waits for an answer that is not streamed: offers are made meanwhile.
func (w *world) whole(j *offer.Job) chan []llm.Event {
	answer := make(chan []llm.Event, 1)
	ctx := w.t.Context()
	go func() {
		events, err := j.Next(ctx, patience)
		if err != nil {
			w.t.Error(err)
			events = []llm.Event{{}}
		}
		answer <- events
	}()
	return answer
}
