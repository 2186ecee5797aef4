// Package runner is the worker's loop: take a job that an edge sends, or pull a
// ticket and claim the work; drive the engine, emit what comes, report,
// acknowledge. It takes no more than it has free slots, stops what nobody wants,
// and on a stop signal finishes what it holds. Which engine it drives and what
// requests mean do not live here.
//
// The invariant: a ticket is acknowledged only after its job is over, and
// heartbeats tell how many jobs came without one, so what the queues hold and
// those are the demand that autoscalers read.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine"
)

// Model is one model that this worker serves.
type Model struct {
	// ID is the catalogue's name, Name the engine's.
	ID         string
	Name       string
	Window     int64
	Modalities []string
	Features   []string
}

// Config says who the worker is and what it serves.
type Config struct {
	// Worker is unique for this start of the process; Name is the operator's.
	Worker  string
	Name    string
	Region  string
	Classes []bus.Class
	Kind    string
	Models  []Model
	Slots   int
	// Grace is how long jobs may go on after a stop, unless their engine is lost.
	Grace time.Duration
}

// Runner runs jobs. Use New.
type Runner struct {
	cfg    Config
	bus    *bus.Bus
	engine engine.Engine
	log    *slog.Logger
	tracer trace.Tracer
	bytes  *semaphore.Weighted
	jobs   sync.WaitGroup
	// work is the context of running jobs: it outlives the pulling. What is over and
	// not booked yet lives in books, which outlives an engine that is lost.
	work, books context.Context

	mu      sync.Mutex
	running map[bus.Running]*run
	used    int
	sent    int             // how many of used were dispatched
	owed    time.Time       // until when a ticket that was given back has the next slot
	wakes   []chan struct{} // one a queue
	stopped bool
	// minded tells that the log has a word on an engine that does not count.
	minded bool
	// silent counts how often in a row an owner could not be found: one that has
	// just reconnected is not dead.
	silent map[string]int
}

// Causes of the end of a job that did not come from its engine.
var (
	errUnwanted = fault.New(fault.Canceled, "nobody wants the job any more")
	errOrphaned = fault.New(fault.Unavailable, "the owner died")
	errStopping = fault.New(fault.Engine, "the worker is stopping")
	errDeadline = fault.New(fault.Timeout, "the request took too long")
)

// New prepares a runner.
func New(cfg Config, b *bus.Bus, e engine.Engine, log *slog.Logger) *Runner {
	r := &Runner{
		cfg: cfg, bus: b, engine: e, log: log, tracer: otel.Tracer("worker"),
		bytes: semaphore.NewWeighted(claimBytesMax), running: map[bus.Running]*run{}, silent: map[string]int{},
	}
	for range r.queues() {
		r.wakes = append(r.wakes, make(chan struct{}, 1))
	}
	return r
}

// Run serves until ctx ends, then drains: pulls nothing more, leaves the fleet,
// and lets jobs finish for the grace. With engine.ErrLost as the cause they end at
// once, and their owners may give them to somebody else.
func (r *Runner) Run(ctx context.Context) error {
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	books, cut := context.WithCancelCause(back)
	defer cut(nil)
	work, lose := context.WithCancelCause(books)
	defer lose(nil)
	r.work, r.books = work, books

	group, back := errgroup.WithContext(back)
	pulling, halt := context.WithCancel(ctx)
	defer halt()
	const subscriptions = 2
	ready := make(chan struct{}, subscriptions)
	up := func() { ready <- struct{}{} }
	group.Go(func() error { return r.bus.Cancels(back, r.cfg.Worker, r.cancel, r.runs, up) })
	group.Go(func() error { return r.bus.Dispatches(back, r.cfg.Worker, r.dispatched, up) })
	group.Go(func() error { return r.bus.ServeTokens(back, r.cfg.Worker, r.count) })
	group.Go(func() error { return r.every(back, aliveEvery, r.alive) })
	group.Go(func() error { return r.every(back, bus.ProgressEvery, r.progress) })
	group.Go(func() error {
		defer stop()
		for range subscriptions {
			select {
			case <-ready:
			case <-back.Done():
				return nil
			}
		}
		pull, pulling := errgroup.WithContext(pulling)
		for i, q := range r.queues() {
			pull.Go(func() error { return r.bus.Pull(pulling, q, r.free, r.wakes[i], r.take) })
		}
		pull.Go(func() error { return r.every(pulling, bus.HeartbeatEvery, r.beat) })
		pull.Go(func() error { <-back.Done(); halt(); return nil })
		pull.Go(func() error {
			r.beat(pulling)
			<-pulling.Done()
			r.drain(context.Cause(ctx), lose, cut)
			stop()
			return nil
		})
		return pull.Wait()
	})
	return group.Wait()
}

// queues lists what is pulled: every class of every model, and what is offered
// to this worker by name.
func (r *Runner) queues() []bus.Queue {
	queues := []bus.Queue{{Region: r.cfg.Region, Worker: r.cfg.Worker}}
	for _, m := range r.cfg.Models {
		for _, c := range r.cfg.Classes {
			queues = append(queues, bus.Queue{Region: r.cfg.Region, Model: m.ID, Class: c})
		}
	}
	return queues
}

// drain ends the worker's part in the fleet and waits for its jobs.
func (r *Runner) drain(cause error, lose, cut context.CancelCauseFunc) {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	if errors.Is(cause, engine.ErrLost) {
		lose(engine.ErrLost) // nothing more will come
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.books), leaveWait)
	defer cancel()
	for _, m := range r.cfg.Models {
		if err := r.bus.Leave(ctx, r.cfg.Worker, m.ID); err != nil {
			r.log.Warn("fleet not left", "model", m.ID, "error", err)
		}
	}
	late := time.AfterFunc(r.cfg.Grace, func() { cut(errStopping) })
	defer late.Stop()
	r.jobs.Wait()
}

func (r *Runner) every(ctx context.Context, d time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Runner) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return 0
	}
	return r.cfg.Slots - r.used
}

// take puts a ticket into a slot, or gives it back when all are full.
func (r *Runner) take(d *bus.Delivery) {
	r.mu.Lock()
	ok := r.slot()
	if !ok {
		r.owed = time.Now().Add(2 * fullPause)
	}
	r.mu.Unlock()
	if !ok {
		if err := d.Nak(fullPause); err != nil {
			r.log.Warn("ticket not given back", "job", d.Ticket.Job, "error", err)
		}
		return
	}
	go r.occupy(&run{r: r, d: d, ticket: d.Ticket}, (*run).serve)
}

// dispatched puts a job that an edge sent unasked into a slot, if there is one.
func (r *Runner) dispatched(t bus.Ticket, w bus.Work) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[bus.Running{Job: t.Job, Attempt: w.Attempt}] != nil {
		return true // it came twice
	}
	if time.Now().Before(r.owed) || !r.slot() {
		return false
	}
	r.sent++
	go r.occupy(&run{r: r, ticket: t}, func(j *run) { j.work(w) })
	return true
}

// slot takes a free slot, if there is one. The lock is held.
func (r *Runner) slot() bool {
	if r.stopped || r.used >= r.cfg.Slots {
		return false
	}
	r.used++
	r.jobs.Add(1)
	return true
}

// occupy runs a job in the slot that was taken for it.
func (r *Runner) occupy(j *run, do func(*run)) {
	defer r.jobs.Done()
	j.began = time.Now()
	j.free = sync.OnceFunc(func() { r.release(j.d == nil) })
	defer j.free()
	do(j)
}

// release frees a slot and wakes the pullers.
func (r *Runner) release(sent bool) {
	r.mu.Lock()
	r.used--
	if sent {
		r.sent--
	}
	r.mu.Unlock()
	for _, w := range r.wakes {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// mind warns once of an engine whose answers come without a count of their prompt.
func (r *Runner) mind(u llm.Usage) {
	r.mu.Lock()
	first := u.Prompt == 0 && !r.minded
	r.minded = r.minded || first
	r.mu.Unlock()
	if first {
		r.log.Warn("the engine does not tell how long prompts are: they are charged by an estimate", "engine", r.cfg.Kind)
	}
}

func (r *Runner) beat(ctx context.Context) {
	r.mu.Lock()
	used, sent := r.used, r.sent
	r.mu.Unlock()
	for _, m := range r.cfg.Models {
		err := r.bus.Beat(ctx, bus.Heartbeat{
			Worker: r.cfg.Worker, Name: r.cfg.Name, Model: m.ID, Region: r.cfg.Region, Classes: r.cfg.Classes,
			Engine: r.cfg.Kind, Slots: r.cfg.Slots, InFlight: used, Dispatched: sent, Window: m.Window,
			Modalities: m.Modalities, Features: m.Features, Time: time.Now().UTC(),
		})
		if err != nil && ctx.Err() == nil {
			r.log.Warn("heartbeat not written", "model", m.ID, "error", err)
		}
	}
}

// count has the engine count a prompt, as a favour: no slot is taken.
func (r *Runner) count(ctx context.Context, prompt []byte) (tokens int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("panic", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "the worker failed")
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	var req llm.Request
	if err := bus.Unmarshal(prompt, &req); err != nil {
		return 0, err
	}
	for _, m := range r.cfg.Models {
		if m.ID == req.Model {
			return r.engine.Count(ctx, m.Name, &req)
		}
	}
	return 0, fault.New(fault.Engine, "this worker does not serve the model")
}

// cancel stops an attempt that its owner does not want.
func (r *Runner) cancel(w bus.Running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.running[w]; j != nil {
		j.stop(errUnwanted)
	}
}

// alive asks each owner about its jobs, and stops those that it does not want;
// all of them when the owner is dead.
func (r *Runner) alive(ctx context.Context) {
	owners := map[string][]bus.Running{}
	r.mu.Lock()
	for a, j := range r.running {
		owners[j.ticket.Owner] = append(owners[j.ticket.Owner], a)
	}
	maps.DeleteFunc(r.silent, func(owner string, _ int) bool { return owners[owner] == nil })
	r.mu.Unlock()
	var asks sync.WaitGroup
	for owner, jobs := range owners {
		asks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, aliveWait)
			defer cancel()
			gone, err := r.bus.StillWanted(ctx, owner, r.cfg.Worker, jobs)
			for _, w := range gone {
				r.cancel(w)
			}
			if r.missed(owner, bus.Vanished(err)) {
				r.log.Warn("owner died", "owner", owner, "jobs", len(jobs))
				for _, w := range jobs {
					r.orphan(w)
				}
			}
		})
	}
	asks.Wait()
}

// missed counts a silence of an owner, and tells whether it is dead. On a new
// connection silence means nothing: the owner's may take longer.
func (r *Runner) missed(owner string, silent bool) bool {
	silent = silent && !r.bus.Fresh()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !silent {
		delete(r.silent, owner)
		return false
	}
	r.silent[owner]++
	dead := r.silent[owner] >= silencesMax
	if dead {
		delete(r.silent, owner)
	}
	return dead
}

// runs lists the attempts of an owner that run here.
func (r *Runner) runs(owner string) []bus.Running {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []bus.Running
	for a, j := range r.running {
		if j.ticket.Owner == owner {
			list = append(list, a)
		}
	}
	return list
}

func (r *Runner) orphan(w bus.Running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.running[w]; j != nil {
		j.stop(errOrphaned)
	}
}

// progress keeps the tickets of running jobs.
func (r *Runner) progress(context.Context) {
	r.mu.Lock()
	var held []*bus.Delivery
	for _, j := range r.running {
		if j.d != nil {
			held = append(held, j.d)
		}
	}
	r.mu.Unlock()
	for _, d := range held {
		if err := d.Progress(); err != nil {
			r.log.Warn("progress not told", "job", d.Ticket.Job, "error", err)
		}
	}
}
