package openaihttp

import (
	"context"
	"io"
	"time"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Encode writes the body that a kind of engine gets.
func Encode(kind, name string, req *llm.Request, rid string) []byte {
	q, ok := quirksOf(kind)
	if !ok {
		panic("no such kind: " + kind)
	}
	x := &exchange{quirks: q, name: name, req: req, rid: rid}
	_, body := x.ask()
	return body
}

// Ask tells where a kind of engine is asked.
func Ask(kind string, req *llm.Request) (path string) {
	q, _ := quirksOf(kind)
	x := &exchange{quirks: q, name: "m", req: req}
	path, _ = x.ask()
	return path
}

// DecodeWhole reads an answer in one piece as Generate does, without an engine.
func DecodeWhole(kind string, req *llm.Request, r io.Reader, sink llm.Sink) (llm.Usage, error) {
	q, _ := quirksOf(kind)
	x := &exchange{e: &Engine{host: "engine.test:1"}, quirks: q, name: "m", req: req, answer: answer{sink: sink}}
	err := x.whole(context.Background(), r)
	return x.answer.produced(), err
}

// Quote writes a JSON string.
func Quote(b []byte, text string) []byte { return quote(b, text) }

// Size is the guess of how long a body gets.
func Size(req *llm.Request) int { return size(req) }

// Decode reads a stream as Generate does, without an engine.
func Decode(r io.Reader, sink llm.Sink) (llm.Usage, error) {
	return DecodeWithin(r, sink, LineBytesMax)
}

// DecodeWithin is Decode with another bound for lines.
func DecodeWithin(r io.Reader, sink llm.Sink, longest int) (llm.Usage, error) {
	x := &exchange{e: &Engine{host: "engine.test:1"}, quirks: &quirks{}, answer: answer{sink: sink}}
	err := x.read(context.Background(), newEvents(r, make([]byte, 16), longest))
	return x.answer.produced(), err
}

// Chunk is what one chunk says, for comparison.
type Chunk = piece

// DecodeQuick and DecodeSlow read one chunk in either way.
func DecodeQuick(data []byte) (p Chunk, ok bool) {
	var q quick
	ok = q.parse(data, &p)
	return p, ok
}

// QuickReader gives a reader of the chunks of one stream.
func QuickReader() func(data []byte) (p Chunk, ok bool) {
	var q quick
	return func(data []byte) (p Chunk, ok bool) {
		ok = q.parse(data, &p)
		return p, ok
	}
}

// DecodeSlow is the way that reads everything.
func DecodeSlow(data []byte) (Chunk, error) { return decodeChunk(data) }

// Refusal is the fault of an error inside a stream.
func Refusal(data []byte) *fault.Error { return reported(data) }

// NewWatch watches over a reader.
func NewWatch(r io.Reader, idle time.Duration, tired func()) io.Reader {
	w := newWatch(idle, tired)
	w.r = io.NopCloser(r)
	return w
}
