// Package script decides what the simulator says.
//
// What lives here: the directives of a request, the made-up language, and the
// plan of an answer: every token with its place. What does not: HTTP, JSON on
// the wire, pace. The invariant: a plan depends on its Ask alone, its token
// count is the number of tokens it lists, and it never lists more than the Ask
// allows. To add a directive, give Settings a field and a key, act on it in Plan
// (what is said) or in the api package (how it is sent), and document it in sim.
package script

import (
	"fmt"
	"strings"

	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// Kind says which part of an answer a step belongs to.
type Kind uint8

// The kinds of steps.
const (
	Reasoning Kind = iota
	Text
	CallName // opens a tool call: its id and name
	CallArgs // a piece of its arguments
	CallAll  // its whole arguments at once
	Filler   // one very long piece of text
)

// Step is one event of an answer: a token, or what is sent as if it were one.
type Step struct {
	ID tokenizer.ID
	// Tokens is what the step counts: one, save for the name of a call.
	Tokens int32
	// Call is the index of the tool call, for the kinds that have one.
	Call int16
	Kind Kind
	// Hidden is how many bytes at the end are not shown, because a stop string
	// begins there.
	Hidden uint8
	// Before is the state of the text that the token follows.
	Before State
}

// ToolCall is one call of a plan.
type ToolCall struct{ ID, Name, Args string }

// Plan is a whole answer.
type Plan struct {
	Steps  []Step
	Calls  []ToolCall
	Finish string
	filler string
	state  State
}

// Ask is all that an answer depends on.
type Ask struct {
	Seed uint64
	// After is the state behind the prompt.
	After State
	// TokensMax cuts the answer; TokensMin and Natural set its own length.
	TokensMax, TokensMin, Natural int
	// IgnoreEOS makes the answer as long as TokensMax, within CountMax.
	IgnoreEOS bool
	// Think is the number of reasoning tokens that come first.
	Think int
	Stops []string
	Tools []Tool
	// CallTools is how many calls to make, zero to answer with text.
	CallTools int
	// FirstTool is the index in Tools of the first call, or -1 when Settings
	// names a tool that was not offered.
	FirstTool int
	// User is the last user text without marks; echo and arguments use it.
	User string
	// Results is what tools have said since the last answer; empty when none has.
	Results string
	// Schema, when set, makes the text a JSON value of this schema.
	Schema   Schema
	Settings Settings
}

// Plan writes the answer to an Ask.
func (v *Vocabulary) Plan(a Ask) Plan {
	p := Plan{Finish: "stop", state: a.After}
	for range min(a.Think, a.TokensMax+1) {
		p.add(Step{ID: v.draw(p.state, a.Seed), Tokens: 1, Kind: Reasoning})
	}
	if a.CallTools > 0 {
		v.calls(&p, a)
	} else {
		v.text(&p, a)
		p.stopAt(a.Stops)
	}
	p.limit(a.TokensMax)
	return p
}

// text adds the answer's words.
func (v *Vocabulary) text(p *Plan, a Ask) {
	set := a.Settings
	if set.Big > 0 {
		p.filler = strings.Repeat("x", set.Big)
		p.add(Step{Kind: Filler, Tokens: 1})
		return
	}
	length := max(a.Natural, a.TokensMin-len(p.Steps))
	if a.IgnoreEOS {
		length = CountMax
	}
	fixed := "Simulated answer:"
	switch {
	case set.EchoResult && a.Results != "":
		fixed = a.Results
	case set.Echo:
		fixed = a.User
	case set.Unicode:
		fixed = ""
	case a.Schema != nil:
		fixed = fill(a.Schema, a.User, a.Seed)
	}
	if set.Tokens != Unset {
		length = set.Tokens
	} else if set.Echo || set.EchoResult && a.Results != "" || a.Schema != nil {
		length = tokenizer.Count(fixed)
	}
	// One token too many, where the answer is cut, tells limit that it was.
	length = max(0, min(length, CountMax, a.TokensMax-len(p.Steps)+1))
	before := len(p.Steps)
	p.force(fixed, Text, 0, length)
	for i := 0; len(p.Steps)-before < length; i++ {
		if set.Unicode {
			p.add(wide(a.Seed, i))
			continue
		}
		p.add(Step{ID: v.draw(p.state, a.Seed), Tokens: 1, Kind: Text})
	}
}

// add appends a step behind the ones before.
func (p *Plan) add(s Step) {
	s.Before = p.state
	p.state = p.state.After(s.ID)
	p.Steps = append(p.Steps, s)
}

// wide is a token outside ASCII, of two, three or four bytes.
func wide(seed uint64, index int) Step {
	const runes = "éüñøжд北京東語言漢字あ한국€🙂🎉🚀🌍𝄞"
	list := []rune(runes)
	r := list[split(seed, uint64(index))%uint64(len(list))]
	return Step{ID: tokenizer.Encode(nil, string(r))[0], Tokens: 1, Kind: Text}
}

// force adds at most limit tokens of a given text.
func (p *Plan) force(text string, kind Kind, call, limit int) {
	for _, id := range tokenizer.Encode(nil, text) {
		if limit == 0 {
			return
		}
		limit--
		p.add(Step{ID: id, Tokens: 1, Kind: kind, Call: int16(call)})
	}
}

// calls adds tool calls, going round the offered tools from the first one.
func (v *Vocabulary) calls(p *Plan, a Ask) {
	p.Finish = "tool_calls"
	set := a.Settings
	for i := range a.CallTools {
		if set.ToolText && i > 0 {
			p.force(" And one more thing.", Text, 0, CountMax)
		}
		tool := Tool{Name: set.Tool}
		if a.FirstTool >= 0 && a.FirstTool < len(a.Tools) {
			next := a.FirstTool + i
			if set.Args != "" {
				next = a.FirstTool // what is spelled out fits one tool only
			}
			tool = a.Tools[next%len(a.Tools)]
		}
		call := ToolCall{
			ID:   fmt.Sprintf("call_%016x%08x", split(a.Seed, uint64(i)), uint32(i)),
			Name: tool.Name,
			Args: fill(tool.Schema, a.User, a.Seed+uint64(i)),
		}
		if set.Args != "" {
			call.Args = set.Args
		}
		if set.Big > 0 {
			call.Args = bigArgs(tool.Schema, set.Big)
		}
		if set.EmptyArgs {
			call.Args = ""
		}
		p.Calls = append(p.Calls, call)
		name := tokenizer.Encode(nil, call.Name)
		p.add(Step{ID: tokenizer.Call, Kind: CallName, Call: int16(i), Tokens: 1 + int32(len(name))})
		for _, id := range name {
			p.state = p.state.After(id)
		}
		if set.Big > 0 {
			p.add(Step{ID: tokenizer.Call, Kind: CallAll, Call: int16(i), Tokens: 1})
			continue
		}
		p.force(call.Args, CallArgs, i, CountMax)
		if set.RepeatArgs {
			p.add(Step{ID: tokenizer.Call, Kind: CallAll, Call: int16(i)})
		}
	}
}

// stopAt cuts the text before the first stop string in it. The tokens of the
// stop string itself were made, so they stay and count, but show nothing.
func (p *Plan) stopAt(stops []string) {
	if len(stops) == 0 {
		return
	}
	var text []byte
	ends := make([]int, len(p.Steps))
	for i, s := range p.Steps {
		if s.Kind == Text || s.Kind == Filler {
			text = p.Append(text, s)
		}
		ends[i] = len(text)
	}
	at, end := -1, 0
	for _, stop := range stops {
		i := strings.Index(string(text), stop)
		if stop != "" && i >= 0 && (at < 0 || i+len(stop) < end) {
			at, end = i, i+len(stop)
		}
	}
	if at < 0 {
		return
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		start := 0
		if i > 0 {
			start = ends[i-1]
		}
		if s.Kind == Filler && ends[i] > at {
			p.filler = p.filler[:at-start]
		} else if hide := min(ends[i]-at, ends[i]-start); hide > 0 {
			s.Hidden = uint8(hide)
		}
		if ends[i] >= end {
			p.Steps = p.Steps[:i+1]
			return
		}
	}
}

// limit cuts the plan after so many tokens.
func (p *Plan) limit(tokens int) {
	used := 0
	for i, s := range p.Steps {
		used += int(s.Tokens)
		if used > tokens {
			p.Steps, p.Finish = p.Steps[:i], "length"
			break
		}
	}
	// A call whose name was cut off never came to be.
	for i := len(p.Calls); i > 0; i-- {
		if p.Opened(i-1, len(p.Steps)) {
			break
		}
		p.Calls = p.Calls[:i-1]
	}
}

// Opened tells whether the first n steps hold the beginning of a call.
func (p *Plan) Opened(call, n int) bool {
	for _, s := range p.Steps[:n] {
		if s.Kind == CallName && int(s.Call) == call {
			return true
		}
	}
	return false
}

// Append adds the bytes that a step shows: text, or a piece of arguments. The
// name of a call shows nothing here.
func (p *Plan) Append(dst []byte, s Step) []byte {
	switch s.Kind {
	case Filler:
		return append(dst, p.filler...)
	case CallAll:
		return append(dst, p.Calls[s.Call].Args...)
	case CallName:
		return dst
	}
	dst, _ = tokenizer.Append(dst, s.ID)
	return dst[:len(dst)-int(s.Hidden)]
}

// Join gives the whole text of one kind within the first n steps; for the
// arguments of a call, of that call.
func (p *Plan) Join(kind Kind, call, n int) string {
	var out []byte
	for _, s := range p.Steps[:n] {
		same := s.Kind == kind || kind == Text && s.Kind == Filler || kind == CallArgs && s.Kind == CallAll && s.Tokens > 0
		if same && int(s.Call) == call {
			out = p.Append(out, s)
		}
	}
	return string(out)
}

// IDs lists the tokens of the first n steps, each step as one.
func (p *Plan) IDs(n int) []tokenizer.ID {
	ids := make([]tokenizer.ID, n)
	for i, s := range p.Steps[:n] {
		ids[i] = s.ID
	}
	return ids
}

// Tokens counts the tokens of the first n steps, and those of them that are
// reasoning.
func (p *Plan) Tokens(n int) (all, reasoning int) {
	for _, s := range p.Steps[:n] {
		all += int(s.Tokens)
		if s.Kind == Reasoning {
			reasoning += int(s.Tokens)
		}
	}
	return all, reasoning
}
