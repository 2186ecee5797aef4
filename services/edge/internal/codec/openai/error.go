package openai

import (
	"strconv"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// Error writes a failure in OpenAI's form, its code being the HTTP status as a
// number. Causes that the caller cannot act on show the request id only.
func (Codec) Error(err error, id string) (int, []byte) {
	f := fault.Of(err)
	status, kind := Status(f.Code)
	message := f.Message
	if f.Code == fault.Internal {
		message = "internal error; request id " + id
	}
	b := wire.Quote([]byte(`{"error":{"message":`), message)
	b = wire.Quote(append(b, `,"type":`...), kind)
	b = append(b, `,"param":`...)
	if f.Field == "" {
		b = append(b, "null"...)
	} else {
		b = wire.Quote(b, f.Field)
	}
	b = strconv.AppendInt(append(b, `,"code":`...), int64(status), 10)
	return status, append(b, "}}"...)
}

// Status gives the HTTP status and OpenAI's error type for a code.
func Status(c fault.Code) (status int, kind string) {
	switch c {
	case fault.Invalid, fault.Overlong:
		return 400, "invalid_request_error"
	case fault.Unauthorized:
		return 401, "authentication_error"
	case fault.NoFunds:
		return 402, "insufficient_quota"
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
