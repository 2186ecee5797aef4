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
	if err := j.d.bus.Dispatch(bus.Dispatch{Ticket: t, Attempt: j.attempt}, j.order.Body); err != nil {
		j.d.log.Warn("job not dispatched", "job", t.Job, "worker", worker, "error", err)
		j.letGo()
		j.attempt--
		return false
	}
	return true
}

// declined is called when a worker did not take the job that was dispatched to it:
// whoever is free next gets it from the queue.
func (j *Job) declined(worker string, attempt int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.worker != worker || j.attempt != attempt || j.seq > 0 || j.end != nil {
		return
	}
	j.letGo()
	j.attempt--
	j.waits = time.Now()
	if err := j.offer(j.order.Ticket.Worker, j.order.Ticket.Region); err != nil {
		f := fault.Of(err)
		j.fail(f.Code, f.Message)
		return
	}
	j.poke() // the wait for a worker has begun
}
