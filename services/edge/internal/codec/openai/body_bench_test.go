package openai_test

import (
	"strings"
	"testing"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
)

// BenchmarkBody is what each step costs that a large body takes at the edge and
// behind it: source code of about 4 MiB.
func BenchmarkBody(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` +
		strings.Repeat(`\tif err := f(\"x\"); err != nil { return err }\n`, 4<<20/48) + `"}]}`)
	req, err := openai.Codec{}.Decode(route, body)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := bus.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"decode", func() error { _, err := openai.Codec{}.Decode(route, body); return err }},
		{"count", func() error { req.Chars(); return nil }},
		{"marshal", func() error { _, err := bus.Marshal(req); return err }},
		{"unmarshal", func() error { return bus.Unmarshal(raw, new(llm.Request)) }},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := step.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
