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
	status, kind := wire.Status(f.Code)
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
