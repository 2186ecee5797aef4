// Package codec lists the wire protocols that the edge speaks. A codec turns
// bytes into the internal request and the internal events into bytes; it knows
// no bus, no clock, no logger and no HTTP framework. To add a protocol, add a
// folder and a line in Text.
package codec

import (
	"io"
	"strings"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/anthropic"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/codec/responses"
)

// Codec is one wire protocol: two pure functions, a sink, and a way to say no.
type Codec interface {
	// Routes gives the routes as method, blank, path.
	Routes() []string
	// Decode reads a request of one of the routes. What it gives may point into
	// body, which must never change.
	Decode(route string, body []byte) (*llm.Request, error)
	// Encode gives a sink that writes the answer: event by event when the
	// request streams, else one body at the end. id is the request's id and
	// created the time in Unix seconds.
	Encode(w io.Writer, req *llm.Request, id string, created int64) llm.Sink
	// Error says no: the HTTP status and the body.
	Error(err error, id string) (status int, body []byte)
}

// Text lists the codecs of text exchanges.
func Text() []Codec {
	return []Codec{openai.Codec{Responses: responses.Codec{}.Decode}, responses.Codec{}, anthropic.Codec{}}
}

// Counter is a codec that can also tell how long a prompt is. These routes need
// no key.
type Counter interface {
	// CountRoutes gives the routes as method, blank, path. Decode reads them too.
	CountRoutes() []string
	// Counted writes the answer.
	Counted(tokens int64) []byte
}

// Headed is a codec whose clients have headers of their own.
type Headed interface {
	// KeyHeader is where they may send their key; Authorization wins.
	KeyHeader() string
	// IDHeader is where they look for the id of their request.
	IDHeader() string
}

// Speaker is the codec in whose words a path is answered, whether it has a route
// or not.
func Speaker(path string) Codec {
	const messages = "/v1/messages"
	if path == messages || strings.HasPrefix(path, messages+"/") {
		return anthropic.Codec{}
	}
	return openai.Codec{}
}
