package offer

import (
	"sync"
	"time"
)

// waiting counts the jobs that nobody has, by model. It looks at every job, so it does
// not count again within countFor.
type waiting struct {
	mu     sync.Mutex
	at     time.Time
	models map[string]int
}

// Waiting tells how many jobs of a model waited for a worker a moment ago.
func (d *Desk) Waiting(model string) int {
	w := &d.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.at) >= countFor {
		w.at, w.models = now, map[string]int{}
		for _, j := range d.open() {
			if j.unserved() {
				w.models[j.order.Ticket.Model]++
			}
		}
	}
	return w.models[model]
}

func (j *Job) unserved() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.closed && j.worker == "" && j.end == nil
}
