package llm

import (
	"bytes"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json/jsontext"
)

// Base64 is inline media as it came: the characters of base64, which JSON strings
// hold without escapes. Nobody between the caller and the engine decodes it.
type Base64 []byte

// MarshalJSON gives the JSON string.
func (d Base64) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(d)+2)
	return append(append(append(b, '"'), d...), '"'), nil
}

// UnmarshalJSONFrom points to the characters where they were read, when none is
// escaped: who reads from bytes must not change them afterwards.
func (d *Base64) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != '"' {
		return errNoText
	}
	*d, err = unescaped(raw)
	return err
}

// UnmarshalJSON reads a JSON string.
func (d *Base64) UnmarshalJSON(raw []byte) error {
	if len(raw) < 2 || raw[0] != '"' {
		return errNoText
	}
	plain, err := unescaped(raw)
	*d = bytes.Clone(plain)
	return err
}

// unescaped gives the characters of a JSON string, the same bytes when they may
// stay as they are.
func unescaped(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return nil, errNoText
	}
	return plain, nil
}

// String gives the size only.
func (d Base64) String() string { return fmt.Sprintf("media(%d base64 bytes)", len(d)) }

// GoString gives the size only.
func (d Base64) GoString() string { return d.String() }

// LogValue keeps content out of logs.
func (d Base64) LogValue() slog.Value { return slog.StringValue(d.String()) }
