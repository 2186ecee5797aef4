package openaihttp

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// quote writes a JSON string. Only what JSON demands is escaped; bytes that are
// not UTF-8 become U+FFFD, since no engine would take them. Prompts have
// megabytes, so eight bytes are looked at in one step.
func quote(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		// The error tells of bytes that are not UTF-8 and nothing else.
		b, _ = jsontext.AppendQuote(b, text)
		return b
	}
	b = append(slices.Grow(b, len(text)+2), '"')
	i := 0
	for i+8 <= len(text) {
		s := text[i : i+8]
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		n := len(b)
		b = binary.LittleEndian.AppendUint64(b, x)
		if marks := special(x); marks != 0 {
			// The lowest mark is a true one; what is above it is looked at again.
			plain := bits.TrailingZeros64(marks) / 8
			b = escape(b[:n+plain], s[plain])
			i += plain + 1
			continue
		}
		i += 8
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			b = escape(b, c)
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// special marks the high bits of those of eight bytes that need an escape. A
// mark above the lowest may be false: a borrow passes it on.
func special(x uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quotes, slashes := x^ones*'"', x^ones*'\\'
	return ((x-ones*' ')&^x | (quotes-ones)&^quotes | (slashes-ones)&^slashes) & highs
}

func escape(b []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
