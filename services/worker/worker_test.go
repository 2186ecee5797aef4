package worker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/worker"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is an OpenAI-compatible engine of a few lines.
type engine struct {
	*httptest.Server
	calls, running atomic.Int64
	down, dead     atomic.Bool
	// release lets slow answers go on.
	release chan struct{}
}

func newEngine(t *testing.T) *engine {
	e := &engine{release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		if e.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"big/model","object":"model","owned_by":"vllm","max_model_len":8192}]}`))
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if e.dead.Load() {
			panic(http.ErrAbortHandler) // the connection ends without a word
		}
		if e.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, r *http.Request) {
		// Only who has read the request hears that the client is gone.
		_, _ = io.Copy(io.Discard, r.Body)
		if e.down.Load() {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"count":11}`))
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		e.calls.Add(1)
		e.running.Add(1)
		defer e.running.Add(-1)
		write := func(s string) {
			_, _ = w.Write([]byte("data: " + s + "\n\n"))
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Content-Type", "text/event-stream")
		write(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"one "}}]}`)
		select {
		case <-e.release:
		case <-r.Context().Done():
			return
		}
		write(`{"choices":[{"index":0,"delta":{"content":"two"},"finish_reason":"stop"}]}`)
		write(`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}`)
		write(`[DONE]`)
	})
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

// world is a real worker on a real bus, with an owner of a few lines.
type world struct {
	t      *testing.T
	bus    *bus.Bus
	engine *engine
	stop   func()

	mu      sync.Mutex
	fleet   map[string]bus.Heartbeat
	bodies  map[string][]byte
	granted map[string]int
	texts   map[string]string
	ends    map[string]bus.End
	reports chan bus.Report
	// declined gets the jobs that were dispatched and not taken.
	declined chan string
	deaf     bool // takes ends and never books them
	again    bool // grants a job as often as it is asked for
}

func newWorld(t *testing.T, change func(*worker.Config)) *world {
	t.Helper()
	w := &world{
		t: t, bus: bustest.New(t), engine: newEngine(t), fleet: map[string]bus.Heartbeat{}, bodies: map[string][]byte{},
		granted: map[string]int{}, texts: map[string]string{}, ends: map[string]bus.End{}, reports: make(chan bus.Report, 10),
		declined: make(chan string, 100_000),
	}
	w.run(func(ctx context.Context) error {
		return w.bus.WatchFleet(ctx, func() {}, func(h bus.Heartbeat) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.fleet[h.Worker] = h
		}, func(id, _ string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.fleet, id)
		})
	})
	w.run(func(ctx context.Context) error {
		return w.bus.Orphans(ctx, "test", func(_ context.Context, r bus.Report) error { w.reports <- r; return nil })
	})
	cfg := worker.Config{
		Name: "w", Region: "eu", Engine: w.engine.URL, Models: []string{"glm-5.2=big/model"}, Slots: 2,
		ZDR: true, Idle: time.Minute, Grace: 5 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	w.stop = w.run(func(ctx context.Context) error {
		return worker.Run(ctx, cfg, worker.Deps{Bus: w.bus, Log: slog.New(slog.DiscardHandler)})
	})
	return w
}

func (w *world) run(f func(ctx context.Context) error) (stop func()) { return bustest.Run(w.t, f) }

// own answers for the owner of the tickets until the function is called.
func (w *world) own() (die func()) {
	ready := make(chan struct{})
	die = w.run(func(ctx context.Context) error { return w.bus.Own(ctx, "edge-1", w, func() { close(ready) }) })
	<-ready
	return die
}

func (w *world) Grant(c bus.Claim) (bus.Grant, []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	body, ok := w.bodies[c.Job]
	if !ok {
		return bus.Grant{Verdict: bus.Gone}, nil
	}
	if w.granted[c.Job]++; w.granted[c.Job] > 1 && !w.again {
		return bus.Grant{Verdict: bus.Taken}, nil
	}
	return bus.Grant{Verdict: bus.Granted, Attempt: w.granted[c.Job]}, body
}

func (w *world) Body(bus.Claim) []byte { return nil }

func (w *world) Declined(_, job string, _ int, _ bool) { w.declined <- job }

func (w *world) Take(_ string, f bus.Frame, booked func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range f.Events {
		if e.Kind == llm.Text {
			w.texts[f.Job] += e.Text
		}
	}
	if f.End != nil {
		w.ends[f.Job] = *f.End
		if !w.deaf {
			booked()
		}
	}
	return true
}

func (w *world) Alive(_ string, running []bus.Running) (gone []bus.Running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range running {
		if _, ok := w.bodies[r.Job]; !ok {
			gone = append(gone, r)
		}
	}
	return gone
}

// body gives the work of a job, which its owner wants from then on.
func (w *world) body(job string) []byte {
	w.t.Helper()
	body, err := bus.Marshal(&llm.Request{
		Model: "glm-5.2", Stream: true, MaxTokens: 5,
		Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim("hi")}}}},
	})
	require.NoError(w.t, err)
	w.mu.Lock()
	w.bodies[job] = body
	w.mu.Unlock()
	return body
}

func (w *world) offer(job string, offer int) {
	w.t.Helper()
	body := w.body(job)
	_, err := w.bus.Offer(bus.Ticket{
		Job: job, Owner: "edge-1", Region: "eu", Model: "glm-5.2", Class: bus.ZDR, Offer: offer,
		BodyBytes: int64(len(body)), Deadline: time.Now().Add(time.Minute),
	}, func(err error) {
		if err != nil {
			w.t.Error(err)
		}
	})
	require.NoError(w.t, err)
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return ok()
	}, patience, 5*time.Millisecond, what)
}

func TestAJobRunsToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	w.offer("j1", 1)
	w.eventually("the first word has come", func() bool { return w.texts["j1"] == "one " })
	close(w.engine.release)
	w.eventually("the end has come", func() bool { return w.ends["j1"].Outcome == pricing.Finished })
	require.Equal(t, "one two", w.texts["j1"])
	require.Equal(t, llm.Usage{Prompt: 7, Completion: 2}, w.ends["j1"].Usage)
	require.Empty(t, w.reports, "a job that is booked needs no report")
}

func TestAnEndThatIsNotBookedIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.deaf = true
	die := w.own()
	close(w.engine.release)
	for i := range 3 {
		w.offer(fmt.Sprintf("j%d", i), 1)
	}
	// Slots are free once the engine is, whatever the booking takes.
	w.eventually("the ends have come", func() bool { return len(w.ends) == 3 })
	require.Empty(t, w.reports)
	die()
	for range 3 {
		r := <-w.reports
		require.Equal(t, pricing.Finished, r.Outcome)
		require.Equal(t, llm.Usage{Prompt: 7, Completion: 2}, r.Tokens)
	}
}

func TestAnEndIsSentAgainUntilItIsBooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Grace = patience })
	w.deaf = true // as if a server of the bus had died with the end
	w.own()
	close(w.engine.release)
	w.offer("j1", 1)
	w.eventually("the end has come", func() bool { return len(w.ends) == 1 })
	w.mu.Lock()
	w.deaf = false
	w.mu.Unlock()
	w.stop()
	require.Empty(t, w.reports)
}

func TestASecondDeliveryRunsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	w.offer("j1", 2)
	w.offer("j2", 1)
	w.eventually("the next job runs", func() bool { return w.texts["j2"] != "" })
	require.Equal(t, int64(2), w.engine.calls.Load())
	close(w.engine.release)
	w.eventually("both end", func() bool { return len(w.ends) == 2 })
	require.Equal(t, int64(2), w.engine.calls.Load())
}

// An attempt that its owner has given up may still wait for the owner's word when
// the job comes again.
func TestTheNextAttemptDoesNotWaitForTheEndOfTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Slots = 1 })
	w.deaf, w.again = true, true
	w.own()
	close(w.engine.release)
	w.offer("j1", 1)
	w.eventually("the first end has come", func() bool { return len(w.ends) == 1 })
	w.mu.Lock()
	clear(w.ends)
	w.deaf = false
	w.mu.Unlock()
	w.offer("j1", 2)
	w.eventually("the second end has come", func() bool { return w.granted["j1"] == 2 && len(w.ends) == 1 })
	require.EqualValues(t, 2, w.engine.calls.Load())
}

func TestNoMoreJobsThanSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	for i := range 5 {
		w.offer(fmt.Sprintf("j%d", i), 1)
	}
	w.eventually("both slots are full", func() bool { return len(w.texts) == 2 })
	w.mu.Lock()
	require.Len(t, w.granted, 2, "no third claim while both are full")
	w.mu.Unlock()
	close(w.engine.release)
	w.eventually("all are done", func() bool { return len(w.ends) == 5 })
}

func TestACancelReachesTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" && len(w.fleet) == 1 })
	var id string
	for k := range w.fleet {
		id = k
	}
	require.NoError(t, w.bus.Cancel(id, bus.Running{Job: "j1", Attempt: 1}))
	w.eventually("the end says what was produced", func() bool { return w.ends["j1"].Outcome == pricing.Left })
	require.Equal(t, int64(1), w.ends["j1"].Usage.Completion)
	require.Eventually(t, func() bool { return w.engine.running.Load() == 0 }, patience, 5*time.Millisecond)
}

func TestAJobThatNobodyWantsIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	w.mu.Lock()
	delete(w.bodies, "j1") // and the cancel was lost
	w.mu.Unlock()
	w.eventually("the worker asks and stops", func() bool { return w.ends["j1"].Outcome == pricing.Left })
}

func TestADeadOwnersJobIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	die := w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	die()
	r := <-w.reports
	require.Equal(t, pricing.Failed, r.Outcome)
	require.Equal(t, "j1", r.Job)
	// A ticket of a dead owner is dropped, and the next owner's is served.
	w.offer("j2", 1)
	w.own()
	w.offer("j3", 1)
	w.eventually("the new owner's job runs", func() bool { return w.texts["j3"] != "" })
}

func TestAnEngineThatIsDownIsNotInTheFleet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.eventually("the worker has joined", func() bool { return len(w.fleet) == 1 })
	for _, h := range w.fleet {
		require.Equal(t, "vllm", h.Engine)
		require.Equal(t, int64(8192), h.Window)
		require.Equal(t, []bus.Class{bus.Open, bus.ZDR}, h.Classes)
	}
	var first string
	for k := range w.fleet {
		first = k
	}
	w.engine.down.Store(true)
	w.eventually("the worker has left", func() bool { return len(w.fleet) == 0 })
	w.engine.down.Store(false)
	w.eventually("the worker is back, under another id", func() bool { _, same := w.fleet[first]; return len(w.fleet) == 1 && !same })
}

func TestAnEngineThatIsLostHoldsNoJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Grace = time.Hour })
	w.deaf = true
	w.own()
	w.offer("over", 1)
	w.eventually("the first job runs", func() bool { return w.texts["over"] != "" })
	w.engine.release <- struct{}{}
	w.eventually("its end has come", func() bool { return w.ends["over"].Outcome == pricing.Finished })
	w.offer("held", 1)
	w.eventually("the second job runs", func() bool { return w.texts["held"] != "" })
	w.engine.dead.Store(true)
	w.eventually("the held job is given up", func() bool { return w.ends["held"].Outcome == pricing.Failed })
	w.eventually("the fleet is left", func() bool { return len(w.fleet) == 0 })
	require.Empty(t, w.reports, "what is over still waits for its booking")
	w.mu.Lock()
	w.deaf = false
	w.mu.Unlock()
	w.engine.dead.Store(false)
	w.eventually("the worker is back", func() bool { return len(w.fleet) == 1 })
	require.Empty(t, w.reports)
}

// An engine that says that it is not well may still finish what it has.
func TestAnEngineThatIsNotWellFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Grace = time.Hour })
	w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" && len(w.fleet) == 1 })
	w.engine.down.Store(true)
	w.eventually("the worker has left", func() bool { return len(w.fleet) == 0 })
	close(w.engine.release)
	w.eventually("the job is finished", func() bool { return w.ends["j1"].Outcome == pricing.Finished })
}

func TestAStopFinishesWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	w.eventually("the fleet is left at once", func() bool { return len(w.fleet) == 0 })
	w.offer("j2", 1)
	close(w.engine.release)
	<-stopped
	require.Equal(t, pricing.Finished, w.ends["j1"].Outcome)
	require.Zero(t, w.granted["j2"])
}

func TestAStopsGraceEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Grace = 100 * time.Millisecond })
	w.own()
	w.offer("j1", 1)
	w.eventually("the job runs", func() bool { return w.texts["j1"] != "" })
	w.stop()
	w.eventually("the end has come", func() bool { return w.ends["j1"].Outcome == pricing.Failed })
}

func TestAStopsGraceEndsTheWaitForABooking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worker.Config) { c.Grace = 100 * time.Millisecond })
	w.deaf = true
	w.own()
	close(w.engine.release)
	w.offer("j1", 1)
	w.eventually("the end has come", func() bool { return len(w.ends) == 1 })
	w.stop()
	require.Equal(t, pricing.Finished, (<-w.reports).Outcome)
}

func TestASettingIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	good := worker.Config{Region: "eu", Engine: "http://x", Slots: 1, Idle: 1, Models: []string{"a", "a=b"}}
	require.NoError(t, good.Validate())
	for _, bad := range []func(*worker.Config){
		func(c *worker.Config) { c.Region = "mars" },
		func(c *worker.Config) { c.Engine = "ftp://x" },
		func(c *worker.Config) { c.Engine = "nonsense" },
		func(c *worker.Config) { c.Slots = 0 },
		func(c *worker.Config) { c.Slots = worker.SlotsMax + 1 },
		func(c *worker.Config) { c.Models = []string{"a="} },
		func(c *worker.Config) { c.Idle = 0 },
	} {
		c := good
		bad(&c)
		err := c.Validate()
		require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	}
}
