package httpapi

import (
	"fmt"
	"net"
	"sync"
	"syscall"

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
	gone  map[uint32]func()
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
	w := &watcher{epoll: epoll, wake: wake, done: make(chan struct{}), gone: map[uint32]func(){}}
	go w.loop()
	return w, nil
}

// add calls gone, at most once and on another goroutine, when the peer of c
// hangs up. The function that it gives ends the watch and must be called before
// the connection is used for another request.
func (w *watcher) add(c net.Conn, gone func()) (remove func()) {
	nothing := func() {}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nothing
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nothing
	}
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return nothing
	}
	w.next++
	if w.next == 0 { // 0 is the wake-up's
		w.next++
	}
	id := w.next
	w.gone[id] = gone
	w.mu.Unlock()
	control := func(op int) {
		_ = raw.Control(func(fd uintptr) {
			err = unix.EpollCtl(w.epoll, op, int(fd), &unix.EpollEvent{
				Events: unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLONESHOT,
				Pad:    int32(id),
			})
		})
	}
	if control(unix.EPOLL_CTL_ADD); err != nil {
		w.take(id)
		return nothing
	}
	return func() {
		control(unix.EPOLL_CTL_DEL)
		w.take(id)
	}
}

func (w *watcher) take(id uint32) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.gone[id]
	delete(w.gone, id)
	return f
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
			if f := w.take(uint32(e.Pad)); f != nil {
				f()
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
