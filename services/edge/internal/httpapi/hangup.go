package httpapi

import (
	"net"
	"sync"
)

// hangup tells when the peer of a connection has closed its side.
type hangup struct {
	mu   sync.Mutex
	gone func()
	hung bool
}

// arm calls gone, at most once and on another goroutine, when the peer hangs up
// or has done so. The function that it gives ends that and must be called before
// the connection is used for another request.
func (h *hangup) arm(gone func()) (disarm func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hung {
		go gone()
		return func() {}
	}
	h.gone = gone
	return h.disarm
}

func (h *hangup) disarm() {
	h.mu.Lock()
	h.gone = nil
	h.mu.Unlock()
}

func (h *hangup) hang() {
	h.mu.Lock()
	gone := h.gone
	h.gone, h.hung = nil, true
	h.mu.Unlock()
	if gone != nil {
		gone()
	}
}

// watch is arm for any connection; one that is not ours is not watched.
func watch(c net.Conn, gone func()) (disarm func()) {
	if w, ok := c.(*conn); ok {
		return w.hangup.arm(gone)
	}
	return func() {}
}
