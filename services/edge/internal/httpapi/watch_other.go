//go:build !linux

package httpapi

import "net"

// watcher does nothing where there is no epoll: a client that left is noticed
// when a keep-alive cannot be written.
type watcher struct{}

func newWatcher() (*watcher, error)          { return &watcher{}, nil }
func (*watcher) add(net.Conn, func()) func() { return func() {} }
func (*watcher) close()                      {}
