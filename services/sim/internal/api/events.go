package api

import (
	"strconv"
	"unicode/utf8"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// events writes the events of one stream. The parts that do not change are made
// once; a token costs a few appends into one buffer and no allocation.
type events struct {
	j    *job
	s    *Server
	head []byte // up to the choice's index
	buf  []byte
	text []byte
	// made and reasoned are the tokens so far, for running usage.
	made, reasoned int
	// choice is the one that the chunk belongs to, and shown how many characters
	// each has shown.
	choice int
	shown  []int
}

func newEvents(s *Server, j *job) *events {
	e := &events{s: s, j: j, shown: make([]int, len(j.plans))}
	e.head = append(e.head, "data: {"...)
	e.head = appendHead(e.head, j, "text_completion", "chat.completion.chunk")
	return e
}

// appendHead writes the members that every chunk and every answer begins with.
func appendHead(dst []byte, j *job, plain, chat string) []byte {
	object := plain
	if j.chat {
		object = chat
	}
	dst = append(dst, `"id":`...)
	dst = appendString(dst, []byte(j.id))
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, j.created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, []byte(j.model.ID))
	return append(dst, `,"system_fingerprint":"`+Fingerprint+`"`...)
}

// open begins a chunk of one choice and leaves it inside its delta or text.
func (e *events) open(choice int) {
	e.choice = choice
	e.buf = append(e.buf[:0], e.head...)
	e.buf = append(e.buf, `,"choices":[{"index":`...)
	e.buf = strconv.AppendInt(e.buf, int64(choice), 10)
	if e.j.chat {
		e.buf = append(e.buf, `,"delta":{`...)
		return
	}
	e.buf = append(e.buf, `,"text":`...)
}

// close ends what open began.
func (e *events) close(plan *script.Plan, at int, finish string) []byte {
	if e.j.chat {
		e.buf = append(e.buf, '}')
	}
	e.buf = append(e.buf, `,"logprobs":`...)
	if at >= 0 && e.j.logprobs && scored(plan.Steps[at]) {
		e.logprobs(plan, at)
	} else {
		e.buf = append(e.buf, "null"...)
	}
	return e.shut(finish)
}

// shut ends a chunk behind its log-probabilities.
func (e *events) shut(finish string) []byte {
	e.buf = appendFinish(e.buf, finish)
	e.buf = append(e.buf, "}]"...)
	if e.j.common.StreamOptions.ContinuousUsage && !e.j.set.Usage.None {
		e.buf = append(e.buf, `,"usage":`...)
		e.buf = appendUsage(e.buf, e.j, e.made, e.reasoned, false)
	}
	e.buf = append(e.buf, "}\n\n"...)
	return e.buf
}

func appendFinish(dst []byte, finish string) []byte {
	dst = append(dst, `,"finish_reason":`...)
	if finish == "" {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = append(dst, finish...)
	return append(dst, '"')
}

// role is the first chunk of a choice.
func (e *events) role(choice int) []byte {
	e.open(choice)
	e.buf = append(e.buf, `"role":"assistant","content":""`...)
	if e.j.set.EmptyTools {
		e.buf = append(e.buf, `,"tool_calls":[]`...)
	}
	return e.close(nil, -1, "")
}

// step is the chunk of one step.
func (e *events) step(choice, at int) []byte {
	plan := &e.j.plans[choice]
	st := plan.Steps[at]
	e.made += int(st.Tokens)
	if e.j.native != nil {
		return e.nativeChunk(at+1, "")
	}
	e.open(choice)
	e.text = plan.Append(e.text[:0], st)
	switch {
	case !e.j.chat:
		e.buf = appendString(e.buf, e.text)
	case st.Kind == script.CallName:
		e.buf = append(e.buf, `"tool_calls":[`...)
		e.buf = appendCall(e.buf, int(st.Call), plan.Calls[st.Call], "")
		e.buf = append(e.buf, ']')
	case st.Kind == script.CallArgs || st.Kind == script.CallAll:
		e.buf = append(e.buf, `"tool_calls":[{"index":`...)
		e.buf = strconv.AppendInt(e.buf, int64(st.Call), 10)
		e.buf = append(e.buf, `,"function":{"arguments":`...)
		e.buf = appendString(e.buf, e.text)
		e.buf = append(e.buf, `}}]`...)
	case st.Kind == script.Reasoning:
		e.reasoned++
		e.buf = append(e.buf, '"')
		e.buf = append(e.buf, e.j.reasoning...)
		e.buf = append(e.buf, `":`...)
		e.buf = appendString(e.buf, e.text)
	default:
		e.buf = append(e.buf, `"content":`...)
		e.buf = appendString(e.buf, e.text)
		if e.j.set.EmptyTools {
			// Engines do it both ways, so the simulator takes turns.
			empty := [2]string{`,"tool_calls":[]`, `,"tool_calls":null`}
			e.buf = append(e.buf, empty[at&1]...)
		}
	}
	line := e.close(plan, at, "")
	e.shown[choice] += utf8.RuneCount(e.text)
	return line
}

// finish is the last chunk of a choice; text is what an abort repeats.
func (e *events) finish(choice int, reason, text string) []byte {
	if e.j.native != nil {
		return e.nativeChunk(e.steps(), reason)
	}
	e.open(choice)
	switch {
	case !e.j.chat:
		e.buf = appendString(e.buf, []byte(text))
	case text != "":
		e.buf = append(e.buf, `"content":`...)
		e.buf = appendString(e.buf, []byte(text))
	}
	return e.close(nil, -1, reason)
}

// usage is the chunk that carries nothing but the counts; choices is its list
// of choices, which is empty save for a fault.
func (e *events) usage(choices string) []byte {
	e.buf = append(e.buf[:0], e.head...)
	e.buf = append(e.buf, `,"choices":`...)
	e.buf = append(e.buf, choices...)
	e.buf = append(e.buf, `,"usage":`...)
	e.buf = appendUsage(e.buf, e.j, e.made, e.reasoned, true)
	e.buf = append(e.buf, "}\n\n"...)
	return e.buf
}

// odd is a chunk whose list of choices is given word for word.
func (e *events) odd(choices string) []byte {
	e.buf = append(e.buf[:0], e.head...)
	e.buf = append(e.buf, `,"choices":`...)
	e.buf = append(e.buf, choices...)
	e.buf = append(e.buf, "}\n\n"...)
	return e.buf
}

func appendCall(dst []byte, index int, c script.ToolCall, args string) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	dst = append(dst, `,"id":"`...)
	dst = append(dst, c.ID...)
	dst = append(dst, `","type":"function","function":{"name":`...)
	dst = appendString(dst, []byte(c.Name))
	dst = append(dst, `,"arguments":`...)
	dst = appendString(dst, []byte(args))
	return append(dst, "}}"...)
}

// scored tells whether a step is one token with a probability.
func scored(st script.Step) bool {
	return st.Kind == script.Reasoning || st.Kind == script.Text || st.Kind == script.CallArgs
}

// logprobs writes the log probabilities of one token.
func (e *events) logprobs(plan *script.Plan, at int) {
	if e.j.chat {
		e.buf = append(e.buf, `{"content":[`...)
		e.buf = e.s.appendEntry(e.buf, plan, at, e.j.top)
		e.buf = append(e.buf, "]}"...)
		return
	}
	l := lists{s: e.s, k: e.j.top, offset: e.shown[e.choice]}
	l.step(plan, at)
	e.buf = l.append(e.buf)
}

// appendEntry writes the entry of a token in the form of chat answers.
func (s *Server) appendEntry(dst []byte, plan *script.Plan, at, k int) []byte {
	st := plan.Steps[at]
	dst = appendCandidate(append(dst, '{'), script.Candidate{ID: st.ID, LogProb: s.words.LogProb(st.Before, st.ID)})
	dst = append(dst, `,"top_logprobs":[`...)
	for i, c := range s.words.Likely(st.Before, k) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendCandidate(append(dst, '{'), c), '}')
	}
	return append(dst, "]}"...)
}

func appendCandidate(dst []byte, c script.Candidate) []byte {
	text, _ := tokenizer.Append(nil, c.ID)
	dst = append(dst, `"token":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, c.LogProb)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range text {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(b), 10)
	}
	return append(dst, ']')
}

// appendUsage writes the counts, or those that a directive wants instead. Given
// counts grow with the answer and reach their value in the last report.
func appendUsage(dst []byte, j *job, completion, reasoning int, last bool) []byte {
	p, c, cached := int64(j.prompt), int64(completion), int64(j.cached)
	show := j.cacheOn
	switch u := j.set.Usage; {
	case u.Wrong:
		cached, c, show = p+1_000_000, 1_000_000_000, true
	case u.Given:
		p, cached, show = u.Prompt, u.Cached, true
		if last || c > u.Completion {
			c = u.Completion
		}
	}
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, p, 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, c, 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, p+c, 10)
	dst = append(dst, `,"prompt_tokens_details":`...)
	if show {
		dst = append(dst, `{"cached_tokens":`...)
		dst = strconv.AppendInt(dst, cached, 10)
		dst = append(dst, '}')
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"completion_tokens_details":{"reasoning_tokens":`...)
	dst = strconv.AppendInt(dst, int64(reasoning), 10)
	dst = append(dst, `},"reasoning_tokens":`...)
	dst = strconv.AppendInt(dst, int64(reasoning), 10)
	return append(dst, '}')
}

// appendString writes a JSON string. Bytes that are not UTF-8 become U+FFFD, as
// an engine's decoder would make them.
func appendString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, n := utf8.DecodeRune(text[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}
