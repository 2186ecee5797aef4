package offer

import (
	"slices"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
)

// How a job is offered again: because the queue did not get it, because a message was
// lost, because its worker was, or because nobody came.

// unanswered is what is known of a queue that has not said anything.
func unanswered() *fault.Error {
	return fault.New(fault.Unavailable, "the job queue does not answer; retry later")
}

// queued is called when it is known whether the queue has an offer. One that cannot be
// reached is tried again for as long as a job may wait.
func (j *Job) queued(offer int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.away = nil
		return
	}
	if j.closed || j.worker != "" || j.offers != offer {
		return
	}
	f := fault.Of(err)
	if f.Code != fault.Unavailable {
		j.fail(f.Code, f.Message)
		return
	}
	j.away = f
	time.AfterFunc(j.d.cfg.Again/4, func() { j.repeat(offer) })
}

// repeat makes an offer again that the queue did not get, unless a newer one was made.
func (j *Job) repeat(offer int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.worker != "" || j.offers != offer || j.end != nil || j.failure != nil {
		return
	}
	if err := j.offer(j.to, j.at); err != nil {
		f := fault.Of(err)
		j.fail(f.Code, f.Message)
	}
}

// lost is called when a worker is found dead or hung.
func (j *Job) lost(worker string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.worker != worker || j.end != nil {
		return
	}
	if !j.retry(worker) {
		j.await(worker)
	}
}

// await offers the job to whoever comes: a worker that died is often started anew
// within the time that a job may wait, under another name. The lock is held.
func (j *Job) await(worker string) {
	if j.reached || j.attempt >= j.d.cfg.Attempts {
		j.fail(fault.Engine, "the worker was lost")
		return
	}
	j.tried = append(slices.Clone(j.tried), worker)
	if err := j.again("", j.order.Ticket.Region); err != nil {
		f := fault.Of(err)
		j.fail(f.Code, f.Message)
		return
	}
	j.d.log.Info("job offered again", "job", j.order.Ticket.Job, "lost", worker)
}

// missing is called with the attempts that a worker says it runs; see Desk.missing.
func (j *Job) missing(worker string, runs map[string]int, asked time.Time) (ask bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.worker != worker || j.end != nil || runs[j.order.Ticket.Job] == j.attempt {
		return false
	}
	cut := j.d.bus.Reconnected()
	switch {
	case time.Since(j.since) >= j.d.cfg.Forgotten:
		if !j.retry(worker) {
			j.anew("the worker lost the job")
		}
	case j.seq > 0, len(j.order.Body) > bus.ChunkBytes:
	case asked.IsZero():
		return time.Since(j.since) >= j.d.cfg.Unheard
	case asked.Sub(j.since) >= j.d.cfg.Unheard, cut.After(j.since) && asked.Sub(cut) >= j.d.cfg.Quiet:
		// What is asked after the grant also arrives after it.
		j.anew("the worker lost the job")
	}
	return false
}

// anew offers a job again that a message was lost of, for which no worker is to blame:
// the one that has it may take it as well as any other. The lock is held.
func (j *Job) anew(lost string) {
	if j.reached || j.attempt >= j.d.cfg.Attempts {
		j.fail(fault.Engine, lost)
		return
	}
	worker := j.worker
	if err := j.again(j.order.Ticket.Worker, j.order.Ticket.Region); err != nil {
		f := fault.Of(err)
		j.fail(f.Code, f.Message)
		return
	}
	j.d.log.Info("job offered again", "job", j.order.Ticket.Job, "worker", worker, "cause", lost)
}

// again forgets the attempt that is under way and makes the next offer. The lock is
// held.
func (j *Job) again(worker, region string) error {
	j.stop()
	j.waits = time.Now()
	j.queue, j.bytes, j.seq = nil, 0, 0
	defer j.poke() // a wait for a worker has begun
	return j.offer(worker, region)
}

// passing tells whether another worker may do better.
func passing(c fault.Code) bool {
	return c == fault.Engine || c == fault.Timeout || c == fault.Busy || c == fault.Unavailable || c == fault.Internal
}

// retry offers the job again to another worker by name. It tells whether that
// was possible. The lock is held.
func (j *Job) retry(worker string) bool {
	if j.reached || j.attempt >= j.d.cfg.Attempts {
		return false
	}
	tried := append(slices.Clone(j.tried), worker)
	other, region, ok := j.other(tried)
	if !ok {
		return false
	}
	j.tried = tried
	if err := j.again(other, region); err != nil {
		j.d.log.Warn("job not offered again", "job", j.order.Ticket.Job, "error", err)
		return false
	}
	j.d.log.Info("job offered again", "job", j.order.Ticket.Job, "lost", worker, "next", other)
	return true
}

// offerOther offers a job by name that nobody came for. The lock is held.
func (j *Job) offerOther() {
	if n := len(j.named); n > 0 {
		j.d.doubt(j.named[n-1])
	}
	other, region, ok := j.other(j.tried, j.named)
	if !ok {
		j.named = nil // all were asked: begin anew
		other, region, ok = j.other(j.tried)
	}
	if !ok {
		return
	}
	if err := j.offer(other, region); err != nil {
		j.d.log.Warn("job not offered again", "job", j.order.Ticket.Job, "error", err)
	}
}

// other names a worker that is in none of the lists.
func (j *Job) other(except ...[]string) (worker, region string, ok bool) {
	return j.order.Other(func(w string) bool {
		return slices.ContainsFunc(except, func(list []string) bool { return slices.Contains(list, w) })
	})
}
