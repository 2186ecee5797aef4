package offer

import (
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
)

// dispatch gives the job to a worker that has a free slot, as far as the desk
// knows, and tells whether there is one. The lock is held.
func (j *Job) dispatch() bool {
	if j.order.Dispatch == nil {
		return false
	}
	worker, ok := j.order.Dispatch()
	if !ok {
		return false
	}
	t := j.ticket(worker, j.order.Ticket.Region)
	j.engage(worker)
	j.sent = true
	if err := j.d.bus.Dispatch(bus.Dispatch{Ticket: t, Attempt: j.attempt}, j.order.Body); err != nil {
		j.d.log.Warn("job not dispatched", "job", t.Job, "worker", worker, "error", err)
		j.letGo()
		j.attempt--
		return false
	}
	return true
}

// declined is called when a worker did not take the job that was dispatched to it:
// whoever is free next gets it from the queue. It tells whether that worker had the
// job to decline.
func (j *Job) declined(worker string, attempt int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || !j.sent || j.worker != worker || j.attempt != attempt || j.seq > 0 || j.end != nil {
		return false
	}
	j.letGo()
	j.attempt--
	j.waits = time.Now()
	named, region := j.order.Ticket.Worker, j.order.Ticket.Region
	if named == worker {
		if other, at, ok := j.other([]string{worker}); ok {
			named, region = other, at
		}
	}
	if err := j.offer(named, region); err != nil {
		f := fault.Of(err)
		j.fail(f.Code, f.Message)
		return true
	}
	j.poke() // the wait for a worker has begun
	return true
}
