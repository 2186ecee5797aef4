package httpapi

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// listener gives connections that can linger, and whose writes may each block
// for wait.
type listener struct {
	net.Listener
	wait  time.Duration
	gate  *gate
	watch *watcher
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		// A small buffer bounds what a client that reads slowly holds here, and
		// lets the kernel ask for more often enough.
		if err := tcp.SetWriteBuffer(writeBufferBytes); err != nil {
			_ = tcp.Close()
			return l.Accept()
		}
		made := &conn{TCPConn: tcp, wait: l.wait, gate: l.gate, framing: framing{keyless: l.gate.routes}}
		made.hangup, made.forget = l.watch.follow(tcp)
		return made, nil
	}
	return c, nil
}

// conn is a connection whose close can wait for the client to finish sending.
type conn struct {
	*net.TCPConn
	wait    time.Duration
	lingers atomic.Bool
	framing framing
	// ahead holds bytes that were read and not handed out, those that belong to the
	// next request among them; read is where they are read to.
	ahead, read []byte
	hangup      *hangup
	forget      func()
	// fresh is until when the deadline of writes need not be set anew.
	fresh time.Time
	// broken is set when no more of what the client sends can be trusted.
	broken bool
	gate   *gate
	// pass is what the gate gave the request under way, if that needs no key or is
	// large.
	pass atomic.Pointer[pass]
}

// linger makes a connection's close graceful for a client that still sends.
func linger(c net.Conn) {
	if l, ok := c.(*conn); ok {
		l.lingers.Store(true)
	}
}

// Read gives bytes of one request at a time.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if c.broken {
			return 0, errFraming
		}
		if c.framing.state == betweenRequests {
			c.pass.Swap(nil).leave()
		} else if c.framing.large && c.framing.pastHead() && c.pass.Load() == nil {
			// Only now does the framework want the body: the key is good.
			c.pass.Store(c.gate.carry(c.framing.bodyBytes()))
		}
		if c.framing.state != betweenRequests && c.pass.Load().refused() != nil {
			return 0, errNoPass // the body is not read
		}
		got, err := c.take(b)
		if got == 0 {
			return 0, err
		}
		drop, n, err := c.framing.next(b[:got])
		if err != nil {
			// What has been handed out is a request without an end: the framework
			// asks for more, and is told.
			c.broken = true
			return 0, errFraming
		}
		if rest := b[drop+n : got]; len(rest) > 0 {
			c.ahead = append(bytes.Clone(rest), c.ahead...)
		}
		if drop > 0 {
			copy(b, b[drop:drop+n])
		}
		if c.framing.head && c.framing.stranger {
			c.pass.Store(c.gate.enter(c.client(), c.framing.bodyBytes()))
		}
		if c.framing.large && c.framing.codings > 0 {
			c.pass.Load().grow(int64(n))
		}
		if c.framing.state == betweenRequests {
			c.pass.Load().came()
		}
		if n > 0 {
			return n, nil
		}
	}
}

// client gives the address that the request under way comes from.
func (c *conn) client() netip.Addr {
	return c.gate.proxies.client(peer(c.RemoteAddr()), c.framing.forwarded)
}

// take gives bytes in the order in which they came.
func (c *conn) take(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		if len(b) >= readAheadBytes {
			return c.TCPConn.Read(b)
		}
		if c.read == nil {
			c.read = make([]byte, readAheadBytes)
		}
		n, err := c.TCPConn.Read(c.read)
		if n == 0 {
			return 0, err
		}
		c.ahead = c.read[:n]
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// Write bounds every write by itself: a deadline for a whole answer would cut
// streams, and one that stayed behind would end the next request. A long one is
// several, for a client that reads slowly is still there.
func (c *conn) Write(b []byte) (written int, err error) {
	for {
		part := b[:min(len(b), writeBytes)]
		n, err := c.write(part)
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// write moves the deadline by a sixteenth of the wait at a time: a stream writes for
// each token.
func (c *conn) write(b []byte) (int, error) {
	if now := time.Now(); !now.Before(c.fresh) {
		if err := c.SetWriteDeadline(now.Add(c.wait)); err != nil {
			return 0, err
		}
		c.fresh = now.Add(c.wait / 16)
	}
	return c.TCPConn.Write(b)
}

// ReadFrom hides the socket's own, which would go past Write.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// Close ends the connection; one that lingers is read empty first, by a bounded
// amount, beside its caller.
func (c *conn) Close() error {
	c.forget()
	c.pass.Load().leave()
	if !c.lingers.Swap(false) {
		return c.TCPConn.Close()
	}
	if err := c.CloseWrite(); err != nil {
		return c.TCPConn.Close()
	}
	go func() {
		defer func() { _ = c.TCPConn.Close() }()
		if c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.TCPConn, lingerBytes)
		}
	}()
	return nil
}
