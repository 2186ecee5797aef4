package wire

import "github.com/engy-ai/engy/pkg/fault"

// Status gives the HTTP status and the error type for a code, in OpenAI's words, most of
// which are Anthropic's too.
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
