// Package offer is the arbiter of jobs: it sends a job to an idle worker or offers
// a ticket to all, grants claims, fences attempts by number, notices dead workers,
// offers again while nothing has reached the client, and cancels. One Desk owns
// all jobs of one edge.
//
// The invariant: at any time at most one attempt of a job is granted, only its
// frames are taken, and they are taken in order without a gap; so redelivery, a
// lost answer, a woken worker or a second offer can neither double a token nor
// run a job's money twice. Prices, codecs and HTTP do not live here.
package offer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
)

// Bus is what the desk says on the bus.
type Bus interface {
	Offer(t bus.Ticket, told func(error)) (*bus.Offered, error)
	Dispatch(d bus.Dispatch, body []byte) error
	Forsake(region, worker string)
	Cancel(worker string, r bus.Running) error
	Answers(ctx context.Context, within time.Duration) bool
	Fresh() bool
	Reconnected() time.Time
	Probe(ctx context.Context, owner, worker string) ([]bus.Running, error)
}

// Config holds the desk's bounds. All must be positive.
type Config struct {
	// ClaimWait is how long a ticket may wait for a worker in all; Again is
	// after how long it is offered a second time.
	ClaimWait, Again time.Duration
	// HoldAfter is how long a job's hold is put off.
	HoldAfter time.Duration
	// Quiet is how long a worker may be silent before it is probed; ProbeWait
	// is how long a probe may take before the worker counts as hung.
	Quiet, ProbeWait time.Duration
	// Forgotten is how long after its grant an attempt must be among those that
	// its worker says it runs; Unheard is the same for one whose body came with the
	// grant, when the worker is asked that long after it, or Quiet after a loss of the
	// connection that it may have gone with.
	Forgotten, Unheard time.Duration
	// Attempts bounds the grants of one job.
	Attempts int
	// QueueBytes bounds what waits for a streaming client, AnswerBytes a whole
	// answer that is not streamed.
	QueueBytes, AnswerBytes int
}

// Fleet is what the desk tells and asks of the picture of the workers.
type Fleet interface {
	// End notes that a worker's process is dead, and tells where it was, if that was
	// known; Ended tells whether it is.
	End(worker string) (region string, known bool)
	Ended(worker string) bool
	// Full notes that a worker takes nothing now.
	Full(worker string)
}

// Desk owns the jobs of one edge. Use New. Locks are taken in this order: waiting,
// a job's, the fleet's, the desk's; the desk's is let go before a job's is taken.
type Desk struct {
	name  string
	bus   Bus
	cfg   Config
	fleet Fleet
	log   *slog.Logger

	waiting waiting
	// putOff counts the holds that are put off now.
	putOff atomic.Int64

	// suspects are workers to be probed whether they have a job or not: they did not
	// come for one, or were not found.
	suspects chan string

	mu      sync.RWMutex
	jobs    map[string]*Job
	workers map[string]*watched
	suspect map[string]bool // who is or will be probed as a suspect
}

// watched is what the desk knows of a worker that has jobs of it.
type watched struct {
	seen    atomic.Int64 // Unix nanoseconds of the last sign of life
	probing atomic.Bool
	jobs    int // guarded by Desk.mu
}

// New gives a desk that owns jobs under a name that is unique for this start of
// the process.
func New(name string, b Bus, cfg Config, f Fleet, log *slog.Logger) *Desk {
	return &Desk{
		name: name, bus: b, cfg: cfg, fleet: f, log: log,
		jobs: map[string]*Job{}, workers: map[string]*watched{},
		suspects: make(chan string, suspectsMax), suspect: map[string]bool{},
	}
}

// Name is what tickets name as their owner.
func (d *Desk) Name() string { return d.name }

// Count tells how many jobs are open, or not booked.
func (d *Desk) Count() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.jobs)
}

func (d *Desk) remove(j *Job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.jobs, j.order.Ticket.Job)
}

func (d *Desk) job(id string) *Job {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.jobs[id]
}

// Grant decides a claim. It implements bus.Owner.
func (d *Desk) Grant(c bus.Claim) (bus.Grant, []byte) {
	d.alive(c.Worker)
	j := d.job(c.Job)
	if j == nil {
		return bus.Grant{Verdict: bus.Gone}, nil
	}
	if d.fleet.Ended(c.Worker) {
		return bus.Grant{Verdict: bus.Barred}, nil
	}
	return j.grant(c.Worker)
}

// Declined hears that a worker did not take a job, or that it has vanished. It
// implements bus.Owner.
func (d *Desk) Declined(worker, job string, attempt int, vanished bool) {
	j := d.job(job)
	if j == nil || !j.declined(worker, attempt) {
		return
	}
	d.fleet.Full(worker)
	if vanished {
		d.doubt(worker) // it may be one of an older version, that is only pulling
	}
}

// Body gives a granted attempt's body. It implements bus.Owner.
func (d *Desk) Body(c bus.Claim) []byte {
	j := d.job(c.Job)
	if j == nil {
		return nil
	}
	d.alive(c.Worker)
	return j.granted(c.Worker, c.Attempt)
}

// Take takes a frame. It implements bus.Owner.
func (d *Desk) Take(worker string, f bus.Frame, booked func()) bool {
	d.alive(worker)
	j := d.job(f.Job)
	return j != nil && j.take(worker, f, booked)
}

// Alive hears what a worker runs. It implements bus.Owner.
func (d *Desk) Alive(worker string, running []bus.Running) (gone []bus.Running) {
	d.alive(worker)
	for _, r := range running {
		if j := d.job(r.Job); j == nil || !j.wants(worker, r.Attempt) {
			gone = append(gone, r)
		}
	}
	if d.missing(worker, running, time.Time{}) {
		d.doubt(worker)
	}
	return gone
}

// missing takes from a worker the attempts that it does not run, though it lives:
// their beginning or their end was lost on its way. Asked is when the worker was
// asked, zero when it told by itself: then missing tells whether it should be.
func (d *Desk) missing(worker string, running []bus.Running, asked time.Time) (ask bool) {
	runs := make(map[string]int, len(running))
	for _, r := range running {
		runs[r.Job] = max(runs[r.Job], r.Attempt) // an earlier one may be ending
	}
	for _, j := range d.open() {
		ask = j.missing(worker, runs, asked) || ask
	}
	return ask
}

// alive notes a sign of life.
func (d *Desk) alive(worker string) {
	d.mu.RLock()
	w := d.workers[worker]
	d.mu.RUnlock()
	if w != nil {
		w.seen.Store(time.Now().UnixNano())
	}
}

// engage and release count the attempts that a worker has.
func (d *Desk) engage(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.workers[worker]
	if w == nil {
		w = &watched{}
		w.seen.Store(time.Now().UnixNano())
		d.workers[worker] = w
	}
	w.jobs++
}

// Jobs tells how many attempts of this desk's jobs a worker has, false while it is
// not known to be alive.
func (d *Desk) Jobs(worker string) (jobs int, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	w := d.workers[worker]
	if w == nil {
		return 0, true
	}
	return w.jobs, !w.probing.Load()
}

func (d *Desk) release(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.workers[worker]; w != nil {
		if w.jobs--; w.jobs <= 0 {
			delete(d.workers, worker)
		}
	}
}

// Watch looks after the workers that have jobs, until ctx ends: one that is
// quiet is probed, and one that does not answer loses its jobs.
func (d *Desk) Watch(ctx context.Context) error {
	tick := time.NewTicker(d.cfg.Quiet / 2)
	defer tick.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		select {
		case <-tick.C:
		case id := <-d.suspects:
			probes.Go(func() {
				d.probe(ctx, id, &watched{})
				d.mu.Lock()
				delete(d.suspect, id)
				d.mu.Unlock()
			})
			continue
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		d.mu.RLock()
		for id, w := range d.workers {
			if now.Sub(time.Unix(0, w.seen.Load())) > d.cfg.Quiet && w.probing.CompareAndSwap(false, true) {
				probes.Go(func() { d.probe(ctx, id, w) })
			}
		}
		d.mu.RUnlock()
	}
}

// died notes the end of a worker's process.
func (d *Desk) died(worker string) {
	d.log.Warn("worker died", "worker", worker)
	if region, known := d.fleet.End(worker); known {
		d.bus.Forsake(region, worker)
	}
}

// doubt has a worker probed.
func (d *Desk) doubt(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suspect[worker] {
		return
	}
	select {
	case d.suspects <- worker:
		d.suspect[worker] = true
	default:
		// Many are being probed: this one will be doubted again.
	}
}

func (d *Desk) probe(ctx context.Context, worker string, w *watched) {
	defer w.probing.Store(false)
	asked := time.Now()
	hears := make(chan bool, 1)
	go func() { hears <- d.hears(ctx) }()
	bound, cancel := context.WithTimeout(ctx, d.cfg.ProbeWait)
	defer cancel()
	running, err := d.bus.Probe(bound, d.name, worker)
	heard := <-hears
	switch {
	case err == nil:
		w.seen.Store(time.Now().UnixNano())
		d.missing(worker, running, asked)
		return
	case bus.Vanished(err) && d.bus.Fresh():
		return // it may not be back yet; the next probe tells
	case ctx.Err() != nil, time.Unix(0, w.seen.Load()).After(asked):
		return
	case bus.Vanished(err):
		d.died(worker)
	case !heard || !d.hears(ctx):
		return // the bus hangs, or this edge cannot hear it
	default:
		d.log.Warn("worker hangs", "worker", worker, "error", err)
		d.fleet.Full(worker)
	}
	d.lost(worker)
}

// hears tells whether the bus answers within a part of what a worker is given.
func (d *Desk) hears(ctx context.Context) bool { return d.bus.Answers(ctx, d.cfg.ProbeWait/4) }

// Older lists the jobs that were begun a time ago and are not booked.
func (d *Desk) Older(than time.Duration) []string {
	var ids []string
	for _, j := range d.open() {
		if time.Since(j.begun) >= than {
			ids = append(ids, j.order.Ticket.Job)
		}
	}
	return ids
}

// lost takes all jobs away from a worker.
func (d *Desk) lost(worker string) {
	for _, j := range d.open() {
		j.lost(worker)
	}
}

func (d *Desk) open() []*Job {
	d.mu.RLock()
	defer d.mu.RUnlock()
	jobs := make([]*Job, 0, len(d.jobs))
	for _, j := range d.jobs {
		jobs = append(jobs, j)
	}
	return jobs
}
