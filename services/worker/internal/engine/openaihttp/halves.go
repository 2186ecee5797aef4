package openaihttp

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// halved is a string of an engine that may begin or end with half of a character: JSON
// writes those beyond the first 65,536 as two escapes, and some engines cut their
// chunks between them. A half at either edge stays as three bytes that no UTF-8 has,
// until halves joins it; inside it is U+FFFD.
type halved string

// UnmarshalJSON reads a string or null.
func (h *halved) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text, jsontext.AllowInvalidUTF8(true)); err != nil {
		return err
	}
	if len(raw) >= len(`"\ud800"`) {
		inner := raw[1 : len(raw)-1]
		at := len(inner) - len(`\ud800`)
		if behind, ok := strings.CutPrefix(text, replaced); ok && escaped(inner) >= lows {
			text = encode(escaped(inner)) + behind
		}
		high := escaped(inner[at:])
		if before, ok := strings.CutSuffix(text, replaced); ok && high < lows && high != 0 && odd(inner[:at+1]) {
			text = before + encode(high)
		}
	}
	*h = halved(text)
	return nil
}

const (
	// highs and lows are where first and second halves begin, pastLows where they end.
	highs, lows, pastLows = 0xD800, 0xDC00, 0xE000
	// replaced is what half a character is shown as.
	replaced = string(utf8.RuneError)
)

// escaped gives the half of a character that an escape at the beginning stands for, 0
// when there is none.
func escaped(b []byte) rune {
	if b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	if r < highs || r >= pastLows {
		return 0
	}
	return r
}

// odd tells whether the backslash at the end begins an escape.
func odd(b []byte) bool {
	n := 0
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// encode writes a half as UTF-8 would, if it had any.
func encode(half rune) string {
	return string([]byte{0xE0 | byte(half>>12), 0x80 | byte(half>>6)&0x3F, 0x80 | byte(half)&0x3F})
}

// decode reads a half, 0 when it is none.
func decode(text string) rune {
	if text[0] != 0xED || text[1] < 0xA0 {
		return 0
	}
	return 0xD000 | rune(text[1]&0x3F)<<6 | rune(text[2]&0x3F)
}

// halves joins the characters of one text that its chunks cut in two. It holds a first
// half until the next chunk.
type halves struct{ high rune }

func (h *halves) join(text string) string {
	if text == "" {
		return ""
	}
	if len(text) >= len(replaced) && decode(text) >= lows {
		// A second half without its first is U+FFFD.
		text, h.high = string(utf16.DecodeRune(h.high, decode(text)))+text[len(replaced):], 0
	}
	text = h.rest() + text
	if n := len(text) - len(replaced); n >= 0 {
		if high := decode(text[n:]); high != 0 && high < lows {
			text, h.high = text[:n], high
		}
	}
	return text
}

// rest gives what is left of a half that nothing followed.
func (h *halves) rest() string {
	if h.high == 0 {
		return ""
	}
	h.high = 0
	return replaced
}
