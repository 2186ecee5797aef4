// Package fault holds the error codes of the product and the error that
// carries one. Wire statuses do not live here: codecs and the HTTP rim turn a
// code into a status. An error without a code is Internal: the caller sees a
// request id, the operator sees the cause. To add a code, add the constant and
// list it in Codes; every codec's exhaustiveness test then asks for its status.
package fault

import (
	"errors"
	"strconv"
	"time"
)

// Code says what kind of thing went wrong, in the product's own words.
type Code string

const (
	Invalid      Code = "invalid"        // the request is malformed or breaks a rule
	Overlong     Code = "overlong"       // the prompt does not fit the model's window
	Unauthorized Code = "unauthorized"   // key missing, unknown or revoked
	Forbidden    Code = "forbidden"      // the key is good but may not do this
	NoFunds      Code = "no_funds"       // balance or spending limit does not cover the hold
	NotFound     Code = "not_found"      // no such route, model or thing, or nobody serves it
	TooLarge     Code = "too_large"      // body, media bytes or media count over the limit
	HeadTooLarge Code = "head_too_large" // request line and headers over the limit
	Busy         Code = "busy"           // capacity or concurrency is used up; retry later
	NoWorker     Code = "no_worker"      // live workers exist, none meets the requirements
	Engine       Code = "engine"         // the worker or its engine failed
	Timeout      Code = "timeout"        // the worker or its engine did not answer in time
	Canceled     Code = "canceled"       // the client left
	Unavailable  Code = "unavailable"    // a part of the platform cannot be reached
	Internal     Code = "internal"       // our own mistake
)

// Codes lists every code, for tests that must cover them all.
func Codes() []Code {
	return []Code{
		Invalid, Overlong, Unauthorized, Forbidden, NoFunds, NotFound, TooLarge, HeadTooLarge, Busy,
		NoWorker, Engine, Timeout, Canceled, Unavailable, Internal,
	}
}

// Error is a failure with a code and a message that is safe to show to the
// caller: no secret, no content, no inner address.
type Error struct {
	Code    Code
	Message string
	// Field names the offending member of the request, empty when none does.
	Field string
	// Retry is how long the caller should wait before trying again; zero means
	// that nothing is promised.
	Retry time.Duration
	// Tokens and Window belong to Overlong: what the prompt has and what the model
	// takes. Codecs say it in their own words. Zero when they are not known.
	Tokens, Window int64
	cause          error
}

// New returns an error with a code and a message that the caller may see.
func New(code Code, message string) *Error {
	return &Error{Code: code, Message: message}
}

// Wrap returns an error whose cause only operators see.
func Wrap(code Code, message string, cause error) *Error {
	return &Error{Code: code, Message: message, cause: cause}
}

// At returns an Invalid error that names a field of the request.
func At(field, message string) *Error {
	return &Error{Code: Invalid, Message: message, Field: field}
}

// TooLong returns an Overlong error with its numbers.
func TooLong(tokens, window int64) *Error {
	return &Error{
		Code: Overlong, Tokens: tokens, Window: window,
		Message: "prompt is " + strconv.FormatInt(tokens, 10) +
			" tokens, which exceeds the model's context window of " + strconv.FormatInt(window, 10) + "; reduce the prompt",
	}
}

// Error gives the message and, for operators, the cause.
func (e *Error) Error() string {
	if e.cause == nil {
		return string(e.Code) + ": " + e.Message
	}
	return string(e.Code) + ": " + e.Message + ": " + e.cause.Error()
}

// Unwrap gives the cause, nil when there is none.
func (e *Error) Unwrap() error { return e.cause }

// Of finds the coded error in err's chain. An error without one comes back as
// Internal with err as its cause; nil stays nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Wrap(Internal, "internal error", err)
}

// Is tells whether err carries the code.
func Is(err error, code Code) bool { return err != nil && Of(err).Code == code }
