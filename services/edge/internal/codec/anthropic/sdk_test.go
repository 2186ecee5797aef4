package anthropic_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/anthropic"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
)

// drawn is a random answer of an engine: thoughts, texts and calls in any order,
// cut anywhere, with pings between the pieces.
func drawn(t *rapid.T) []llm.Event {
	var events []llm.Event
	take := func(e llm.Event) { events = append(events, e) }
	pieces := func(whole string, event func(piece string, first bool) llm.Event) {
		for first := true; first || whole != ""; first = false {
			n := rapid.IntRange(0, len(whole)).Draw(t, "cut")
			if !first && n == 0 {
				n = len(whole)
			}
			for n < len(whole) && whole[n]&0xC0 == 0x80 {
				n++ // engines cut between characters
			}
			take(event(whole[:n], first))
			whole = whole[n:]
			if rapid.IntRange(0, 4).Draw(t, "ping") == 0 {
				take(llm.Event{Kind: llm.Ping})
			}
		}
	}
	calls := 0
	call := func() {
		index := calls
		calls++
		id := rapid.SampledFrom([]string{"call_a", "functions.f:0", "", "engy_0123456700_eA"}).Draw(t, "id")
		args := rapid.SampledFrom([]string{"", "   ", "{}", `{"q":"}{\"","n":9007199254740993}`, ` {"a":[1,{"b":null}]}`}).Draw(t, "arguments")
		pieces(args, func(p string, first bool) llm.Event {
			c := &llm.CallDelta{Index: index}
			if first {
				c.ID, c.Name = id, "f"
			}
			return llm.Event{Kind: llm.ToolCall, Text: p, Call: c}
		})
	}
	for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]llm.Kind{llm.Text, llm.Reasoning, llm.ToolCall, llm.Ping}), 0, 12).Draw(t, "kinds") {
		switch kind {
		case llm.Text, llm.Reasoning:
			text := rapid.SampledFrom([]string{"\n", " ", "hello 北京🙂", "a\u2028b\"\\", "<x>"}).Draw(t, "text")
			pieces(text, func(p string, _ bool) llm.Event { return llm.Event{Kind: kind, Text: p} })
		case llm.ToolCall:
			begun := len(events) + 1
			call()
			if !rapid.Bool().Draw(t, "beside") {
				continue
			}
			// Another call comes between the beginning of this one and its rest.
			rest := slices.Clone(events[begun:])
			events = events[:begun]
			call()
			events = append(events, rest...)
		default:
			take(llm.Event{Kind: llm.Ping})
		}
	}
	finish := rapid.SampledFrom([]llm.Finish{llm.Stop, llm.Length, llm.Filter}).Draw(t, "finish")
	if calls > 0 && finish == llm.Stop {
		finish = llm.ToolCalls
	}
	prompt := rapid.Int64Range(0, 1e6).Draw(t, "prompt")
	return append(events, llm.Event{Kind: llm.Done, Finish: finish, Usage: &llm.Usage{
		Prompt: prompt, Cached: rapid.Int64Range(0, prompt).Draw(t, "cached"), Completion: rapid.Int64Range(0, 1e6).Draw(t, "completion"),
	}})
}

func write(t require.TestingT, req llm.Request, events []llm.Event) []byte {
	var b bytes.Buffer
	sink := anthropic.Codec{}.Encode(&b, &req, codectest.ID, 0)
	for _, e := range events {
		require.NoError(t, sink(e))
	}
	return b.Bytes()
}

// accumulated reads a stream as the official client does, and checks what other
// clients rely on besides.
func accumulated(t require.TestingT, stream []byte) sdk.Message {
	var message sdk.Message
	s := ssestream.NewStream[sdk.MessageStreamEventUnion](ssestream.NewDecoder(&http.Response{
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(stream)),
	}), nil)
	var types []string
	open, signed := -1, 0
	for s.Next() {
		e := s.Current()
		require.NoError(t, message.Accumulate(e))
		switch types = append(types, e.Type); e.Type {
		case "content_block_start":
			require.Equal(t, -1, open, "one block is open at a time")
			open, signed = int(e.Index), 0
		case "content_block_delta":
			require.Equal(t, open, int(e.Index))
			want := map[string]string{
				"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta",
			}[message.Content[open].Type]
			if e.Delta.Type == "signature_delta" {
				signed++
				want = "signature_delta"
			}
			require.Equal(t, want, e.Delta.Type)
		case "content_block_stop":
			require.Equal(t, open, int(e.Index))
			if message.Content[open].Type == "thinking" {
				require.Equal(t, 1, signed)
			}
			open = -1
		case "message_delta":
			require.Equal(t, -1, open)
			require.True(t, e.Usage.JSON.OutputTokens.Valid())
		}
	}
	require.NoError(t, s.Err())
	require.Equal(t, "message_start", types[0])
	require.Equal(t, []string{"message_delta", "message_stop"}, types[len(types)-2:])
	return message
}

func TestTheOfficialClientRebuildsTheWholeAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := drawn(t)
		thinking := rapid.SampledFrom([]string{"", "enabled", "disabled"}).Draw(t, "thinking")
		req := llm.Request{Spelling: "engy/m", Thinking: thinking}
		var whole sdk.Message
		require.NoError(t, json.Unmarshal(write(t, req, events), &whole))
		req.Stream = true
		streamed := accumulated(t, write(t, req, events))

		var blocks []sdk.ContentBlockUnion
		for _, b := range streamed.Content {
			if b.Type != "thinking" {
				blocks = append(blocks, b)
				continue
			}
			require.NotEqual(t, "disabled", thinking)
			require.NotEmpty(t, b.Thinking)
		}
		require.Len(t, whole.Content, len(blocks))
		ids := map[string]bool{}
		for i, w := range whole.Content {
			s := blocks[i]
			require.Equal(t, w.Type, s.Type)
			require.Equal(t, w.Text, s.Text)
			require.Equal(t, w.ID, s.ID)
			require.Equal(t, w.Name, s.Name)
			if w.Type == "tool_use" {
				require.JSONEq(t, string(w.Input), string(s.Input))
				require.Regexp(t, `^[a-zA-Z0-9_-]+$`, w.ID)
				require.False(t, ids[w.ID], "an id stands for one call")
				ids[w.ID] = true
			}
		}
		require.Equal(t, whole.ID, streamed.ID)
		require.Equal(t, whole.Model, streamed.Model)
		require.Equal(t, whole.StopReason, streamed.StopReason)
		require.Equal(t, whole.Usage.InputTokens, streamed.Usage.InputTokens)
		require.Equal(t, whole.Usage.CacheReadInputTokens, streamed.Usage.CacheReadInputTokens)
		require.Equal(t, whole.Usage.OutputTokens, streamed.Usage.OutputTokens)
		require.Equal(t, strings.Join(text(events, llm.Text), ""), spoken(blocks))
	})
}

// text gives the texts of one kind that say something.
func text(events []llm.Event, kind llm.Kind) []string {
	var all []string
	sink := llm.Ordered(func(e llm.Event) error {
		if e.Kind == kind {
			all = append(all, e.Text)
		}
		return nil
	})
	for _, e := range events {
		_ = sink(e)
	}
	return all
}

func spoken(blocks []sdk.ContentBlockUnion) string {
	var b strings.Builder
	for _, c := range blocks {
		b.WriteString(c.Text)
	}
	return b.String()
}
