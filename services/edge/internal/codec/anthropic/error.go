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
	case f.Code == fault.Overlong && f.Tokens > 0 && f.Window > 0:
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
	switch c {
	case fault.Invalid, fault.Overlong:
		return 400, "invalid_request_error"
	case fault.Unauthorized:
		return 401, "authentication_error"
	case fault.NoFunds:
		return 402, "api_error"
	case fault.Forbidden:
		return 403, "permission_error"
	case fault.NotFound:
		return 404, "not_found_error"
	case fault.TooLarge:
		return 413, "request_too_large"
	case fault.HeadTooLarge:
		return 431, "request_too_large"
	case fault.Busy:
		return 429, "rate_limit_error"
	case fault.Canceled:
		return 499, "api_error"
	case fault.Engine:
		return 502, "api_error"
	case fault.NoWorker, fault.Unavailable:
		return 503, "overloaded_error"
	case fault.Timeout:
		return 504, "api_error"
	case fault.Internal:
	}
	return 500, "api_error"
}
