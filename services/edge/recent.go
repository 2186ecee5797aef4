package edge

import (
	"sync"
	"time"
)

// recent remembers the accounts that something has happened to a moment ago. The zero
// value is ready, and may be used from many goroutines.
type recent struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func (r *recent) note(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.when == nil {
		r.when = map[string]time.Time{}
	}
	r.when[account] = time.Now()
}

// lately tells whether it has happened to an account within a time.
func (r *recent) lately(account string, within time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.when[account]
	return ok && time.Since(at) < within
}

// prune forgets what is older than a time.
func (r *recent) prune(older time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for account, at := range r.when {
		if time.Since(at) >= older {
			delete(r.when, account)
		}
	}
}
