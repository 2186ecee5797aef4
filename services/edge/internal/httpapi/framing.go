package httpapi

import (
	"bytes"
	"strconv"

	"github.com/engy-ai/engy/pkg/fault"
)

// framing finds where each request of a connection ends, by the letter of RFC
// 9112, sections 2, 3.2 and 5 to 7, before the HTTP framework sees a byte of it. The
// framework reads more than the letter allows, and that is how a second request
// is smuggled past a proxy; here whatever could be read in two ways ends the
// connection. Since it hands out one request at a time, the framework never
// holds bytes of the next one either, which it would lose.
type framing struct {
	state frameState
	// line is the beginning of the line under way, size its length so far.
	line []byte
	size int
	cr   bool // the last byte was a carriage return
	// left counts the bytes of the body or chunk that are to come.
	left             int64
	lengths, codings int
	hosts            int
	length           int64
	// keyless lists the routes that need no key, as method, blank, path.
	keyless []string
	// target is the path of the request under way, as it came; what is longer
	// than lineKept is cut.
	target []byte
	// forwarded is what the request's X-Forwarded-For headers say, one after the
	// other; nothing when that is too long.
	forwarded []byte
	unclear   bool
	// stranger is set when the request is for one of keyless, and head when its head
	// has come, or that of a large body: next stops there, so that the rest may be
	// refused.
	stranger, head bool
	// large is set when the body is a large one of somebody who must have a key, or
	// may become one.
	large bool
}

type frameState int

const (
	betweenRequests frameState = iota
	inRequestLine
	inHeaders
	inBody
	inChunkSize
	inChunk
	afterChunk
	inTrailers
)

var errFraming = fault.New(fault.Invalid, "the request cannot be read in one way only")

// next gives how many bytes of b belong to the request under way, and how many
// empty bytes before it are to be dropped.
func (f *framing) next(b []byte) (drop, n int, err error) {
	if f.state == betweenRequests {
		for drop < len(b) && (b[drop] == '\r' || b[drop] == '\n') {
			drop++
		}
		if drop == len(b) {
			return drop, 0, nil
		}
		*f = framing{state: inRequestLine, line: f.line[:0], target: f.target[:0], forwarded: f.forwarded[:0], keyless: f.keyless}
	}
	at := drop
	for f.head = false; at < len(b) && f.state != betweenRequests && !f.head; {
		used, err := f.step(b[at:])
		if err != nil {
			return drop, 0, err
		}
		at += used
	}
	return drop, at - drop, nil
}

func (f *framing) step(b []byte) (used int, err error) {
	switch f.state {
	case inBody, inChunk:
		used = int(min(int64(len(b)), f.left))
		if f.left -= int64(used); f.left == 0 {
			if f.state == inChunk {
				f.state = afterChunk
			} else {
				f.state = betweenRequests
			}
		}
		return used, nil
	}
	end := bytes.IndexByte(b, '\n')
	part := b[:end+1]
	if end < 0 {
		part = b
	}
	if err := f.grow(part); err != nil || end < 0 {
		return len(part), err
	}
	line := f.line
	f.line, f.size, f.cr = f.line[:0], 0, false
	return len(part), f.ended(line)
}

// grow takes the next part of a line. A carriage return may stand before the
// line feed only, and the line feed behind one only.
func (f *framing) grow(part []byte) error {
	for _, c := range part {
		switch {
		case f.cr != (c == '\n'), c == 0:
			return errFraming
		case c == '\r':
			f.cr = true
			continue
		case c == '\n':
			continue
		}
		if f.size++; len(f.line) < lineKept {
			f.line = append(f.line, c)
		}
	}
	return nil
}

// ended takes a whole line, without its end.
func (f *framing) ended(line []byte) error {
	switch f.state {
	case inRequestLine:
		if !knownMethod(line) || len(line) < lineKept && !knownVersion(line) {
			return errFraming
		}
		f.requested(line)
		f.state = inHeaders
	case inHeaders:
		if len(line) > 0 {
			return f.header(line)
		}
		return f.body()
	case inChunkSize:
		return f.chunk(line)
	case afterChunk:
		if len(line) > 0 {
			return errFraming
		}
		f.state = inChunkSize
	case inTrailers:
		if len(line) == 0 {
			f.state = betweenRequests
		}
	case betweenRequests, inBody, inChunk:
	}
	return nil
}

// requested reads what a request is for.
func (f *framing) requested(line []byte) {
	for _, route := range f.keyless {
		rest, ok := bytes.CutPrefix(line, []byte(route))
		f.stranger = f.stranger || ok && len(rest) > 0 && (rest[0] == ' ' || rest[0] == '?')
	}
	_, target, _ := bytes.Cut(line, []byte(" "))
	if end := bytes.IndexAny(target, " ?"); end >= 0 {
		target = target[:end]
	}
	f.target = append(f.target, target...)
}

// pastHead tells whether the head of the request under way has come.
func (f *framing) pastHead() bool { return f.state > inHeaders }

// bodyBytes is how long the body is to be, -1 when that is not known.
func (f *framing) bodyBytes() int64 {
	if f.codings > 0 {
		return -1
	}
	return f.length
}

// knownMethod looks at the beginning of a request line. The framework answers
// others in words of its own.
func knownMethod(line []byte) bool {
	method, _, _ := bytes.Cut(line, []byte(" "))
	switch string(method) {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT":
		return true
	}
	return false
}

// knownVersion looks at the end of a request line. Another version might be framed in
// another way.
func knownVersion(line []byte) bool {
	return bytes.HasSuffix(line, []byte(" HTTP/1.1")) || bytes.HasSuffix(line, []byte(" HTTP/1.0"))
}

func (f *framing) header(line []byte) error {
	if line[0] == ' ' || line[0] == '\t' {
		return errFraming // a folded line
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok && len(line) < lineKept || len(name) == 0 || bytes.ContainsAny(name, " \t") {
		return errFraming
	}
	value = bytes.Trim(value, " \t")
	var err error
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		f.lengths++
		if len(value) == 0 || len(bytes.Trim(value, "0123456789")) > 0 {
			return errFraming
		}
		if f.length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return errFraming
		}
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		f.codings++
		if !bytes.EqualFold(value, []byte("chunked")) {
			return errFraming
		}
	case bytes.EqualFold(name, []byte("Host")):
		f.hosts++
	case bytes.EqualFold(name, []byte("X-Forwarded-For")):
		f.forward(value, len(line) < lineKept)
	}
	if f.lengths+f.codings > 1 || f.hosts > 1 {
		return errFraming
	}
	return nil
}

// forward notes where a proxy says that the request comes from.
func (f *framing) forward(value []byte, whole bool) {
	f.unclear = f.unclear || !whole || len(f.forwarded)+len(value) >= forwardedMax
	if f.unclear {
		f.forwarded = f.forwarded[:0]
		return
	}
	if len(f.forwarded) > 0 {
		f.forwarded = append(f.forwarded, ',')
	}
	f.forwarded = append(f.forwarded, value...)
}

func (f *framing) body() error {
	f.large = !f.stranger && (f.codings > 0 || f.length >= LargeBytes)
	f.head = f.stranger || f.large
	switch {
	case f.codings > 0:
		f.state = inChunkSize
	case f.length > 0:
		f.state, f.left = inBody, f.length
	default:
		f.state = betweenRequests
	}
	return nil
}

func (f *framing) chunk(line []byte) error {
	// Extensions are allowed, and mean nothing.
	digits, _, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > chunkDigits || len(bytes.Trim(digits, "0123456789abcdefABCDEF")) > 0 {
		return errFraming
	}
	size, err := strconv.ParseInt(string(digits), 16, 64)
	if err != nil {
		return errFraming
	}
	if f.state, f.left = inChunk, size; size == 0 {
		f.state = inTrailers
	}
	return nil
}
