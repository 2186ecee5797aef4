package offer_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// patience bounds every wait; a good run needs a fraction of it.
const patience = 30 * time.Second

// world is a desk on a real bus.
type world struct {
	t        *testing.T
	bus      *bus.Bus
	desk     *offer.Desk
	mu       sync.Mutex
	dead     map[string]bool
	other    []string    // live workers, in the order of preference
	full     []string    // what the desk found full
	idle     string      // the worker that jobs are dispatched to, if any
	forsaken chan string // whose tickets were thrown away
	body     []byte
	hold     func()
	lossy    lossy
	cut      atomic.Int64 // when the connection was lost, in Unix nanoseconds
	jobs     int          // that were placed
}

func newWorld(t *testing.T, change func(*offer.Config)) *world {
	t.Helper()
	w := &world{t: t, bus: bustest.New(t), dead: map[string]bool{}, body: []byte("the work"), forsaken: make(chan string, 100)}
	// A worker that is slow because the machine is must not be given up: a test that
	// wants that shortens the wait it is about.
	cfg := offer.Config{
		ClaimWait: patience, Again: 300 * time.Millisecond, HoldAfter: 50 * time.Millisecond, Quiet: 100 * time.Millisecond, ProbeWait: patience,
		Attempts: 3, Forgotten: time.Minute, Unheard: time.Minute, QueueBytes: 1 << 20, AnswerBytes: 4 << 20,
	}
	if change != nil {
		change(&cfg)
	}
	w.desk = offer.New("edge-1", listening{w.bus, w}, cfg, w, slog.New(slog.DiscardHandler))
	w.run(func(ctx context.Context) error { return w.desk.Watch(ctx) })
	ready := make(chan struct{})
	w.run(func(ctx context.Context) error {
		return w.bus.Own(ctx, "edge-1", w.desk, func() { close(ready) })
	})
	<-ready
	return w
}

// listening is the bus, and hears what is said of the dead; its connection is made
// anew when the test says so.
type listening struct {
	*bus.Bus
	w *world
}

func (l listening) Reconnected() time.Time { return time.Unix(0, l.w.cut.Load()) }

func (l listening) Forsake(region, worker string) {
	l.Bus.Forsake(region, worker)
	l.w.forsaken <- region + " " + worker
}

// End, Ended and Full are the desk's picture of the fleet.
func (w *world) End(worker string) (region string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[worker] = true
	return "eu", true
}

func (w *world) Ended(worker string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[worker]
}

func (w *world) Full(worker string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = append(w.full, worker)
}

func (w *world) run(f func(ctx context.Context) error) (stop func()) { return bustest.Run(w.t, f) }

// hand is a worker of a few lines.
type hand struct {
	w       *world
	id      string
	tickets chan *bus.Delivery
	sent    chan sent
	stops   chan bus.Running
	die     func()
	runs    atomic.Pointer[[]bus.Running]
	// hangs, when it is set, holds up the answers to probes until it is closed.
	hangs atomic.Pointer[chan struct{}]
}

// running is what the worker says that it runs.
func (h *hand) running(string) []bus.Running {
	if c := h.hangs.Load(); c != nil {
		<-*c
	}
	if r := h.runs.Load(); r != nil {
		return *r
	}
	return nil
}

func (w *world) worker(id string, shared bool) *hand {
	w.t.Helper()
	h := &hand{w: w, id: id, tickets: make(chan *bus.Delivery, 10), stops: make(chan bus.Running, 10)}
	ready := make(chan struct{})
	h.die = w.run(func(ctx context.Context) error {
		return w.bus.Cancels(ctx, id, func(r bus.Running) { h.stops <- r }, h.running, func() { close(ready) })
	})
	<-ready
	pull := func(q bus.Queue) {
		w.run(func(ctx context.Context) error {
			return w.bus.Pull(ctx, q, func() int { return 1 }, nil, func(d *bus.Delivery) { h.tickets <- d })
		})
	}
	pull(bus.Queue{Region: "eu", Worker: id})
	if shared {
		pull(bus.Queue{Region: "eu", Model: "glm-5.2", Class: bus.Open})
	}
	return h
}

func (h *hand) ticket() bus.Ticket {
	h.w.t.Helper()
	select {
	case d := <-h.tickets:
		require.NoError(h.w.t, d.Ack())
		return d.Ticket
	case <-time.After(patience):
		require.FailNow(h.w.t, "no ticket came to "+h.id)
		return bus.Ticket{}
	}
}

// expects makes the worker say that it runs an attempt before it has it: what is lost
// is an earlier one, and the next may not be while its worker is slow to begin.
func (h *hand) expects(job string, attempt int) {
	h.runs.Store(&[]bus.Running{{Job: job, Attempt: attempt}})
}

// claim takes the next ticket and its work.
func (h *hand) claim() *attempt {
	h.w.t.Helper()
	t := h.ticket()
	work, verdict, err := h.w.bus.Claim(h.w.t.Context(), t, h.id)
	require.NoError(h.w.t, err)
	require.Equal(h.w.t, bus.Granted, verdict)
	return h.begin(t, work)
}

func (h *hand) begin(t bus.Ticket, work bus.Work) *attempt {
	h.w.t.Helper()
	s, err := h.w.bus.Stream(t, h.id, work.Attempt)
	require.NoError(h.w.t, err)
	h.runs.Store(&[]bus.Running{{Job: t.Job, Attempt: work.Attempt}})
	body, err := h.w.bus.Body(h.w.t.Context(), t, h.id, work)
	require.NoError(h.w.t, err)
	return &attempt{h: h, s: s, body: string(body)}
}

type attempt struct {
	h    *hand
	s    *bus.Stream
	body string
}

func (a *attempt) text(s string) {
	a.h.w.t.Helper()
	require.NoError(a.h.w.t, a.s.Emit([]llm.Event{{Kind: llm.Text, Text: s}}))
}

// finish sends the end; whether it was wanted comes when it is booked.
func (a *attempt) finish(last llm.Event, o pricing.Outcome) (wanted chan bool) {
	wanted = make(chan bool, 1)
	ctx := a.h.w.t.Context()
	go func() {
		defer a.s.Close()
		ok, err := a.s.Finish(ctx, []llm.Event{last}, bus.End{Outcome: o, Usage: llm.Usage{Prompt: 3, Completion: 2}})
		if err != nil && ctx.Err() == nil {
			a.h.w.t.Error(err)
		}
		wanted <- ok
	}()
	return wanted
}

func done() llm.Event { return llm.Event{Kind: llm.Done, Finish: llm.Stop} }

func (w *world) place(stream bool) *offer.Job {
	w.t.Helper()
	w.jobs++
	j, err := w.desk.Place(offer.Order{
		Ticket: bus.Ticket{Job: fmt.Sprintf("j%d", w.jobs), Region: "eu", Model: "glm-5.2", Class: bus.Open, Deadline: time.Now().Add(time.Minute)},
		Body:   w.body, Stream: stream, Hold: w.hold,
		Dispatch: func() (string, bool) { return w.idle, w.idle != "" },
		Other: func(except func(string) bool) (string, string, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, id := range w.other {
				if !except(id) && !w.dead[id] {
					return id, "eu", true
				}
			}
			return "", "", false
		},
		Free: func() int { return len(w.other) },
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { j.Close(context.WithoutCancel(w.t.Context())) })
	return j
}

// all reads a job to its end.
func (w *world) all(j *offer.Job) (text string, last llm.Event) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		events, err := j.Next(ctx, patience)
		require.NoError(w.t, err)
		for _, e := range events {
			text += e.Text
			if e.Last() {
				return text, e
			}
		}
	}
}

// served has an attempt answer, and the client gets that answer, whole and once.
func (w *world) served(j *offer.Job, a *attempt) {
	w.t.Helper()
	a.text("here")
	a.finish(done(), pricing.Finished)
	text, last := w.all(j)
	require.Equal(w.t, "here", text)
	require.Equal(w.t, llm.Done, last.Kind)
}

func TestAnEndThatComesAgainIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(false)
	h.claim()
	var told atomic.Int64
	end := func(attempt int) bool {
		return w.desk.Take("w1", bus.Frame{
			Job: "j1", Attempt: attempt, Seq: 1, Events: []llm.Event{{Kind: llm.Text, Text: "one"}, done()},
			End: &bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Completion: 2}},
		}, func() { told.Add(1) })
	}
	require.True(t, end(1))
	require.True(t, end(1), "the worker has not heard anything")
	require.False(t, end(2))
	text, _ := w.all(j)
	require.Equal(t, "one", text)
	require.Zero(t, told.Load())
	j.Booked()
	require.EqualValues(t, 1, told.Load())
	require.True(t, end(1))
	require.EqualValues(t, 2, told.Load(), "what is booked is told at once")
}

func TestAJobIsServedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(true)
	a := h.claim()
	require.Equal(t, "the work", a.body)
	a.text("one ")
	a.text("two")
	wanted := a.finish(done(), pricing.Finished)
	text, last := w.all(j)
	require.Empty(t, wanted, "the worker waits for the booking")
	j.Booked()
	j.Booked()
	require.True(t, <-wanted)
	require.Equal(t, "one two", text)
	require.Equal(t, int64(2), last.Usage.Completion)
	require.Equal(t, "w1", j.Result().Worker)
	j.Close(t.Context())
	require.Zero(t, w.desk.Count())
}

func TestASecondClaimIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	w.place(true)
	tk := h.ticket()
	for i, want := range []bus.Verdict{bus.Granted, bus.Taken, bus.Taken} {
		_, verdict, err := w.bus.Claim(t.Context(), tk, []string{"w1", "w2", "w1"}[i])
		require.NoError(t, err)
		require.Equal(t, want, verdict)
	}
	tk.Job = "j9"
	_, verdict, err := w.bus.Claim(t.Context(), tk, "w1")
	require.NoError(t, err)
	require.Equal(t, bus.Gone, verdict)
}

func TestAnotherWorkerTakesOverBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"streamed": true, "whole": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			first, second := w.worker("w1", true), w.worker("w2", false)
			w.other = []string{"w1", "w2"}
			j := w.place(stream)
			a := first.claim()
			if !stream {
				a.text("half of an answer that nobody has seen")
			}
			first.die()
			b := second.claim()
			// The dead worker's frames are nobody's business any more.
			require.NoError(t, a.s.Emit([]llm.Event{{Kind: llm.Text, Text: "ghost"}}))
			b.text("whole")
			b.finish(done(), pricing.Finished)
			text, last := w.all(j)
			require.Equal(t, "whole", text)
			require.Equal(t, llm.Done, last.Kind)
			require.Equal(t, 2, j.Result().Attempt)
			w.mu.Lock()
			defer w.mu.Unlock()
			require.True(t, w.dead["w1"])
		})
	}
}

func TestAnEndThatWasLostIsNoticed(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(w *world, h *hand){
		"by a probe": func(_ *world, h *hand) { h.expects("j1", 2) },
		"by a worker's own word": func(w *world, h *hand) {
			h.expects("j1", 2)
			other := []bus.Running{{Job: "ff", Attempt: 1}}
			require.Eventually(w.t, func() bool {
				gone, err := w.bus.StillWanted(w.t.Context(), "edge-1", h.id, other)
				return err == nil && len(gone) == 1 && w.desk.Count() == 1 && len(h.stops) > 0
			}, patience, 50*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *offer.Config) { c.Forgotten = 500 * time.Millisecond })
			h := w.worker("w1", true)
			h.expects("j1", 1)
			j := w.place(false)
			h.claim()
			tell(w, h)
			again := h.claim()
			w.served(j, again)
		})
	}
}

func TestAfterTheFirstByteALostWorkerIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.worker("w1", true)
	w.worker("w2", false)
	w.other = []string{"w1", "w2"}
	j := w.place(true)
	a := first.claim()
	a.text("seen")
	events, err := j.Next(t.Context(), patience)
	require.NoError(t, err)
	require.Equal(t, "seen", events[0].Text)
	first.die()
	_, last := w.all(j)
	require.Equal(t, fault.Engine, last.Fault.Code)
	require.Nil(t, j.Result().End)
}

func TestAGapEndsTheAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(true)
	a := h.claim()
	a.text("one")
	events, err := j.Next(t.Context(), patience)
	require.NoError(t, err)
	require.Equal(t, "one", events[0].Text)
	require.False(t, w.desk.Take("w1", bus.Frame{Job: "j1", Attempt: 1, Seq: 3, Events: []llm.Event{{Kind: llm.Text, Text: "three"}}}, nil))
	text, last := w.all(j)
	require.Empty(t, text)
	require.Equal(t, fault.Engine, last.Fault.Code)
	require.Equal(t, "j1", (<-h.stops).Job)
}

func TestAnEngineThatFailsIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first, second := w.worker("w1", true), w.worker("w2", false)
	w.other = []string{"w2"}
	j := w.place(true)
	failed := llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Engine, Message: "boom"}}
	first.claim().finish(failed, pricing.Failed)
	second.claim().finish(failed, pricing.Failed)
	_, last := w.all(j)
	require.Equal(t, "boom", last.Fault.Message, "nobody is left")
}

// The platform can be reached, or nobody would hear a worker say that its engine cannot.
func TestAWorkerWithoutItsEngineHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h1, h2 := w.worker("w1", true), w.worker("w2", false)
	w.other = []string{"w1", "w2"}
	j := w.place(true)
	for _, h := range []*hand{h1, h2} {
		h.claim().finish(llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Unavailable, Message: "the engine cannot be reached"}}, pricing.Failed)
	}
	_, last := w.all(j)
	require.Equal(t, fault.Engine, last.Fault.Code)
	require.Equal(t, "the engine cannot be reached", last.Fault.Message)
}

func TestABadRequestIsTriedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.worker("w1", true)
	w.other = []string{"w2"}
	j := w.place(true)
	first.claim().finish(llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Invalid, Message: "too long"}}, pricing.Failed)
	_, last := w.all(j)
	require.Equal(t, fault.Invalid, last.Fault.Code)
	require.Equal(t, 1, j.Result().Attempt)
}

func TestNobodyClaims(t *testing.T) {
	t.Parallel()
	t.Run("busy after the wait", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(c *offer.Config) { c.ClaimWait = 400 * time.Millisecond })
		_, last := w.all(w.place(true))
		require.Equal(t, fault.Busy, last.Fault.Code)
	})
	t.Run("a free worker is asked by name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		h := w.worker("w1", false) // does not pull the shared queue, as if another had the ticket and hung
		w.other = []string{"w1"}
		j := w.place(true)
		var served sync.WaitGroup
		served.Go(func() { h.claim().finish(done(), pricing.Finished) })
		_, last := w.all(j)
		require.Equal(t, llm.Done, last.Kind)
		served.Wait()
	})
}

func TestTheDeadlineEndsAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j, err := w.desk.Place(offer.Order{
		Ticket: bus.Ticket{Job: "j2", Region: "eu", Model: "glm-5.2", Class: bus.Open, Deadline: time.Now().Add(500 * time.Millisecond)},
		Stream: true,
		Other:  func(func(string) bool) (string, string, bool) { return "", "", false },
		Free:   func() int { return 0 },
	})
	require.NoError(t, err)
	defer j.Close(t.Context())
	h.claim()
	_, last := w.all(j)
	require.Equal(t, fault.Timeout, last.Fault.Code)
	require.Equal(t, "j2", (<-h.stops).Job)
}

func TestAClientThatLeavesPaysForWhatWasMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(true)
	a := h.claim()
	a.text("one")
	got := make(chan offer.Result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got <- j.Abandon(ctx)
	}()
	require.Equal(t, bus.Running{Job: "j1", Attempt: 1}, <-h.stops)
	a.finish(llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Canceled}}, pricing.Left)
	r := <-got
	require.Equal(t, pricing.Left, r.End.Outcome)
	require.Equal(t, int64(2), r.End.Usage.Completion)
}

func TestASlowClientIsBoundedAndPays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.QueueBytes = 10_000 })
	h := w.worker("w1", true)
	j := w.place(true)
	a := h.claim()
	for range 200 {
		a.text("0123456789")
	}
	require.Equal(t, "j1", (<-h.stops).Job)
	a.finish(llm.Event{Kind: llm.Failed}, pricing.Left)
	text, last := w.all(j)
	require.Empty(t, text, "an answer with a hole is never shown")
	require.Equal(t, fault.Canceled, last.Fault.Code)
	require.Equal(t, int64(2), j.Result().End.Usage.Completion)
}

func TestAnAnswerTooLargeForOnePieceIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.AnswerBytes = 10_000 })
	h := w.worker("w1", true)
	j := w.place(false)
	a := h.claim()
	for range 200 {
		a.text("0123456789")
	}
	require.Equal(t, "j1", (<-h.stops).Job)
	_, last := w.all(j)
	require.Equal(t, fault.TooLarge, last.Fault.Code)
	require.Nil(t, j.Result().End)
}

func TestAReplacedBodyRunsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(true)
	a := h.claim()
	a.text("with the old limit")
	require.NoError(t, j.Replace([]byte("less work")))
	require.Equal(t, 1, (<-h.stops).Attempt)
	b := h.claim()
	require.Equal(t, "less work", b.body)
	b.finish(done(), pricing.Finished)
	text, _ := w.all(j)
	require.Empty(t, text)
}
