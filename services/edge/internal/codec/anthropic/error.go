package anthropic

import (
	"errors"
	"strconv"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// Error writes a failure in Anthropic's form. Causes that the caller cannot act
// on show the request id only.
func (Codec) Error(err error, id string) (int, []byte) {
	f := fault.Of(err)
	status, kind := Status(f.Code)
	b := wire.Quote([]byte(`{"type":"error","error":{"type":`), kind)
	b = wire.Quote(append(b, `,"message":`...), words(f, id))
	if errors.Is(f, errNoThread) {
		b = append(b, `,"details":{"error_code":"thread_not_found"}`...)
	}
	b = wire.Quote(append(b, `},"request_id":`...), id)
	return status, append(b, '}')
}

func words(f *fault.Error, id string) string {
	switch {
	case f.Code == fault.Internal:
		return "internal error; request id " + id
	case f.Code == fault.Overlong && f.Window > 0 && f.Tokens >= f.Window:
		// Agents look for these words, and shorten their conversation.
		return "prompt is too long: " + strconv.FormatInt(f.Tokens, 10) + " tokens > " +
			strconv.FormatInt(f.Window, 10) + " maximum"
	case f.Code == fault.Overlong:
		return "prompt is too long: " + f.Message
	case f.Field != "" && !strings.Contains(f.Message, f.Field):
		// The form has no place for the field, so the message names it.
		return f.Field + ": " + f.Message
	}
	return f.Message
}

// Status gives the HTTP status and Anthropic's error type for a code.
func Status(c fault.Code) (status int, kind string) {
	status, kind = wire.Status(c)
	if c == fault.NoFunds {
		kind = "api_error"
	}
	return status, kind
}
