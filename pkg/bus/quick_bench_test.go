package bus

import (
	"testing"
	"time"
)

// BenchmarkBothWays is what one message costs to write and to read, by hand and
// in the general way.
func BenchmarkBothWays(b *testing.B) {
	e := &UsageEvent{
		SpecVersion: "1.0", ID: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Source: "/engy/edge",
		Type: UsageType, Subject: "0199-account", Time: time.Unix(1_790_000_000, 5).UTC(), DataContentType: "application/json",
		Data: Usage{Job: "0123", Account: "0199-account", Key: "0199-key", Model: "glm-5.2", Region: "us", Route: "POST /v1/chat/completions", Outcome: "finished"},
	}
	raw, _ := e.appendQuick(nil)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := e.appendQuick(make([]byte, 0, quickBytes)); !ok {
				b.Fatal()
			}
		}
	})
	b.Run("write, general", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			general(b, e)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var got UsageEvent
			if err := Unmarshal(raw, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read, general", func(b *testing.B) {
		b.ReportAllocs()
		spaced := append([]byte(" "), raw...)
		for b.Loop() {
			var got UsageEvent
			if err := Unmarshal(spaced, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}
