package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// run is one ticket in a slot.
type run struct {
	r       *Runner
	d       *bus.Delivery
	ticket  bus.Ticket
	began   time.Time
	attempt int
	stop    context.CancelCauseFunc
}

// serve claims the job, runs it and ends the ticket.
func (j *run) serve() {
	if time.Now().After(j.ticket.Deadline) {
		j.end(j.d.Drop)
		return
	}
	j.r.mu.Lock()
	_, twice := j.r.running[j.ticket.Job]
	j.r.mu.Unlock()
	if twice {
		// The same job was delivered again while it runs here.
		j.end(j.d.Ack)
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
	size := min(max(1, j.ticket.BodyBytes), claimBytesMax)
	if err := j.r.bytes.Acquire(j.r.work, size); err != nil {
		return bus.Work{}, "", err
	}
	defer j.r.bytes.Release(size)
	return j.r.bus.Claim(j.r.work, j.ticket, j.r.cfg.Worker)
}

// work runs a granted attempt to its end.
func (j *run) work(w bus.Work) {
	j.attempt = w.Attempt
	ctx, stop := context.WithCancelCause(bus.WithTraceparent(j.r.work, j.ticket.Trace))
	defer stop(nil)
	ctx, cancel := context.WithDeadlineCause(ctx, j.ticket.Deadline, errDeadline)
	defer cancel()
	ctx, span := otel.Tracer("worker").Start(ctx, "job", trace.WithAttributes(
		attribute.String("engy.job", j.ticket.Job), attribute.String("engy.model", j.ticket.Model)))
	defer span.End()
	j.stop = stop
	j.r.mu.Lock()
	j.r.running[j.ticket.Job] = j
	j.r.mu.Unlock()
	defer func() {
		j.r.mu.Lock()
		delete(j.r.running, j.ticket.Job)
		j.r.mu.Unlock()
	}()
	stream, err := j.r.bus.Stream(j.ticket, j.r.cfg.Worker, w.Attempt)
	if err != nil {
		j.r.log.Error("frames have no way", "job", j.ticket.Job, "error", err)
		return
	}
	defer stream.Close()

	events, usage, err := j.generate(ctx, w.Body, stream)
	last, end := conclude(context.Cause(ctx), err, usage)
	if err != nil {
		j.r.log.Info("job ended early", "job", j.ticket.Job, "attempt", j.attempt, "error", err)
	}
	j.finish(stream, append(events, last), end)
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
	}
	return rest, usage, err
}

// conclude says how an attempt ended.
func conclude(cause, err error, usage llm.Usage) (llm.Event, bus.End) {
	end := bus.End{Outcome: pricing.Failed, Usage: usage}
	switch {
	case err == nil:
		end.Outcome = pricing.Finished
		return llm.Event{}, end
	case errors.Is(cause, errUnwanted):
		end.Outcome = pricing.Left
		err = errUnwanted
	case cause != nil:
		err = cause
	}
	f := fault.Of(err)
	return llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: f.Code, Message: f.Message}}, end
}

// finish hands the end to the owner and writes the report.
func (j *run) finish(stream *bus.Stream, events []llm.Event, end bus.End) {
	if n := len(events); n > 0 && events[n-1].Kind == "" {
		events = events[:n-1]
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.r.work), finishWait)
	defer cancel()
	_, err := stream.Finish(ctx, events, end)
	if err != nil {
		j.r.log.Warn("end not taken", "job", j.ticket.Job, "error", err)
	}
	// An owner that answers settles the job itself, also when it wanted no more
	// of it; one that is silent may be dead, and then the report decides.
	report := bus.Report{
		Job: j.ticket.Job, Attempt: j.attempt, Worker: j.r.cfg.Worker, Model: j.ticket.Model,
		Orphan: err != nil, Outcome: end.Outcome, Tokens: end.Usage, Time: time.Now().UTC(),
		EngineMS: time.Since(j.began).Milliseconds(),
	}
	if err := j.r.bus.WriteReport(report); err != nil {
		j.r.log.Error("report not written", "job", j.ticket.Job, "error", err)
	}
}
