package bus

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The messages that every request pays for are written and read by hand, member
// by member in the order of their types; anything unusual takes the general way.
// Both ways give and take the same JSON, which tests and a fuzz target hold them
// to.

// quickWriter appends its JSON; ok is false when the general way must do it.
type quickWriter interface {
	appendQuick(b []byte) (_ []byte, ok bool)
}

// quickReader reads what its quickWriter writes, and tells whether it could. It is
// its zero value otherwise.
type quickReader interface {
	readQuick(r *reader) bool
}

// appendText appends a JSON string.
func appendText(b []byte, s string) ([]byte, bool) {
	if plainText(s) && strings.IndexByte(s, '"') < 0 {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"'), true
	}
	b, err := jsontext.AppendQuote(b, s)
	return b, err == nil
}

// members writes the members of an object one after the other.
type members struct {
	b  []byte
	ok bool
}

func (m *members) text(name, s string) {
	var ok bool
	m.b = append(m.b, name...)
	m.b, ok = appendText(m.b, s)
	m.ok = m.ok && ok
}

func (m *members) number(name string, n int64) {
	m.b = strconv.AppendInt(append(m.b, name...), n, 10)
}

// time writes an instant as the general way does; years beyond four digits are
// its business.
func (m *members) time(name string, t time.Time) {
	m.ok = m.ok && t.Year() >= 0 && t.Year() <= 9999
	m.b = append(append(m.b, name...), '"')
	m.b = append(t.AppendFormat(m.b, time.RFC3339Nano), '"')
}

// reader takes JSON apart in the one form that members writes. Its strings share
// the memory of the message.
type reader struct {
	rest string
	bad  bool
}

// word takes an exact text.
func (r *reader) word(w string) bool {
	rest, ok := strings.CutPrefix(r.rest, w)
	r.rest = rest
	return ok
}

// want takes an exact text that must be there.
func (r *reader) want(w string) {
	if !r.word(w) {
		r.bad = true
	}
}

// end takes what closes a message, and tells whether all of it was read.
func (r *reader) end(w string) bool {
	r.want(w)
	return !r.bad && r.rest == ""
}

// text takes a member that is a string.
func (r *reader) text(name string) string {
	r.want(name)
	r.want(`"`)
	end := strings.IndexByte(r.rest, '"')
	if r.bad || end < 0 {
		r.bad = true
		return ""
	}
	if text := r.rest[:end]; plainText(text) {
		r.rest = r.rest[end+1:]
		return text
	}
	// What is escaped may hold a quote that ends nothing.
	for end = 0; end < len(r.rest) && r.rest[end] != '"'; end++ {
		if r.rest[end] == '\\' {
			end++
		}
	}
	if end >= len(r.rest) {
		r.bad = true
		return ""
	}
	text := r.rest[:end]
	r.rest = r.rest[end+1:]
	out, err := jsontext.AppendUnquote(nil, `"`+text+`"`)
	r.bad = r.bad || err != nil
	return string(out)
}

// digitsMax is how long a number may be and surely fit.
const digitsMax = 18

// number takes a member that is a whole number, without leading zeros.
func (r *reader) number(name string) int64 {
	r.want(name)
	negative := r.word("-")
	i, n := 0, int64(0)
	for i < len(r.rest) && i < digitsMax && r.rest[i] >= '0' && r.rest[i] <= '9' {
		n = n*10 + int64(r.rest[i]-'0')
		i++
	}
	if i == 0 || i > 1 && r.rest[0] == '0' || negative && n == 0 {
		r.bad = true
	}
	r.rest = r.rest[i:]
	if negative {
		return -n
	}
	return n
}

// small is number for counts.
func (r *reader) small(name string) int {
	n := r.number(name)
	if n > 1<<31-1 || n < -1<<31 {
		r.bad = true
	}
	return int(n)
}

func (r *reader) time(name string) time.Time {
	raw := r.text(name)
	if r.bad {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, raw)
	// A fraction with a comma is Go's and not RFC 3339's.
	r.bad = err != nil || strings.IndexByte(raw, ',') >= 0
	return t
}
