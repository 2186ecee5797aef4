package responses

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// custom takes the text of a custom tool out of the arguments that the model
// writes, {"input":"…"}, while they come in pieces.
type custom struct {
	state customState
	// rest is what has come and is not read yet.
	rest string
}

type customState int

const (
	beforeText customState = iota
	inText
	afterText
	// noText says that the model writes something else, which is read at the end.
	noText
)

// take gives the next piece of the text.
func (c *custom) take(arguments string) string {
	c.rest += arguments
	if c.state == beforeText {
		c.open()
	}
	var out []byte
	for c.state == inText && len(c.rest) > 0 {
		n := 0
		switch c.rest[0] {
		case '"':
			c.state = afterText
		case '\\':
			if out, n = unescape(out, c.rest); n == 0 {
				return string(out)
			}
		default:
			if n = strings.IndexAny(c.rest, `"\`); n < 0 {
				n = len(c.rest)
			}
			out = append(out, c.rest[:n]...)
		}
		c.rest = c.rest[n:]
	}
	if c.state == afterText || c.state == noText {
		c.rest = ""
	}
	return string(out)
}

// open looks for the beginning of the text.
func (c *custom) open() {
	c.rest = strings.TrimLeft(c.rest, " \t\r\n")
	rest := c.rest
	for _, token := range []string{`{`, `"input"`, `:`, `"`} {
		rest = strings.TrimLeft(rest, " \t\r\n")
		if len(rest) < len(token) && strings.HasPrefix(token, rest) {
			return
		}
		after, ok := strings.CutPrefix(rest, token)
		if !ok {
			c.state = noText
			return
		}
		rest = after
	}
	c.state, c.rest = inText, rest
}

// end gives what is missing of the text now that the arguments have ended. What
// is no object with one text is itself the text.
func (c *custom) end(arguments string) string {
	if c.state != noText {
		return ""
	}
	var members map[string]jsontext.Value
	if json.Unmarshal([]byte(arguments), &members) != nil {
		return arguments
	}
	one, ok := members["input"]
	if len(members) == 1 {
		for _, v := range members {
			one, ok = v, true
		}
	}
	var text string
	if !ok || json.Unmarshal(one, &text) != nil {
		return arguments
	}
	return text
}

// customText is the text of arguments that have come whole.
func customText(arguments string) string {
	var c custom
	return c.take(arguments) + c.end(arguments)
}

// unescape reads one escape of a JSON string and gives its length, zero when some
// of it is still to come. Escapes that JSON does not know stand for themselves.
func unescape(out []byte, s string) ([]byte, int) {
	if len(s) < 2 {
		return out, 0
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(from, s[1]); i >= 0 {
		return append(out, to[i]), 2
	}
	if s[1] != 'u' {
		return append(out, s[:2]...), 2
	}
	r, n := codeUnit(s)
	if n == 0 {
		return out, 0
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r), n
	}
	low := s[n:]
	if len(low) < 2 && strings.HasPrefix(`\u`, low) {
		return out, 0
	}
	if !strings.HasPrefix(low, `\u`) {
		return utf8.AppendRune(out, utf8.RuneError), n
	}
	r2, m := codeUnit(low)
	if m == 0 {
		return out, 0
	}
	if pair := utf16.DecodeRune(r, r2); pair != utf8.RuneError {
		return utf8.AppendRune(out, pair), n + m
	}
	return utf8.AppendRune(out, utf8.RuneError), n
}

// codeUnit reads an escape of four hexadecimal digits.
func codeUnit(s string) (rune, int) {
	const length = 6
	if len(s) < length {
		return 0, 0
	}
	v, err := strconv.ParseUint(s[2:length], 16, 16)
	if err != nil {
		return utf8.RuneError, 2
	}
	return rune(v), length
}
