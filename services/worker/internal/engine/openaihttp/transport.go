package openaihttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// transport sends requests to one engine over plain HTTP/1.1. The library's
// transport hands every request and every answer over to two goroutines of the
// connection; here the caller's goroutine writes and reads by itself, which is
// what it waits for anyway. Encrypted engines take the library's.
type transport struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	mu   sync.Mutex
	idle []*link // the newest last
}

// link is one connection.
type link struct {
	net.Conn
	in    *bufio.Reader
	out   *bufio.Writer
	since time.Time // when it became idle
	used  bool
}

const (
	readBytes  = 4 << 10
	writeBytes = 16 << 10
)

func newTransport() http.RoundTripper {
	dial := (&net.Dialer{Timeout: dialMax, KeepAlive: 30 * time.Second}).DialContext
	plain := &transport{dial: dial}
	// No proxy: an engine is next to its worker. Waiting for headers has no bound
	// of its own, since Config.Idle bounds every wait.
	secure := &http.Transport{
		DialContext: dial, TLSHandshakeTimeout: dialMax, DisableCompression: true, WriteBufferSize: 32 << 10,
		MaxIdleConns: connsIdleMax, MaxIdleConnsPerHost: connsIdleMax, IdleConnTimeout: connIdleMax,
	}
	return &schemes{plain, secure}
}

// schemes chooses a transport by the request's.
type schemes struct {
	plain  *transport
	secure *http.Transport
}

// RoundTrip sends one request.
func (s *schemes) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" {
		return s.secure.RoundTrip(req)
	}
	return s.plain.RoundTrip(req)
}

// CloseIdleConnections gives up what is idle.
func (s *schemes) CloseIdleConnections() {
	s.secure.CloseIdleConnections()
	s.plain.keep(func(*link) bool { return false })
}

// RoundTrip sends one request. A connection that the engine closed just when it
// was used again is tried once more, on a new one, as long as no byte of an answer
// came.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		l, err := t.link(req)
		if err != nil {
			return nil, err
		}
		res, begun, err := t.exchange(l, req)
		if err == nil || begun || !l.used || req.Context().Err() != nil {
			return res, err
		}
		if req.Body != nil && req.Body != http.NoBody {
			if req.GetBody == nil {
				return nil, err
			}
			again := req.Clone(req.Context())
			if again.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
			req = again
		}
	}
}

// link gives a connection, an idle one when there is one.
func (t *transport) link(req *http.Request) (*link, error) {
	t.keep(func(l *link) bool { return time.Since(l.since) < connIdleMax })
	t.mu.Lock()
	if n := len(t.idle); n > 0 {
		l := t.idle[n-1]
		t.idle[n-1] = nil
		t.idle = t.idle[:n-1]
		t.mu.Unlock()
		l.used = true
		return l, nil
	}
	t.mu.Unlock()
	addr := req.URL.Host
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	conn, err := t.dial(req.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, in: bufio.NewReaderSize(conn, readBytes), out: bufio.NewWriterSize(conn, writeBytes)}, nil
}

// keep closes the idle connections, oldest first, until one is to be kept.
func (t *transport) keep(wanted func(*link) bool) {
	t.mu.Lock()
	n := 0
	for n < len(t.idle) && !wanted(t.idle[n]) {
		n++
	}
	old := t.idle[:n]
	t.idle = t.idle[n:]
	t.mu.Unlock()
	for _, l := range old {
		_ = l.Close()
	}
}

// exchange writes the request and reads the head of its answer. Begun tells that
// a byte of it came. The end of the request's context closes the connection.
func (t *transport) exchange(l *link, req *http.Request) (res *http.Response, begun bool, err error) {
	stop := context.AfterFunc(req.Context(), func() { _ = l.Close() })
	defer func() {
		if err != nil {
			stop()
			_ = l.Close()
			if cause := req.Context().Err(); cause != nil {
				err = cause
			}
		}
	}()
	written := req.Write(l.out)
	if written == nil {
		written = l.out.Flush()
	}
	// An engine that refuses a request early may answer before all was sent.
	if _, err := l.in.Peek(1); err != nil {
		return nil, false, errors.Join(written, err)
	}
	for {
		if res, err = http.ReadResponse(l.in, req); err != nil {
			return nil, true, err
		}
		if res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	res.Body = &answerBody{ReadCloser: res.Body, t: t, l: l, stop: stop, again: written == nil && !res.Close}
	return res, true, nil
}

// answerBody gives its connection back at its end, and closes it when the reader
// goes before: that is how most engines learn that nobody listens any more.
type answerBody struct {
	io.ReadCloser
	t     *transport
	l     *link
	stop  func() bool
	again bool // the connection may be used again
	over  bool
}

// Read reads the answer.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close ends the answer, whether it was read or not.
func (b *answerBody) Close() error {
	b.end(false)
	return nil
}

func (b *answerBody) end(whole bool) {
	if b.over {
		return
	}
	b.over = true
	// When the context has ended, the connection is being closed.
	if !b.stop() || !whole || !b.again || b.l.in.Buffered() > 0 {
		_ = b.l.Close()
		return
	}
	b.l.since = time.Now()
	b.t.mu.Lock()
	full := len(b.t.idle) >= connsIdleMax
	if !full {
		b.t.idle = append(b.t.idle, b.l)
	}
	b.t.mu.Unlock()
	if full {
		_ = b.l.Close()
	}
}
