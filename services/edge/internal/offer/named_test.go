package offer_test

import (
	"context"
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

// placeFor offers a job that only some workers can do, to the first of them by
// name.
func (w *world) placeFor(named string, able ...string) *offer.Job {
	w.t.Helper()
	j, err := w.desk.Place(offer.Order{
		Ticket: bus.Ticket{Job: "j1", Region: "eu", Model: "glm-5.2", Class: bus.Open, Worker: named, Deadline: time.Now().Add(time.Minute)},
		Body:   []byte("the work"),
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
