package bus_test

import (
	"testing"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// BenchmarkMessages is what each message of a request costs to write and read.
func BenchmarkMessages(b *testing.B) {
	job := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	rates := pricing.Rates{Version: "2026-11-01", Input: 680_000, Output: 1_500_000, CachedInput: 180_000}
	token := bus.Frame{Job: job, Attempt: 1, Seq: 17, Events: []llm.Event{{Kind: llm.Text, Text: " word"}}}
	joined := bus.Frames{}
	for range 20 {
		joined.Frames = append(joined.Frames, token)
	}
	for name, m := range map[string]struct{ message, into any }{
		"ticket": {bus.Ticket{Job: job, Owner: bus.NewID(), Region: "us", Model: "glm-5.2", Class: bus.Open, Offer: 1, PromptTokens: 20, BodyBytes: 200, Deadline: time.Now()}, new(bus.Ticket)},
		"claim":  {bus.Claim{Job: job, Worker: bus.NewID()}, new(bus.Claim)},
		"hold":   {bus.Hold{Job: job, Account: "acct-1", Key: "key-1", Model: "glm-5.2", Micro: 100, FloorMicro: 100, Rates: rates, Expires: time.Now()}, new(bus.Hold)},
		"usage":  {bus.UsageEvent{SpecVersion: "1.0", ID: job, Time: time.Now(), Data: bus.Usage{Job: job, Account: "acct-1", Key: "key-1", Model: "glm-5.2", Region: "us", Rates: rates}}, new(bus.UsageEvent)},
		"frame":  {bus.Frames{Frames: []bus.Frame{token}}, new(bus.Frames)},
		"joined": {joined, new(bus.Frames)},
		"body":   {llm.Request{Model: "glm-5.2", MaxTokens: 100, Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim("hello there, how are you today?")}}}}}, new(llm.Request)},
	} {
		raw, err := bus.Marshal(m.message)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/write", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bus.Marshal(m.message); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bus.Unmarshal(raw, m.into); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
