package openaihttp

import (
	"bytes"
	"errors"
	"io"
)

// errLong says that a line passed its bound.
var errLong = errors.New("line is too long")

// events reads the data of server-sent events out of a byte stream. Where reads
// happen to cut the bytes makes no difference.
type events struct {
	r   io.Reader
	max int
	buf []byte
	// Bytes before keep are done with, those up to pos belong to the event being
	// read, those up to end are not looked at yet, save the first seen of them.
	keep, pos, end, seen int
	// from and to hold the data of the event when it has one line of it; joined
	// holds it when there are more.
	from, to, lines int
	joined          []byte
	begun           bool
	// afterCR says that a line ended in CR, so that LF belongs to it.
	afterCR bool
	err     error
}

// newEvents reads from r, beginning with the given buffer.
func newEvents(r io.Reader, buf []byte, longest int) *events {
	return &events{r: r, buf: buf, max: longest}
}

// next gives the data of the next event that has any. It is good until the next
// call. At the end, what there is of an event counts as one.
func (s *events) next() ([]byte, error) {
	s.keep, s.lines = s.pos, 0
	for {
		from, to, err := s.line()
		if err != nil && (!errors.Is(err, io.EOF) || s.lines == 0) {
			return nil, err
		}
		if from < to {
			if err := s.field(from, to); err != nil {
				return nil, err
			}
			if s.lines != 1 {
				s.keep = s.pos
			}
			continue
		}
		switch {
		case s.lines == 1:
			return s.buf[s.from:s.to], nil
		case s.lines > 1:
			return s.joined, nil
		}
		s.keep = s.pos
	}
}

// field takes one line; only data matters to us. The common event has one line
// of data, which stays where it was read; whatever follows moves it to joined,
// so that the buffer does not grow with lines that say nothing.
func (s *events) field(from, to int) error {
	if s.lines == 1 {
		s.joined = append(s.joined[:0], s.buf[s.from:s.to]...)
	}
	from, ok := s.value(from, to)
	switch {
	case !ok && s.lines != 1:
		return nil
	case !ok:
		s.lines = many
		return nil
	case s.lines == 0:
		s.from, s.to, s.lines = from, to, 1
		return nil
	}
	s.lines = many
	if len(s.joined)+1+to-from > s.max {
		return errLong
	}
	s.joined = append(append(s.joined, '\n'), s.buf[from:to]...)
	return nil
}

// many stands for an event that is in joined.
const many = 2

// value finds where the value of a data line begins.
func (s *events) value(from, to int) (int, bool) {
	const name = "data"
	if !bytes.HasPrefix(s.buf[from:to], []byte(name)) {
		return 0, false
	}
	if from += len(name); from == to {
		return from, true
	}
	if s.buf[from] != ':' {
		return 0, false
	}
	if from++; from < to && s.buf[from] == ' ' {
		from++
	}
	return from, true
}

// line gives the place of the next line, without its end.
func (s *events) line() (from, to int, err error) {
	for {
		if s.afterCR && s.pos < s.end {
			s.afterCR = false
			if s.buf[s.pos] == '\n' {
				s.pos++
			}
		}
		rest := s.buf[s.pos+s.seen : s.end]
		at := bytes.IndexByte(rest, '\n')
		if at >= 0 {
			rest = rest[:at]
		}
		if cr := bytes.IndexByte(rest, '\r'); cr >= 0 {
			at, s.afterCR = cr, true
		}
		if at >= 0 {
			from, to = s.pos, s.pos+s.seen+at
			s.pos, s.seen = to+1, 0
			if to-from > s.max {
				return 0, 0, errLong
			}
			return s.unmark(from, to), to, nil
		}
		s.seen = s.end - s.pos
		if s.seen > s.max {
			return 0, 0, errLong
		}
		if s.err != nil {
			from, s.pos, s.seen = s.pos, s.end, 0
			if from == s.end || !errors.Is(s.err, io.EOF) {
				return from, from, s.err
			}
			return s.unmark(from, s.end), s.end, nil
		}
		s.fill()
	}
}

// unmark skips the byte order mark that a stream may begin with.
func (s *events) unmark(from, to int) int {
	const mark = "\xEF\xBB\xBF"
	if !s.begun && bytes.HasPrefix(s.buf[from:to], []byte(mark)) {
		from += len(mark)
	}
	s.begun = true
	return from
}

// fill reads once, after making room.
func (s *events) fill() {
	if s.end == len(s.buf) {
		if s.keep > 0 {
			copy(s.buf, s.buf[s.keep:s.end])
			s.pos, s.end, s.from, s.to = s.pos-s.keep, s.end-s.keep, s.from-s.keep, s.to-s.keep
			s.keep = 0
		}
		if s.end >= len(s.buf)/2 {
			s.buf = append(s.buf, make([]byte, max(len(s.buf), bufferBytes))...)
		}
	}
	var n int
	n, s.err = s.r.Read(s.buf[s.end:])
	s.end += n
}

// ended tells whether no byte is left.
func (s *events) ended() bool { return s.err != nil && s.pos == s.end }
