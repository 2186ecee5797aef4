package openaihttp

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
)

func errCut(cause error) *fault.Error {
	return fault.Wrap(fault.Engine, "the engine's answer was cut off", cause)
}

func errUnreadable(cause error) *fault.Error {
	return fault.Wrap(fault.Engine, "the engine's answer cannot be read", cause)
}

// complaint is an error as engines write it: nested, flat, or by their web
// framework.
type complaint struct {
	Error   jsontext.Value `json:"error"`
	Message jsontext.Value `json:"message"`
	Detail  jsontext.Value `json:"detail"`
	Code    jsontext.Value `json:"code"`
	Type    jsontext.Value `json:"type"`
}

func read(data []byte) complaint {
	var c complaint
	if json.Unmarshal(data, &c, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return complaint{}
	}
	switch c.Error.Kind() {
	case '{':
		return read(c.Error)
	case '"':
		c.Message = c.Error
	}
	return c
}

// message gives the engine's own words, empty when there are none.
func (c complaint) message() string {
	if text := word(c.Message); text != "" {
		return text
	}
	return word(c.Detail)
}

func word(v jsontext.Value) string {
	var text string
	if v.Kind() != '"' || json.Unmarshal(v, &text, jsontext.AllowInvalidUTF8(true)) != nil {
		return ""
	}
	return text
}

// status gives the HTTP status that an error inside a stream stands for.
func (c complaint) status() int {
	code := string(c.Code)
	if text := word(c.Code); text != "" {
		code = text
	}
	if n, err := strconv.Atoi(code); err == nil && n > 0 {
		return n
	}
	kind := strings.ToLower(word(c.Type))
	switch {
	case strings.Contains(kind, "invalid_request"), strings.Contains(kind, "badrequest"),
		strings.Contains(kind, "exceed_context_size"):
		return http.StatusBadRequest
	case strings.Contains(kind, "rate_limit"), strings.Contains(kind, "ratelimit"), strings.Contains(kind, "overloaded"):
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// reported is an error that came inside a stream or with status 200.
func reported(data []byte) *fault.Error {
	c := read(data)
	return failed(c.status(), c.message())
}

// refused is an error that came instead of an answer.
func refused(res *http.Response, body []byte) *fault.Error {
	return failed(res.StatusCode, read(body).message())
}

// failed turns a status and the engine's words into a fault. The words are for
// the caller only when the caller can do something about it; otherwise they are
// the operator's, since they may tell of the engine's inside.
func failed(status int, words string) *fault.Error {
	words = printable(words)
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		if words == "" {
			words = "the engine refused the request"
		}
		if f := overlong(words); f != nil {
			return f
		}
		return fault.New(fault.Invalid, words)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return fault.Wrap(fault.Busy, "the engine is busy", said{status, words})
	}
	return fault.Wrap(fault.Engine, "the engine failed", said{status, words})
}

// said is an engine's error as a cause.
type said struct {
	status int
	words  string
}

func (s said) Error() string {
	return "status " + strconv.Itoa(s.status) + ": " + s.words
}

// printable bounds a message and keeps it on one line. Validators like to
// repeat the input, which would carry the prompt into whatever shows errors.
func printable(text string) string {
	for _, mark := range []string{`'input':`, `"input":`, "input_value="} {
		text, _, _ = strings.Cut(text, mark)
	}
	if len(text) > MessageBytesMax {
		text = text[:MessageBytesMax]
		for len(text) > 0 && !utf8.ValidString(text[len(text)-min(len(text), utf8.UTFMax):]) {
			text = text[:len(text)-1]
		}
	}
	text = strings.ToValidUTF8(text, "?")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}
