package bus

import (
	"bytes"
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/propagation"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Marshal writes a message or a body. Raw members keep their bytes.
func Marshal(v any) ([]byte, error) {
	if r, ok := v.(*llm.Request); ok {
		return r.AppendJSON(make([]byte, 0, r.SizeJSON())), nil
	}
	if q, ok := v.(quickWriter); ok {
		if raw, ok := q.appendQuick(make([]byte, 0, quickBytes)); ok {
			return raw, nil
		}
	}
	raw, err := json.Marshal(v, jsontext.PreserveRawStrings(true), jsontext.AllowDuplicateNames(true))
	if err != nil {
		// The text of a JSON error quotes the names that it met.
		return nil, fault.New(fault.Internal, "message cannot be written")
	}
	return raw, nil
}

// Unmarshal reads a message or a body. What it gives may point into raw, which
// must not change any more. Members that it does not know are
// passed over, so that newer services can talk to older ones.
func Unmarshal(raw []byte, v any) error {
	if q, ok := v.(quickReader); ok {
		r := reader{rest: string(raw)}
		if q.readQuick(&r) {
			return nil
		}
	}
	if err := json.Unmarshal(raw, v, jsontext.AllowDuplicateNames(true)); err != nil {
		// The text of a JSON error may quote what it read.
		return fault.New(fault.Invalid, "message cannot be read")
	}
	return nil
}

// quickBytes is about how long the messages are that are written by hand.
const quickBytes = 768

// pack puts a head and the bytes that follow it into one message: the head's
// JSON, a line feed, the rest. JSON on one line holds no line feed.
func pack(head any, rest []byte) ([]byte, error) {
	raw, err := Marshal(head)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(raw)+1+len(rest))
	out = append(out, raw...)
	out = append(out, '\n')
	return append(out, rest...), nil
}

func unpack(raw []byte, head any) ([]byte, error) {
	i := bytes.IndexByte(raw, '\n')
	if i < 0 {
		return nil, fault.New(fault.Invalid, "message has no head")
	}
	return raw[i+1:], Unmarshal(raw[:i], head)
}

// Traceparent writes the span of ctx in W3C form, empty when there is none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// WithTraceparent gives a context whose spans belong to a travelled trace.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
