package llm

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"
)

// Verbatim is text of a request as it came: a JSON string, quotes and escapes
// included. Nobody between the caller and the engine reads it, so nobody decodes
// it; a prompt of megabytes is copied, not rewritten, at every step. Nil is the
// empty text. A Verbatim is valid JSON and valid UTF-8: who makes one sees to that.
type Verbatim []byte

// NewVerbatim makes a Verbatim of plain characters. What is no UTF-8 becomes U+FFFD.
func NewVerbatim(s string) Verbatim {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return nil // a string can always be written
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Quoted gives the JSON string.
func (t Verbatim) Quoted() []byte {
	if len(t) == 0 {
		return []byte(`""`)
	}
	return t
}

// Empty tells whether there are no characters.
func (t Verbatim) Empty() bool { return len(t) <= len(`""`) }

// Decode gives the characters.
func (t Verbatim) Decode() (string, error) {
	var s string
	if err := json.Unmarshal(t.Quoted(), &s); err != nil {
		return "", fmt.Errorf("text: %w", err)
	}
	return s, nil
}

// MarshalJSON gives the JSON string.
func (t Verbatim) MarshalJSON() ([]byte, error) { return t.Quoted(), nil }

var errNoText = errors.New("not a JSON string")

// UnmarshalJSONFrom points to the JSON string where it was read: who reads from
// bytes must not change them afterwards. There is no way to read one from a stream.
func (t *Verbatim) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != '"' {
		return errNoText
	}
	*t = Verbatim(raw)
	return nil
}

// UnmarshalJSON keeps the JSON string.
func (t *Verbatim) UnmarshalJSON(raw []byte) error {
	if len(raw) < 2 || raw[0] != '"' {
		return errNoText
	}
	*t = bytes.Clone(raw)
	return nil
}

// Chars counts the characters, by code points.
func (t Verbatim) Chars() int {
	if t.Empty() {
		return 0
	}
	raw, n := t[1:len(t)-1], 0
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return n + runes(raw)
		}
		n += runes(raw[:i]) + 1
		raw = raw[i+escapeLen(raw[i:]):]
	}
}

// escapeLen is the length of the escape at the beginning of raw; the two halves
// of a surrogate pair are one.
func escapeLen(raw []byte) int {
	if raw[1] != 'u' {
		return 2
	}
	if len(raw) >= 12 && (raw[2]|0x20) == 'd' && bytes.IndexByte([]byte("89aAbB"), raw[3]) >= 0 && raw[6] == '\\' {
		return 12
	}
	return min(6, len(raw))
}

// runes counts code points: all bytes of UTF-8 but those that continue one.
// Eight bytes are looked at in one step.
func runes(b []byte) int {
	const highs = 0x8080808080808080
	n, rest := 0, b
	for len(rest) >= 8 {
		x := binary.LittleEndian.Uint64(rest)
		n += 8 - bits.OnesCount64(x&^(x<<1)&highs)
		rest = rest[8:]
	}
	for _, c := range rest {
		if c&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// String gives the size only.
func (t Verbatim) String() string { return fmt.Sprintf("text(%d bytes)", len(t)) }

// GoString gives the size only.
func (t Verbatim) GoString() string { return t.String() }

// LogValue keeps content out of logs.
func (t Verbatim) LogValue() slog.Value { return slog.StringValue(t.String()) }
