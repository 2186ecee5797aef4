package codectest

import (
	"encoding/json"
	"strconv"

	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
)

// Events draws an answer as engines give it: text and thoughts in pieces, calls
// one after another or mixed, keep-alives between them, and an end.
func Events(t *rapid.T, tools []string) []llm.Event {
	words := rapid.SampledFrom([]string{"a", " ", "\n", "北京", "🙂", `"`, `\`, "<&>", "\u2028", "data: x\n\n", ""})
	var events []llm.Event
	var calls []*drawnCall
	tokens := int64(0)
	for range rapid.IntRange(0, 12).Draw(t, "events") {
		tokens++
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0, 1, 2:
			e := llm.Event{Kind: llm.Text, Text: words.Draw(t, "text")}
			if rapid.Bool().Draw(t, "scored") {
				e.Logprobs = json.RawMessage(`[{"token":` + strconv.Quote(strconv.FormatInt(tokens, 10)) + `,"logprob":-0.5,"bytes":[49],"top_logprobs":[]}]`)
			}
			events = append(events, e)
		case 3, 4:
			events = append(events, llm.Event{Kind: llm.Reasoning, Text: words.Draw(t, "thought")})
		case 5:
			events = append(events, llm.Event{Kind: llm.Ping})
		case 6, 7:
			c := &drawnCall{index: len(calls), rest: rapid.SampledFrom([]string{
				"", " ", "{}", `{"input":"a\nb\u00e9\ud83d\ude42\\"}`, ` {"zeta":[1,{"a":"}"}],"b":"\""}`, `{"command":["ls","-l"]}`,
				`{"path":"a.txt","content":"ab`, "plain", "  [1]", "{}{}",
			}).Draw(t, "arguments")}
			calls = append(calls, c)
			events = append(events, c.next(t, &llm.CallDelta{
				Index: c.index, ID: "call_" + strconv.Itoa(c.index), Name: rapid.SampledFrom(tools).Draw(t, "tool"),
			}))
		default:
			if len(calls) > 0 {
				c := rapid.SampledFrom(calls).Draw(t, "call")
				events = append(events, c.next(t, &llm.CallDelta{Index: c.index}))
			}
		}
	}
	finish := rapid.SampledFrom([]llm.Finish{llm.Stop, llm.Length, llm.ToolCalls, llm.Filter}).Draw(t, "finish")
	usage := llm.Usage{Prompt: 9, Cached: 4, Completion: tokens}
	if rapid.Bool().Draw(t, "counted") {
		usage.Reasoning = &tokens
	}
	return append(events, llm.Event{
		Kind: llm.Done, Finish: finish, Usage: &usage, Receipt: &llm.Receipt{RequestID: ID, Worker: "w", ChargedMicro: 7},
	})
}

// drawnCall is a call of which some of the arguments have come.
type drawnCall struct {
	index int
	rest  string
}

func (c *drawnCall) next(t *rapid.T, d *llm.CallDelta) llm.Event {
	n := rapid.IntRange(0, len(c.rest)).Draw(t, "cut")
	piece := c.rest[:n]
	c.rest = c.rest[n:]
	return llm.Event{Kind: llm.ToolCall, Text: piece, Call: d}
}
