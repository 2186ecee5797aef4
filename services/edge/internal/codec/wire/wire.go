// Package wire reads JSON as callers send it: strictly, naming the field that is
// wrong and quoting no content, and keeping what the platform does not read byte
// for byte. It knows no protocol; each codec has its own members.
package wire

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

const (
	// ItemsMax, ToolsMax and ToolNameMax bound the lists of a request and the
	// bytes of a tool's name; ModelBytesMax those of a model's.
	ItemsMax      = 20_000
	ToolsMax      = 1_024
	ToolNameMax   = 256
	ModelBytesMax = 256
	// DepthMax bounds how deep values that are kept may nest.
	DepthMax = 1_000
	// nameShown is how much of a caller's name an error shows, in bytes.
	nameShown = 64
)

// Raw is a value as it stands in the body, which is not copied: a body is the
// codec's for good and never changes.
type Raw []byte

// UnmarshalJSONFrom keeps the value.
func (r *Raw) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	*r = Raw(v)
	return err
}

// Kind tells what the value is, 0 when there is none.
func (r Raw) Kind() jsontext.Kind { return jsontext.Value(r).Kind() }

// Decode reads a body into T strictly. Text that is cut in the middle of a
// character, as some clients send it, is mended once: what is no character
// becomes U+FFFD.
func Decode[T any](body []byte) (*T, error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, fault.New(fault.Invalid, "the body must be a JSON object")
	}
	wire := new(T)
	err := json.Unmarshal(body, wire)
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && !errors.Is(err, jsontext.ErrDuplicateName) {
		if clean, unclean := jsontext.AppendFormat(nil, body, jsontext.AllowInvalidUTF8(true)); unclean == nil {
			wire = new(T)
			err = json.Unmarshal(clean, wire)
		}
	}
	if err != nil {
		return nil, Refusal(err)
	}
	return wire, nil
}

// Refusal turns a decoder's error into one that names the field and quotes no
// content.
func Refusal(err error) error {
	var coded *fault.Error
	if errors.As(err, &coded) {
		return coded
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		field := FieldName(semantic.JSONPointer)
		return fault.At(field, field+" has the wrong type")
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
		field := FieldName(syntax.JSONPointer)
		return fault.At(field, field+" appears twice")
	}
	return fault.New(fault.Invalid, "the body is not valid JSON")
}

// FieldName writes a JSON pointer the way callers write fields:
// messages[0].content.
func FieldName(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Short(token))
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

// Short makes a name that the caller made up fit to be shown.
func Short(name string) string {
	if len(name) > nameShown {
		name = name[:nameShown]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// Model checks a model's name.
func Model(name string) error {
	if name == "" {
		return fault.At("model", "model must be the id of a model")
	}
	if len(name) > ModelBytesMax {
		return fault.New(fault.NotFound, "model '"+Short(name)+"...' not found")
	}
	return nil
}

// ToolName checks a tool's name.
func ToolName(field, name string) error {
	if name == "" || len(name) > ToolNameMax {
		return fault.At(field, field+" must have 1 to "+strconv.Itoa(ToolNameMax)+" bytes")
	}
	return nil
}

// Keep checks a value that travels on verbatim. Deep ones are refused: they
// travel inside other values, and every reader has a limit.
func Keep(field string, raw jsontext.Value) ([]byte, error) {
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > DepthMax {
				return nil, fault.At(field, field+" is nested too deeply")
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return raw, nil
}

// Text keeps a text as it came. Null and nothing are the empty text.
func Text[V ~[]byte](field string, raw V) (llm.Verbatim, error) {
	switch jsontext.Value(raw).Kind() {
	case '"':
		return llm.Verbatim(raw), nil
	case 'n', 0:
		return nil, nil
	}
	return nil, fault.At(field, field+" must be a string")
}

// Members walks the members of an object in their order.
func Members(raw jsontext.Value, take func(name string, value jsontext.Value) error) error {
	if len(raw) == 0 {
		return nil
	}
	// A buffer, unlike any other reader, is read where it stands.
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if _, err := dec.ReadToken(); err != nil {
		return Refusal(err)
	}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return Refusal(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return Refusal(err)
		}
		if err := take(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Elements walks the values of a list in their order, as long as take says true. It
// tells whether raw is a list that was walked to its end.
func Elements(raw jsontext.Value, take func(value jsontext.Value) bool) bool {
	if raw.Kind() != '[' {
		return false
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil || !take(value) {
			return false
		}
	}
	return true
}

// Quote appends a JSON string. What is not UTF-8 becomes U+FFFD.
func Quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// Blank tells whether there is nothing but white space, as in the arguments of
// a call that has none.
func Blank(s string) bool {
	return strings.Trim(s, " \n\t\r") == ""
}
