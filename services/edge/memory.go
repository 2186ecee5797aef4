package edge

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// memory gives back to the machine what large requests leave behind. The heap of
// an edge that is idle after a burst of them would stay as large as the burst for
// minutes: nothing is allocated, so nothing is collected.
type memory struct {
	mu    sync.Mutex
	held  int64 // bytes of large bodies under way
	left  int64 // bytes that ended since memory was given back
	timer *time.Timer
}

// take counts a body of n bytes; give is called when it is over.
func (m *memory) take(n int) {
	if n < LargeBytes {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held += int64(n)
}

func (m *memory) give(n int) {
	if n < LargeBytes {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= int64(n)
	m.left += int64(n)
	if !m.untidy() {
		return
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(TidyAfter, m.tidy)
		return
	}
	m.timer.Reset(TidyAfter)
}

// untidy tells whether much more is over than is still under way. The lock is held.
func (m *memory) untidy() bool { return m.left >= TidyBytes+m.held }

// tidy runs when no large request has ended for a while.
func (m *memory) tidy() {
	m.mu.Lock()
	quiet := m.untidy()
	if quiet {
		m.left = 0
	}
	m.mu.Unlock()
	if quiet {
		runtime.GC() // what lies in pools is let go by the second of two collections
		debug.FreeOSMemory()
	}
}

// close ends the wait.
func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
	}
}
