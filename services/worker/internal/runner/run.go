package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// run is one job in a slot.
type run struct {
	r       *Runner
	d       *bus.Delivery // nil when the job was dispatched
	ticket  bus.Ticket
	began   time.Time
	attempt int
	// free gives the slot back, once.
	free func()
	// stop ends the attempt, or the wait for its booking. Runner.mu guards it.
	stop context.CancelCauseFunc
}

// id names the attempt. An earlier one of the same job may not be over yet.
func (j *run) id() bus.Running { return bus.Running{Job: j.ticket.Job, Attempt: j.attempt} }

// serve claims the job, runs it and ends the ticket.
func (j *run) serve() {
	if time.Now().After(j.ticket.Deadline) {
		j.end(j.d.Drop)
		return
	}
	work, verdict, err := j.claim()
	switch {
	case bus.Vanished(err):
		j.end(j.d.Drop) // nobody will ever read an answer
	case err != nil:
		j.r.log.Warn("job not claimed", "job", j.ticket.Job, "error", err)
		j.end(func() error { return j.d.Nak(claimPause) })
	case verdict == bus.Barred:
		j.end(func() error { return j.d.Nak(barredPause) })
	case verdict != bus.Granted:
		j.end(j.d.Ack)
	default:
		j.work(work)
		j.end(j.d.Ack)
	}
}

func (j *run) end(how func() error) {
	if err := how(); err != nil {
		j.r.log.Warn("ticket not ended", "job", j.ticket.Job, "error", err)
	}
}

func (j *run) claim() (bus.Work, bus.Verdict, error) {
	return j.r.bus.Claim(j.r.work, j.ticket, j.r.cfg.Worker)
}

// body fetches what is to be done. Bodies under way are bounded; a job that waits
// for its turn is this worker's already.
func (j *run) body(ctx context.Context, w bus.Work) ([]byte, error) {
	if far := min(w.Far(), claimBytesMax); far > 0 {
		if err := j.r.bytes.Acquire(ctx, far); err != nil {
			return nil, err
		}
		defer j.r.bytes.Release(far)
	}
	return j.r.bus.Body(ctx, j.ticket, j.r.cfg.Worker, w)
}

// work runs a granted attempt to its end.
func (j *run) work(w bus.Work) {
	j.attempt = w.Attempt
	stream, err := j.r.bus.Stream(j.ticket, j.r.cfg.Worker, w.Attempt)
	if err != nil {
		j.r.log.Error("frames have no way", "job", j.ticket.Job, "error", err)
		return
	}
	defer stream.Close()
	ctx, stop := j.watched(bus.WithTraceparent(j.r.work, j.ticket.Trace))
	defer stop(nil)
	events, end := j.attend(ctx, w, stream)
	// The engine is free: the next job may come while this one is booked.
	j.free()
	ctx, stop = j.watched(context.WithoutCancel(j.r.books))
	defer stop(nil)
	// A worker that must go waits a moment longer, and reports the job.
	cut := context.AfterFunc(j.r.books, func() { time.AfterFunc(leaveWait, func() { stop(errStopping) }) })
	defer cut()
	j.finish(ctx, stream, events, end)
	j.r.mu.Lock()
	delete(j.r.running, j.id())
	j.r.mu.Unlock()
}

// watched gives a context that ends when the owner cancels the attempt or dies.
func (j *run) watched(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	j.r.mu.Lock()
	defer j.r.mu.Unlock()
	j.stop = stop
	j.r.running[j.id()] = j
	return ctx, stop
}

// attend runs the engine until the answer's end, and gives what is still to be
// sent, the last event included.
func (j *run) attend(ctx context.Context, w bus.Work, stream *bus.Stream) ([]llm.Event, bus.End) {
	ctx, cancel := context.WithDeadlineCause(ctx, j.ticket.Deadline, errDeadline)
	defer cancel()
	ctx, span := j.r.tracer.Start(ctx, "job", trace.WithAttributes(
		attribute.String("engy.job", j.ticket.Job), attribute.String("engy.model", j.ticket.Model)))
	defer span.End()
	var events []llm.Event
	var usage llm.Usage
	body, err := j.body(ctx, w)
	if err == nil {
		events, usage, err = j.generate(ctx, body, stream)
	}
	if err == nil {
		return events, bus.End{Outcome: pricing.Finished, Usage: usage}
	}
	// The words of an engine may repeat the prompt.
	j.r.log.Info("job ended early", "job", j.ticket.Job, "attempt", j.attempt, "code", string(fault.Of(err).Code))
	last, outcome := conclude(context.Cause(ctx), err)
	return append(events, last), bus.End{Outcome: outcome, Usage: usage}
}

// generate drives the engine. A panic in here ends this job only.
func (j *run) generate(ctx context.Context, body []byte, stream *bus.Stream) (rest []llm.Event, usage llm.Usage, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.r.log.Error("panic", "job", j.ticket.Job, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "the worker failed")
		}
	}()
	var req llm.Request
	if err := bus.Unmarshal(body, &req); err != nil {
		return nil, usage, err
	}
	name := ""
	for _, m := range j.r.cfg.Models {
		if m.ID == req.Model {
			name = m.Name
		}
	}
	if name == "" || req.Model != j.ticket.Model {
		return nil, usage, fault.New(fault.Engine, "this worker does not serve the model")
	}
	b := newBatch(stream, req.Stream)
	var done llm.Event
	usage, err = j.r.engine.Generate(ctx, name, &req, func(e llm.Event) error {
		if e.Last() {
			done = e
			return nil
		}
		return b.add(e)
	})
	rest = b.rest()
	if err == nil {
		rest = append(rest, done)
		j.r.mind(usage)
	}
	return rest, usage, err
}

// conclude says how an attempt that did not come to its end is told.
func conclude(cause, err error) (llm.Event, pricing.Outcome) {
	outcome := pricing.Failed
	switch {
	case errors.Is(cause, errUnwanted):
		outcome, err = pricing.Left, errUnwanted
	case cause != nil:
		err = cause
	}
	f := fault.Of(err)
	return llm.Event{Kind: llm.Failed, Fault: llm.FaultOf(f)}, outcome
}

// finish hands the end to the owner, and writes a report when the owner does not
// say that the job is booked: then only this worker knows how it ended.
func (j *run) finish(ctx context.Context, stream *bus.Stream, events []llm.Event, end bus.End) {
	took := time.Since(j.began)
	ctx, cancel := context.WithTimeout(ctx, bookedWait)
	defer cancel()
	_, err := stream.Finish(ctx, events, end)
	if err == nil || errors.Is(context.Cause(ctx), errUnwanted) {
		return
	}
	j.r.log.Warn("job not booked, reporting it", "job", j.ticket.Job, "error", err)
	report := bus.Report{
		Job: j.ticket.Job, Attempt: j.attempt, Worker: j.r.cfg.Worker, Owner: j.ticket.Owner, Model: j.ticket.Model,
		Outcome: end.Outcome, Tokens: end.Usage, Time: time.Now().UTC(), EngineMS: took.Milliseconds(),
	}
	if err := j.r.bus.WriteReport(report); err != nil {
		j.r.log.Error("report not written", "job", j.ticket.Job, "error", err)
	}
}
