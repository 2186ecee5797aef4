package offer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Order is a job to be offered.
type Order struct {
	// Ticket names the first worker to be asked, if it must not be just any.
	Ticket bus.Ticket
	Body   []byte
	// Stream tells that events reach the client as they come; else none does
	// before the last, and an attempt may be repeated until then.
	Stream bool
	// Dispatch names a worker with a free slot that gets the job unasked, false
	// when the queue gets it. Nil means the queue.
	Dispatch func() (worker string, ok bool)
	// Hold asks for the job's money. It is called once: HoldAfter after the job was
	// placed, at its first frame when that comes earlier, or at once when many are
	// put off. It must not block. Nil means nothing.
	Hold func()
	// Other names a live worker that may serve and that except does not rule
	// out.
	Other func(except func(worker string) bool) (worker, region string, ok bool)
	// Free counts the free slots that could serve.
	Free func() int
	// Fits tells whether a worker that asks for the job can do it: who pulls a ticket
	// may have come after it was offered to anybody. Nil means that all can.
	Fits func(worker string) bool
}

// Job is one job on its way. Next and Abandon are for one goroutine.
type Job struct {
	d     *Desk
	order Order
	wake  chan struct{} // capacity 1: something changed
	begun time.Time
	waits time.Time   // since when nobody has the job
	timer *time.Timer // of Next
	hold  *time.Timer // of Order.Hold

	mu      sync.Mutex
	offers  int
	to, at  string // the worker, if one was named, and the region of the newest offer
	offered *bus.Offered
	away    *fault.Error   // why no queue has the job, as far as is known; nil when one has it
	earlier []*bus.Offered // offers before that one
	named   []string       // whom a ticket was offered by name and who did not come yet
	asked   time.Time      // when the newest offer was made
	sent    bool           // the attempt was dispatched
	attempt int
	worker  string    // who has the attempt, empty when nobody
	since   time.Time // when it was granted
	seq     int
	check   llm.Check // of the attempt's events
	queue   []llm.Event
	bytes   int
	reached bool // something has reached the client
	slow    bool // the client did not keep up
	left    bool // the client has left
	tried   []string
	end     *bus.End
	served  string // the worker whose end was taken
	booked  func() // tells that worker that its account is not needed any more
	failure *llm.Fault
	closed  bool
}

// Place puts a job on the desk and offers it. Close must follow.
func (d *Desk) Place(o Order) (*Job, error) {
	j := &Job{d: d, order: o, wake: make(chan struct{}, 1), begun: time.Now(), waits: time.Now(), away: unanswered()}
	d.mu.Lock()
	d.jobs[o.Ticket.Job] = j
	d.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.dispatch() {
		if err := j.offer(o.Ticket.Worker, o.Ticket.Region); err != nil {
			d.remove(j)
			return nil, err
		}
	}
	j.putOff()
	return j, nil
}

// engage gives the next attempt to a worker. The lock is held.
func (j *Job) engage(worker string) {
	j.attempt++
	j.worker, j.seq, j.since, j.sent, j.named = worker, 0, time.Now(), false, nil
	j.check = llm.Check{}
	j.d.engage(worker)
}

// offer makes the next offer, to a named worker or to any. The lock is held.
func (j *Job) offer(worker, region string) error {
	t := j.ticket(worker, region)
	offered, err := j.d.bus.Offer(t, func(err error) { j.queued(t.Offer, err) })
	if err != nil {
		return err
	}
	j.to, j.at = worker, region
	if j.offered != nil {
		j.earlier = append(j.earlier, j.offered)
	}
	if worker != "" {
		j.named = append(j.named, worker)
	}
	j.offered, j.asked = offered, time.Now()
	return nil
}

// ticket writes the next ticket of the job. The lock is held.
func (j *Job) ticket(worker, region string) bus.Ticket {
	t := j.order.Ticket
	j.offers++
	t.Owner, t.Offer, t.Worker, t.Region = j.d.name, j.offers, worker, region
	t.BodyBytes = int64(len(j.order.Body))
	return t
}

func (j *Job) poke() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *Job) grant(worker string) (bus.Grant, []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed || j.end != nil || j.failure != nil || j.attempt >= j.d.cfg.Attempts:
		return bus.Grant{Verdict: bus.Gone}, nil
	case j.worker != "":
		return bus.Grant{Verdict: bus.Taken}, nil
	case slices.Contains(j.tried, worker) || j.order.Fits != nil && !j.order.Fits(worker):
		return bus.Grant{Verdict: bus.Barred}, nil
	}
	j.engage(worker)
	return bus.Grant{Verdict: bus.Granted, Attempt: j.attempt}, j.order.Body
}

func (j *Job) granted(worker string, attempt int) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.worker != worker || j.attempt != attempt {
		return nil
	}
	return j.order.Body
}

// wants tells whether the attempt is to go on, or its account is still needed: until
// the job is booked the worker alone knows how it ended, should this edge die.
func (j *Job) wants(worker string, attempt int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.end != nil {
		return j.booked != nil && j.served == worker && j.attempt == attempt
	}
	return !j.closed && j.worker == worker && j.attempt == attempt
}

func (j *Job) take(worker string, f bus.Frame, booked func()) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.end != nil && f.End != nil && j.served == worker && j.attempt == f.Attempt {
		return j.repeated(booked)
	}
	if j.closed || j.worker != worker || j.attempt != f.Attempt || j.end != nil {
		return false
	}
	if f.Seq != j.seq+1 {
		j.d.log.Warn("frames lost", "job", j.order.Ticket.Job, "worker", worker, "have", j.seq, "got", f.Seq)
		if !j.retry(worker) {
			j.anew("part of the answer was lost on its way")
		}
		return false
	}
	if j.seq = f.Seq; j.seq == 1 {
		j.askHold() // the client would wait for it
	}
	for _, e := range f.Events {
		if err := j.check.Add(e); err != nil {
			j.d.log.Warn("frames broken", "job", j.order.Ticket.Job, "worker", worker, "error", err)
			if !j.retry(worker) {
				j.fail(fault.Engine, fault.Of(err).Message)
			}
			return false
		}
		if e.Last() {
			continue // the end is read from End, once
		}
		j.queue = append(j.queue, e)
		j.bytes += len(e.Text) + len(e.Logprobs) + eventBytes
	}
	if j.bytes > j.bound() && !j.order.Stream {
		j.fail(fault.TooLarge, "the answer is too large to be sent in one piece; ask for a stream")
		return false
	}
	if j.bytes > j.bound() && !j.slow {
		// The client reads too slowly. The engine is stopped, and its account
		// waited for, since the client pays like one that has left.
		j.slow, j.reached = true, true
		if err := j.d.bus.Cancel(worker, bus.Running{Job: j.order.Ticket.Job, Attempt: j.attempt}); err != nil {
			j.d.log.Warn("attempt not cancelled", "job", j.order.Ticket.Job, "error", err)
		}
	}
	if j.slow {
		j.queue, j.bytes = nil, 0
	}
	if f.End != nil {
		j.finish(worker, f, booked)
	}
	j.poke()
	return true
}

// repeated answers an end that was taken before: its worker has not heard that.
// The lock is held.
func (j *Job) repeated(booked func()) bool {
	switch {
	case booked == nil:
	case j.booked == nil:
		booked()
	default:
		j.booked = booked
	}
	return true
}

func (j *Job) bound() int {
	if j.order.Stream {
		return j.d.cfg.QueueBytes
	}
	return j.d.cfg.AnswerBytes
}

// finish takes the end of an attempt. The lock is held.
func (j *Job) finish(worker string, f bus.Frame, booked func()) {
	last := llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Engine, Message: "the worker gave no end"}}
	if n := len(f.Events); n > 0 && f.Events[n-1].Last() {
		last = f.Events[n-1]
	}
	j.letGo()
	switch {
	case last.Kind != llm.Failed || last.Fault == nil:
	case last.Fault.Code == fault.Canceled && !j.left:
		// Nobody here has cancelled it, so the client does not pay for it.
		last.Fault = &llm.Fault{Code: fault.Engine, Message: "the worker gave the job up"}
	case last.Fault.Code == fault.Unavailable:
		// What a worker cannot reach is its own: the platform is there.
		last.Fault = &llm.Fault{Code: fault.Engine, Message: last.Fault.Message}
	}
	if j.slow {
		last = llm.Event{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Canceled, Message: "the client reads too slowly"}}
	}
	if last.Kind == llm.Failed && last.Fault != nil && passing(last.Fault.Code) && j.retry(worker) {
		if booked != nil {
			booked() // an attempt that failed costs nothing
		}
		return
	}
	j.end, j.served, j.booked = f.End, worker, booked
	last.Usage = &f.End.Usage
	j.queue = append(j.queue, last)
}

// stop cancels the attempt that is under way and forgets its worker. The lock
// is held.
func (j *Job) stop() {
	if j.worker == "" {
		return
	}
	if err := j.d.bus.Cancel(j.worker, bus.Running{Job: j.order.Ticket.Job, Attempt: j.attempt}); err != nil {
		j.d.log.Warn("attempt not cancelled", "job", j.order.Ticket.Job, "error", err)
	}
	j.letGo()
}

func (j *Job) letGo() {
	if j.worker != "" {
		j.d.release(j.worker)
		j.worker = ""
	}
}

// fail ends the job. The lock is held.
func (j *Job) fail(code fault.Code, message string) {
	if j.end != nil || j.failure != nil {
		return
	}
	j.stop()
	j.failure = &llm.Fault{Code: code, Message: message}
	j.queue = append(j.queue, llm.Event{Kind: llm.Failed, Fault: j.failure})
	j.poke()
}

// Fail ends the job with a failure that the client sees.
func (j *Job) Fail(code fault.Code, message string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail(code, message)
}

// Replace gives the job another body. An attempt that has the old one is
// stopped, and the job offered again.
func (j *Job) Replace(body []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.order.Body = body
	if j.worker == "" && j.end == nil {
		return nil
	}
	j.stop()
	if j.booked != nil {
		j.booked() // nothing of the old attempt is booked
	}
	j.queue, j.bytes, j.seq, j.end, j.failure, j.booked = nil, 0, 0, nil, nil, nil
	j.waits = time.Now()
	return j.offer(j.order.Ticket.Worker, j.order.Ticket.Region)
}

// ErrIdle says that nothing happened while Next waited.
var ErrIdle = fault.New(fault.Timeout, "nothing happened")

// Next gives the events that have come, waiting for the first of them at most
// for the given time, which gives ErrIdle. A job that is not streamed gives all
// its events at once. The events that it gives have reached the client: no
// attempt is repeated after them.
func (j *Job) Next(ctx context.Context, wait time.Duration) ([]llm.Event, error) {
	until := time.Now().Add(wait)
	for {
		events, due := j.look()
		if events != nil {
			return events, nil
		}
		// One timer serves every wait of a job: a stream waits for each token.
		left := min(due, time.Until(until))
		if j.timer == nil {
			j.timer = time.NewTimer(left)
		} else {
			j.timer.Reset(left)
		}
		select {
		case <-j.wake:
		case <-j.timer.C:
			if !time.Now().Before(until) {
				return nil, ErrIdle
			}
			j.tick()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// look takes what is there, and tells what to wait for else.
func (j *Job) look() (events []llm.Event, next time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.queue); n > 0 && (j.order.Stream || j.queue[n-1].Last()) {
		events, j.queue, j.bytes, j.reached = j.queue, nil, 0, true
		return events, 0
	}
	next = time.Until(j.order.Ticket.Deadline)
	if j.worker == "" {
		next = min(next, j.d.cfg.Again)
	}
	return nil, max(next, time.Millisecond)
}

// tick does what is due: the deadline, the wait for a claim, a second offer.
func (j *Job) tick() {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	switch {
	case !now.Before(j.order.Ticket.Deadline):
		j.fail(fault.Timeout, "the request took too long")
	case j.worker != "" || j.end != nil || j.failure != nil:
	case now.Sub(j.waits) >= j.d.cfg.ClaimWait:
		if len(j.tried) > 0 {
			j.fail(fault.Engine, "the worker was lost and no other took over")
			return
		}
		if j.away != nil {
			j.fail(j.away.Code, j.away.Message)
			return
		}
		j.fail(fault.Busy, "all workers of this model are busy; retry later")
	case now.Sub(j.asked) >= j.d.cfg.Again && j.order.Free() > 0:
		// Slots are free and nobody came: the ticket may lie with a worker that
		// hangs, so the next offer names another one.
		j.offerOther()
	}
}

// Result is how a job ended.
type Result struct {
	// Worker and Attempt name the attempt that was settled, if there was one.
	Worker  string
	Attempt int
	// End is the worker's account, nil when there is none.
	End *bus.End
	// Failure is set when the edge ended the job.
	Failure *llm.Fault
}

// Result tells how the job stands now.
func (j *Job) Result() Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Result{Worker: j.served, Attempt: j.attempt, End: j.end, Failure: j.failure}
}

// Booked tells the worker whose end was taken that the job is booked. A job that is
// closed leaves the desk.
func (j *Job) Booked() {
	j.mu.Lock()
	booked, closed := j.booked, j.closed
	j.booked = nil
	j.mu.Unlock()
	if booked != nil {
		booked()
	}
	if closed {
		j.d.remove(j)
	}
}

// Abandon tells the worker to stop and waits, bounded by ctx, for its account
// of what was produced.
func (j *Job) Abandon(ctx context.Context) Result {
	j.mu.Lock()
	j.left, j.reached = true, true // no other attempt from here on
	worker, attempt := j.worker, j.attempt
	j.mu.Unlock()
	if worker != "" {
		if err := j.d.bus.Cancel(worker, bus.Running{Job: j.order.Ticket.Job, Attempt: attempt}); err != nil {
			j.d.log.Warn("attempt not cancelled", "job", j.order.Ticket.Job, "error", err)
		}
	}
	for {
		j.mu.Lock()
		// What comes now is read by nobody; only the end matters.
		j.queue, j.bytes = nil, 0
		over := j.worker == "" || j.end != nil || j.failure != nil
		j.mu.Unlock()
		if over {
			return j.Result()
		}
		select {
		case <-j.wake:
		case <-ctx.Done():
			return j.Result()
		}
	}
}

// Close ends the job. It leaves the desk, unless a worker waits to hear that it is
// booked. Tickets that nobody has claimed are withdrawn, bounded by ctx.
func (j *Job) Close(ctx context.Context) {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return
	}
	j.closed = true
	// Who claimed a ticket ends it. Of several it is not known which one that was, and
	// there may be nobody to pull the others.
	left := j.earlier
	if j.offered != nil && (len(left) > 0 || j.worker == "" && j.end == nil) {
		left = append(left, j.offered)
	}
	if j.end == nil {
		j.stop()
	}
	booked := j.booked == nil
	j.order.Body, j.queue = nil, nil // no content waits for the books
	j.mu.Unlock()
	if booked {
		j.d.remove(j)
	}
	for _, o := range left {
		if err := o.Withdraw(ctx); err != nil {
			j.d.log.Debug("ticket not withdrawn", "job", j.order.Ticket.Job, "error", err)
		}
	}
}
