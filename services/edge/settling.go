package edge

import (
	"sync"
	"time"
)

// settling remembers the accounts whose answers have ended a moment ago. Their
// holds are still open: billing books in batches. Who asks for the next answer at
// once, as agents do, must not hear that there is no money, or that the answer
// before is still under way.
type settling struct {
	mu    sync.Mutex
	ended map[string]time.Time
}

func (s *settling) end(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[string]time.Time{}
	}
	s.ended[account] = time.Now()
}

// lately tells whether an answer of an account has ended within a time.
func (s *settling) lately(account string, within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.ended[account]
	return ok && time.Since(at) < within
}

func (s *settling) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for account, at := range s.ended {
		if time.Since(at) >= SettlingFor {
			delete(s.ended, account)
		}
	}
}
