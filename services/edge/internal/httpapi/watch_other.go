//go:build !linux

package httpapi

import "net"

// watcher does nothing where there is no epoll: a client that left is noticed
// when a keep-alive cannot be written.
type watcher struct{}

func newWatcher() (*watcher, error)                    { return &watcher{}, nil }
func (*watcher) follow(*net.TCPConn) (*hangup, func()) { return &hangup{}, func() {} }
func (*watcher) close()                                {}
