package openaihttp

import (
	"crypto/rand"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// answer turns the pieces of one exchange into events.
type answer struct {
	sink   llm.Sink
	calls  calls
	finish string // in OpenAI's words
	// vague tells that the engine's own word for the end was another one.
	vague bool
	usage llm.Usage
	// text and thought hold what a chunk ended in the middle of.
	text, thought halves
	// counted says that usage came from the engine, running that it came from
	// timings. made is our own count, for when it did not.
	counted, running bool
	made             int64
}

// take pushes what a piece says.
func (a *answer) take(p *piece) error {
	if p.fault != nil {
		return p.fault
	}
	// Counts replace earlier ones: engines that tell them in every chunk tell
	// totals. Timings are only as good as usage while there is no usage.
	if p.counted && (!p.running || a.running || !a.counted) {
		a.counted, a.running, a.usage = true, p.running, p.usage
	}
	if gaveUp(p.finish) {
		// What comes with it may repeat the text so far.
		return fault.New(fault.Engine, "the engine gave up before the answer was finished")
	}
	// Once the limit struck, nothing else that is said of the end is true.
	if p.finish != "" && a.finish != "length" {
		a.finish, a.vague = ending(p.finish)
	}
	return a.push(p)
}

// gaveUp tells whether an answer ended because the engine did not go on.
func gaveUp(finish string) bool {
	switch strings.ToLower(finish) {
	case "abort", "aborted", "error", "cancelled", "canceled", "timeout", "insufficient_system_resource":
		return true
	}
	return false
}

// ending turns an engine's word for the end into OpenAI's, and tells whether nobody
// knows it. Only an answer that is over has such a word, so it is an end all the same,
// unless the stream breaks off behind it.
func ending(finish string) (word string, vague bool) {
	switch strings.ToLower(finish) {
	case "stop", "eos", "eos_token", "stop_sequence", "end_turn":
		return "stop", false
	case "length", "max_tokens", "max_length", "model_length":
		return "length", false
	case "tool_calls", "function_call", "tool_use":
		return "tool_calls", false
	case "content_filter":
		return "content_filter", false
	}
	return "stop", true
}

// said tells whether the engine said why it ended, so that what follows does not
// matter.
func (a *answer) said() bool { return a.finish != "" && !a.vague }

func (a *answer) push(p *piece) error {
	if err := a.scored(p.scores, llm.Scores); err != nil {
		return err
	}
	logprobs, more := p.logprobs, p.parts
	if logprobs == nil && len(more) > 0 {
		logprobs, more = more[0], more[1:]
	}
	if p.text == "" && p.reasoning == "" && len(p.calls) == 0 && logprobs == nil {
		return nil
	}
	a.made++
	p.text, p.reasoning = a.text.join(p.text), a.thought.join(p.reasoning)
	if logprobs != nil {
		// The bytes belong to the reader, which goes on.
		logprobs = append([]byte(nil), logprobs...)
	}
	if p.reasoning != "" || p.text != "" {
		// What is said behind a call stands behind it.
		if err := a.calls.begin(a.sink); err != nil {
			return err
		}
	}
	if p.reasoning != "" {
		e := llm.Event{Kind: llm.Reasoning, Text: p.reasoning}
		if p.text == "" {
			e.Logprobs, logprobs = logprobs, nil
		}
		if err := a.sink(e); err != nil {
			return err
		}
	}
	// Entries of tokens that made no text, such as half a character or a piece of
	// a call, go with a text that is empty.
	if p.text != "" || logprobs != nil {
		if err := a.sink(llm.Event{Kind: llm.Text, Text: p.text, Logprobs: logprobs}); err != nil {
			return err
		}
	}
	if err := a.scored(more, llm.Text); err != nil {
		return err
	}
	for i := range p.calls {
		if err := a.calls.take(&p.calls[i], a.sink); err != nil {
			return err
		}
	}
	return nil
}

// scored pushes log-probabilities that have no text of their own.
func (a *answer) scored(parts [][]byte, kind llm.Kind) error {
	for _, part := range parts {
		if err := a.sink(llm.Event{Kind: kind, Logprobs: part}); err != nil {
			return err
		}
	}
	return nil
}

// done pushes the end, when there was one.
func (a *answer) done() error {
	if a.finish == "" {
		return errCut(nil)
	}
	if err := a.calls.complete(a.sink); err != nil {
		return err
	}
	for _, e := range []llm.Event{{Kind: llm.Reasoning, Text: a.thought.rest()}, {Kind: llm.Text, Text: a.text.rest()}} {
		if e.Text == "" {
			continue
		}
		if err := a.sink(e); err != nil {
			return err
		}
	}
	usage := a.produced()
	return a.sink(llm.Event{Kind: llm.Done, Finish: a.reason(), Usage: &usage})
}

// reason is why the answer ended. A call that is not whole was cut by the
// limit, whatever the engine says; and only a call makes it an end with calls.
func (a *answer) reason() llm.Finish {
	switch {
	case a.finish == "length" || a.calls.cut():
		return llm.Length
	case a.finish == "content_filter":
		return llm.Filter
	case a.calls.any():
		return llm.ToolCalls
	}
	return llm.Stop
}

// credible tells whether the engine has counted what it did: no prompt is empty, and
// what came is something.
func (a *answer) credible() bool {
	return a.counted && a.usage.Prompt > 0 && (a.usage.Completion > 0 || a.made == 0)
}

// produced is what the engine is known to have done so far.
func (a *answer) produced() llm.Usage {
	u := llm.Usage{Prompt: a.usage.Prompt}
	if a.counted {
		u = a.usage
	}
	if u.Completion == 0 {
		u.Completion = a.made
	}
	return u
}

// calls follows the tool calls of one answer. Their own indices have no gap;
// the engine's may.
type calls struct {
	list []call
}

type call struct {
	// index is the engine's, -1 when it gives none.
	index    int64
	id, name string
	// begun tells that the call was pushed: its name is whole.
	begun bool
	// early holds arguments that came before the name.
	early string
	args  llm.Arguments
	// half of a character is left out where the arguments end with it: they are cut.
	half halves
}

// take pushes a piece of a call. A name may come in pieces, so a call begins with the
// first of its arguments, or when something else does.
func (c *calls) take(p *callPiece, sink llm.Sink) error {
	at := c.find(p)
	if at < 0 {
		if err := c.complete(sink); err != nil {
			return err
		}
		if at = len(c.list); at >= llm.CallsMax {
			return fault.New(fault.Engine, "the engine made too many tool calls")
		}
		c.list = append(c.list, call{index: p.index})
	}
	k := &c.list[at]
	text := k.half.join(p.arg)
	if k.args.Whole() {
		// Nothing can follow a whole object: what does is the engine's summary,
		// and joined to it the arguments would be broken.
		text = ""
	}
	k.args.Take(text)
	if k.begun {
		if text == "" {
			return nil
		}
		return sink(llm.Event{Kind: llm.ToolCall, Text: text, Call: &llm.CallDelta{Index: at}})
	}
	if k.id == "" {
		k.id = p.id
	}
	if strings.HasPrefix(p.name, k.name) {
		k.name = "" // all of it is said again
	}
	if len(k.name)+len(p.name) > NameBytesMax {
		return fault.New(fault.Engine, "the engine made a tool call with too long a name")
	}
	k.name += p.name
	if k.early += text; k.name == "" || k.early == "" {
		return nil
	}
	return k.begin(at, sink)
}

// begin pushes what is known of a call.
func (k *call) begin(at int, sink llm.Sink) error {
	if k.id == "" {
		k.id = "call_" + rand.Text()
	}
	text := k.early
	k.begun, k.early = true, ""
	return sink(llm.Event{
		Kind: llm.ToolCall, Text: text,
		Call: &llm.CallDelta{Index: at, ID: k.id, Name: k.name},
	})
}

// begin pushes the calls that have a name and wait for arguments, of which there may
// be none.
func (c *calls) begin(sink llm.Sink) error {
	for i := range c.list {
		if k := &c.list[i]; k.name != "" && !k.begun {
			if err := k.begin(i, sink); err != nil {
				return err
			}
		}
	}
	return nil
}

// find looks for the call that a piece belongs to, -1 for a new one. Engines
// give an index; some give the same one to several calls, or none, and then
// another id with a name tells.
func (c *calls) find(p *callPiece) int {
	for at := len(c.list) - 1; at >= 0; at-- {
		k := &c.list[at]
		switch {
		case k.index != p.index:
		case p.name == "" || k.name == "":
			return at
		case p.index < 0 && p.id == "":
			return -1
		case p.id == "" || p.id == k.id || k.args.Open():
			return at
		}
	}
	return -1
}

// complete refuses an answer with a call that calls nothing, and begins the others.
func (c *calls) complete(sink llm.Sink) error {
	for i := range c.list {
		if c.list[i].name == "" {
			return fault.New(fault.Engine, "the engine made a tool call without a name")
		}
	}
	return c.begin(sink)
}

func (c *calls) any() bool { return len(c.list) > 0 }

// cut tells whether a call's arguments stop in the middle.
func (c *calls) cut() bool {
	for i := range c.list {
		if c.list[i].args.Open() {
			return true
		}
	}
	return false
}
