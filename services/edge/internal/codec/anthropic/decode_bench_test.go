package anthropic_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/engy-ai/engy/services/edge/internal/codec/anthropic"
)

// history is about 1 MiB of a coding agent's conversation: calls, results as
// text and as blocks, and thoughts.
func history() []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","max_tokens":32000,"system":[{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"go"}`)
	source := strings.Repeat(`\tif err := f(\"x\"); err != nil { return err }\n`, 40)
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, `,{"role":"assistant","content":[{"type":"thinking","thinking":"Look at it first.","signature":"c2ln"},{"type":"text","text":"I read it."},{"type":"tool_use","id":"call_%d","name":"Read","input":{"path":"a/b/c.go","limit":200}}]}`, i)
		fmt.Fprintf(&b, `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_%d","content":"%s"},{"type":"tool_result","tool_use_id":"call_%d","content":[{"type":"text","text":"%s"}]}]}`, i, source, i, source)
	}
	b.WriteString(`],"stream":true}`)
	return []byte(b.String())
}

// BenchmarkHistory compares reading a history with only checking that it is
// JSON. The ratio shall stay below 3.
func BenchmarkHistory(b *testing.B) {
	body := history()
	per := map[string]time.Duration{}
	for _, step := range []struct {
		name string
		do   func() bool
	}{
		{"valid", func() bool { return json.Valid(body) }},
		{"decode", func() bool { _, err := anthropic.Codec{}.Decode(route, body); return err == nil }},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if !step.do() {
					b.Fatal("the history cannot be read")
				}
			}
			per[step.name] = b.Elapsed() / time.Duration(b.N)
			if per["valid"] > 0 && per["decode"] > 0 {
				b.ReportMetric(float64(per["decode"])/float64(per["valid"]), "x-valid")
			}
		})
	}
}
