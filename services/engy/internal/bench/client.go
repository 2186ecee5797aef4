package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

const (
	// exchangeWait bounds one exchange.
	exchangeWait = 2 * time.Minute
	bodyBytesMax = 16 << 20
	readBuffer   = 8 << 10
	fnvOffset    = 0xcbf29ce484222325
	fnvPrime     = 0x100000001b3
)

// client is one HTTP/1.1 connection that is used for one exchange after the
// other. It reads just enough of HTTP and of event streams to check answers, so
// that generating load costs little beside what is measured.
type client struct {
	addr  string
	conn  net.Conn
	in    *bufio.Reader
	lines *bufio.Reader
	body  []byte
	// buf is the last request that was made for load of.
	buf []byte
	of  *load
	// dialect is how the answer is written.
	dialect string
}

func newClient(addr string) *client {
	return &client{addr: addr, in: bufio.NewReaderSize(nil, readBuffer), lines: bufio.NewReaderSize(nil, readBuffer)}
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// dial connects unless there is a connection.
func (c *client) dial() error {
	if c.conn != nil {
		return nil
	}
	conn, err := net.DialTimeout("tcp", c.addr, exchangeWait)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.conn = conn
	c.in.Reset(conn)
	return nil
}

// answer is what came back, and when.
type answer struct {
	sent time.Time
	end  time.Time
	// first and gaps are set for streams: the time to the first text, and from
	// each text to the next.
	first  time.Duration
	gaps   []time.Duration
	texts  int // events with text
	tokens int // what the answer says it has
	hash   uint64
	done   bool // the stream said that it is over
	marks  marks
}

// marks are what tells texts, counts and the end in one dialect.
type marks struct {
	// only, when set, stands in every object that brings text.
	only, text, count, end []byte
}

func marksOf(dialect string) marks {
	switch dialect {
	case messages:
		return marks{[]byte(`"text_delta"`), []byte(`"text":"`), []byte(`"output_tokens":`), []byte(`"type":"message_stop"`)}
	case responses:
		return marks{[]byte(`"type":"response.output_text.delta"`), []byte(`"delta":"`), []byte(`"output_tokens":`), []byte(`"type":"response.completed"`)}
	}
	return marks{nil, []byte(`"content":"`), []byte(`"completion_tokens":`), []byte("[DONE]")}
}

// send writes a request without reading its answer.
func (c *client) send(raw []byte) error {
	if err := c.dial(); err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Now().Add(exchangeWait)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if _, err := c.conn.Write(raw); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// exchange sends a request and reads its answer to the end.
func (c *client) exchange(raw []byte, gaps bool) (a answer, err error) {
	if err := c.dial(); err != nil {
		return a, err
	}
	a.sent, a.hash, a.marks = time.Now(), fnvOffset, marksOf(c.dialect)
	defer func() {
		a.end = time.Now()
		if err != nil {
			c.close()
		}
	}()
	if err := c.send(raw); err != nil {
		return a, err
	}
	h, err := c.head()
	if err != nil {
		return a, err
	}
	body := io.LimitReader(c.in, h.length)
	if h.chunked {
		body = httputil.NewChunkedReader(c.in)
	}
	switch {
	case h.status != 200:
		said, _ := io.ReadAll(io.LimitReader(body, 300))
		return a, fmt.Errorf("status %d: %s", h.status, bytes.TrimSpace(said))
	case h.events:
		err = c.events(body, &a, gaps)
	default:
		err = c.whole(body, &a)
	}
	if err == nil && h.chunked {
		_, err = c.in.ReadSlice('\n')
	}
	if h.closes {
		c.close()
	}
	return a, err
}

type head struct {
	status                  int
	length                  int64
	chunked, events, closes bool
}

func (c *client) head() (h head, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return h, fmt.Errorf("read status: %w", err)
	}
	if len(line) < 12 {
		return h, errors.New("read status: too short")
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, fmt.Errorf("read status: %w", err)
	}
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return h, fmt.Errorf("read headers: %w", err)
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.ParseInt(string(value), 10, 64); err != nil || h.length > bodyBytesMax {
				return h, fmt.Errorf("read headers: length %q", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("Content-Type")):
			h.events = bytes.HasPrefix(value, []byte("text/event-stream"))
		case bytes.EqualFold(name, []byte("Connection")):
			h.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
}

// whole reads a JSON answer.
func (c *client) whole(body io.Reader, a *answer) error {
	b := bytes.NewBuffer(c.body[:0])
	if _, err := b.ReadFrom(io.LimitReader(body, bodyBytesMax)); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	c.body = b.Bytes()
	a.done = true
	return a.take(c.body)
}

// events reads an event stream.
func (c *client) events(body io.Reader, a *answer, gaps bool) error {
	c.lines.Reset(body)
	var last time.Time
	for {
		line, err := c.lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		if bytes.Contains(data, a.marks.end) {
			if a.done {
				return errors.New("the stream ended twice")
			}
			a.done = true
		}
		texts := a.texts
		if err := a.take(data); err != nil {
			return err
		}
		if a.texts == texts {
			continue
		}
		now := time.Now()
		if texts == 0 {
			a.first = now.Sub(a.sent)
		} else if gaps {
			a.gaps = append(a.gaps, now.Sub(last))
		}
		last = now
	}
}

// take reads the text and the count out of one JSON object, both by their names
// alone: the whole of it was checked by others.
func (a *answer) take(data []byte) error {
	if bytes.Contains(data, []byte(`"error":{`)) {
		return fmt.Errorf("error in the answer: %s", bytes.TrimSpace(data[:min(len(data), 300)]))
	}
	if text, ok, err := a.member(data); err != nil {
		return err
	} else if ok && len(text) > 0 {
		a.texts++
		for _, b := range text {
			a.hash = (a.hash ^ uint64(b)) * fnvPrime
		}
	}
	if i := bytes.LastIndex(data, a.marks.count); i >= 0 {
		a.tokens = 0
		for _, b := range data[i+len(a.marks.count):] {
			if b < '0' || b > '9' {
				break
			}
			a.tokens = a.tokens*10 + int(b-'0')
		}
	}
	return nil
}

// member gives the next piece of text.
func (a *answer) member(data []byte) (text []byte, ok bool, err error) {
	name := a.marks.text
	if a.marks.only != nil && !bytes.Contains(data, a.marks.only) {
		return nil, false, nil
	}
	i := bytes.Index(data, name)
	if i < 0 {
		return nil, false, nil
	}
	rest := data[i+len(name):]
	escaped := false
	for n := 0; n < len(rest); n++ {
		switch rest[n] {
		case '\\':
			escaped = true
			n++
		case '"':
			if !escaped {
				return rest[:n], true, nil
			}
			var s string
			if err := json.Unmarshal(data[i+len(name)-1:i+len(name)+n+1], &s); err != nil {
				return nil, false, fmt.Errorf("read text: %w", err)
			}
			return []byte(s), true, nil
		}
	}
	return nil, false, errors.New("read text: it does not end")
}
