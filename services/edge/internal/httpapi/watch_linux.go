package httpapi

import (
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher tells when a client has closed its connection, without reading from
// it: one epoll for all connections, armed for the peer's hang-up only. The
// framework itself notices a client that left only when a write fails.
type watcher struct {
	epoll int
	wake  int // an eventfd that ends the loop
	done  chan struct{}

	mu    sync.Mutex
	next  uint32
	conns map[uint32]*hangup
	ended bool
}

const watchBatch = 256

func newWatcher() (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	w := &watcher{epoll: epoll, wake: wake, done: make(chan struct{}), conns: map[uint32]*hangup{}}
	go w.loop()
	return w, nil
}

// follow watches a connection until forget is called. A connection is watched
// once for all its requests: a system call at its beginning and none for each.
func (w *watcher) follow(c *net.TCPConn) (h *hangup, forget func()) {
	h = &hangup{}
	raw, err := c.SyscallConn()
	if err != nil {
		return h, func() {}
	}
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return h, func() {}
	}
	w.next++
	if w.next == 0 { // 0 is the wake-up's
		w.next++
	}
	id := w.next
	w.conns[id] = h
	w.mu.Unlock()
	forget = func() {
		// Closing the socket takes it out of the epoll.
		w.mu.Lock()
		delete(w.conns, id)
		w.mu.Unlock()
	}
	_ = raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{
			Events: unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLET, Pad: int32(id),
		})
	})
	if err != nil {
		forget()
	}
	return h, forget
}

func (w *watcher) find(id uint32) *hangup {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conns[id]
}

func (w *watcher) loop() {
	defer close(w.done)
	events := make([]unix.EpollEvent, watchBatch)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			if e.Pad == 0 {
				return
			}
			if h := w.find(uint32(e.Pad)); h != nil {
				h.hang()
			}
		}
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return
	}
	w.ended = true
	w.mu.Unlock()
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	_ = unix.Close(w.wake)
	_ = unix.Close(w.epoll)
}
