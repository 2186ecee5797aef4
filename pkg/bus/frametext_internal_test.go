package bus

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

func text(s string) llm.Event { return llm.Event{Kind: llm.Text, Text: s} }

func TestBothWaysOfFramesAgree(t *testing.T) {
	t.Parallel()
	for name, frames := range map[string][]Frame{
		"one token": {{Job: "0a", Attempt: 1, Seq: 1, Events: []llm.Event{text(" word")}}},
		"several":   {{Job: "0a", Attempt: 2, Seq: 100, Events: []llm.Event{text("a"), {Kind: llm.Reasoning, Text: "b"}}}, {Job: "ff", Attempt: 1, Seq: 7, Events: []llm.Event{text("c")}}},
		"the end": {{
			Job: "0a", Attempt: 1, Seq: 2, Events: []llm.Event{text("c"), {Kind: llm.Done, Finish: llm.Stop, Usage: &llm.Usage{Prompt: 3, Cached: 1, Completion: 2}}},
			End: &End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 3, Cached: 1, Completion: 2, Reasoning: new(int64)}},
		}},
		"what is escaped": {{Job: "0a", Attempt: 1, Seq: 1, Events: []llm.Event{text("\"\\\n\t\x00\u2028<&>北京🙂\u00e9")}}},
	} {
		quick, ok := appendFrames(nil, frames)
		require.True(t, ok, name)
		general, err := Marshal(Frames{Frames: frames})
		require.NoError(t, err)
		require.Equal(t, string(general), string(quick), name)
		got, ok := readFrames(general)
		require.True(t, ok, name)
		require.Equal(t, frames, got, name)
	}
}

func TestUnusualFramesTakeTheGeneralWay(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Frame{
		"a failure":     {Job: "0a", Attempt: 1, Seq: 1, Events: []llm.Event{{Kind: llm.Failed, Fault: &llm.Fault{}}}, End: &End{}},
		"no finish":     {Job: "0a", Attempt: 1, Seq: 1, Events: []llm.Event{{Kind: llm.Done, Usage: &llm.Usage{}}}},
		"no events":     {Job: "0a", Attempt: 1, Seq: 1},
		"a call":        {Job: "0a", Events: []llm.Event{{Kind: llm.ToolCall, Call: &llm.CallDelta{}}}},
		"logprobs":      {Job: "0a", Events: []llm.Event{{Kind: llm.Text, Text: "a", Logprobs: []byte("[]")}}},
		"an odd job":    {Job: "x\"", Events: []llm.Event{text("a")}},
		"no text":       {Job: "0a", Events: []llm.Event{{Kind: llm.Text}}},
		"text no UTF-8": {Job: "0a", Events: []llm.Event{text("\xff")}},
	} {
		_, ok := appendFrames(nil, []Frame{f})
		require.False(t, ok, name)
	}
}

func FuzzReadFrames(f *testing.F) {
	f.Add([]byte(`{"frames":[{"job":"0a","attempt":1,"seq":1,"events":[{"k":"text","t":"a\n"}]}]}`))
	f.Add([]byte(`{"frames":[{"job":"0a","attempt":01,"seq":1,"events":[{"k":"text","t":"\ud800"}]}]}`))
	f.Add([]byte(`{"frames":[{"job":"0a","attempt":1,"seq":1,"events":[{"k":"done","f":"stop","u":{"prompt":1,"completion":2}}],"end":{"outcome":"finished","usage":{"prompt":1,"completion":2,"reasoning":0}}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := readFrames(raw)
		if !ok {
			return
		}
		var want Frames
		require.NoError(t, Unmarshal(raw, &want))
		require.Equal(t, want.Frames, got)
	})
}

// BenchmarkFrames is what twenty tokens of as many streams cost to write and to
// read.
func BenchmarkFrames(b *testing.B) {
	var frames []Frame
	for range 20 {
		frames = append(frames, Frame{
			Job:     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			Attempt: 1, Seq: 17, Events: []llm.Event{text(" word")},
		})
	}
	raw, _ := appendFrames(nil, frames)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := appendFrames(make([]byte, 0, len(raw)), frames); !ok {
				b.Fatal()
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := readFrames(raw); !ok {
				b.Fatal()
			}
		}
	})
}
