// Package codec lists the wire protocols that the edge speaks. A codec turns
// bytes into the internal request and the internal events into bytes; it knows
// no bus, no clock, no logger and no HTTP framework. To add a protocol, add a
// folder and a line in Text.
package codec

import (
	"io"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/codec/responses"
)

// Codec is one wire protocol: two pure functions, a sink, and a way to say no.
type Codec interface {
	// Routes gives the routes as method, blank, path.
	Routes() []string
	// Decode reads a request of one of the routes. It keeps nothing of body.
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
	return []Codec{openai.Codec{Responses: responses.Codec{}.Decode}, responses.Codec{}}
}

// Counter is a codec that can also tell how long a prompt is. These routes need
// no key.
type Counter interface {
	// CountRoutes gives the routes as method, blank, path. Decode reads them too.
	CountRoutes() []string
	// Counted writes the answer.
	Counted(tokens int64) []byte
}

// Speaker is the codec in whose words a path without a route of its own is
// answered.
func Speaker(path string) Codec { return openai.Codec{} }
