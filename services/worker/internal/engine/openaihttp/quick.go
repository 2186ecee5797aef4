package openaihttp

import (
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/llm"
)

// quick reads the chunks that make up nearly all of a stream: one choice with
// text, reasoning or pieces of calls, perhaps with counts. It either understands every byte of a
// chunk and agrees with decodeChunk, or gives up, and decodeChunk takes over.
// Any doubt is a reason to give up.
type quick struct {
	b   []byte
	i   int
	key []byte
	// fresh says that the object just opened has had no member; bad, that quick
	// gives up.
	fresh, bad bool
	// seen marks the members that were met, since which of two would win is
	// decodeChunk's business.
	seen    uint
	scratch []byte
	calls   []callPiece
	// n holds the counts that were met.
	n [kinds]int64
	// cuts are the places of what may differ in the next chunk; last is what the
	// chunk before was like.
	cuts []cut
	last mold
}

const (
	seenChoices = 1 << iota
	seenUsage
	seenTimings
	seenIndex
	seenDelta
	seenFinish
	seenText
	seenContent
	seenReasoning
	seenReasoningContent
	seenCalls
	seenPromptTokens
	seenCompletionTokens
	seenPromptDetails
	seenDetails
	seenCached
	seenNested
	seenTop
)

// parse reads one chunk, and tells whether it could.
func (q *quick) parse(data []byte, p *piece) bool {
	if q.alike(data, p) {
		return true
	}
	*p = piece{}
	q.last.good = false
	q.b, q.i, q.seen, q.bad, q.n, q.cuts = data, 0, 0, false, [kinds]int64{}, q.cuts[:0]
	q.open()
	for q.member() {
		switch string(q.key) {
		case "choices":
			q.once(seenChoices)
			q.choices(p)
		case "usage":
			q.once(seenUsage)
			q.usage()
		case "timings":
			q.once(seenTimings)
			q.timings()
		case "object":
			if text, plain := q.plain(); !plain || string(text) == "error" {
				q.bad = true
			}
		case "error":
			q.null()
		default:
			q.skip()
		}
	}
	q.space()
	if q.bad || q.i != len(q.b) {
		return false
	}
	q.count(p)
	q.remember(p)
	return true
}

// count says the counts that were met.
func (q *quick) count(p *piece) {
	p.usage, p.counted, p.running = llm.Usage{}, false, false
	if both := uint(seenPromptTokens | seenCompletionTokens); q.seen&both == both {
		u := wireUsage{Prompt: &q.n[partPrompt], Completion: &q.n[partCompletion]}
		u.PromptDetails.Cached = q.n[partCached]
		if q.seen&seenNested != 0 {
			u.Details.Reasoning = &q.n[partNested]
		}
		if q.seen&seenTop != 0 {
			u.Reasoning = &q.n[partTop]
		}
		p.usage, p.counted = u.internal()
	}
	if !p.counted && q.seen&seenTimings != 0 {
		p.counted, p.running = true, true
		p.usage = counts(q.n[partCacheN]+q.n[partPromptN], q.n[partCacheN], q.n[partPredictedN], nil)
	}
}

func (q *quick) choices(p *piece) {
	if q.peek() == 'n' {
		q.null()
		return
	}
	q.want('[')
	if q.peek() == ']' {
		q.i++
		return
	}
	q.open()
	for q.member() {
		switch string(q.key) {
		case "index":
			q.once(seenIndex)
			if q.integer() != 0 {
				q.bad = true
			}
		case "delta":
			q.once(seenDelta)
			q.delta(p)
		case "finish_reason":
			q.once(seenFinish)
			p.finish = q.text()
		case "logprobs":
			q.null()
		case "text":
			q.once(seenText)
			q.bad = q.bad || q.seen&seenContent != 0
			p.text = q.textual(partText)
		case "message":
			q.bad = true
		default:
			q.skip()
		}
	}
	q.want(']')
}

func (q *quick) delta(p *piece) {
	var reasoning string
	q.open()
	for q.member() {
		switch string(q.key) {
		case "content":
			q.once(seenContent)
			q.bad = q.bad || q.seen&seenText != 0
			p.text = q.textual(partText)
		case "reasoning":
			q.once(seenReasoning)
			reasoning = q.textual(partReasoning)
		case "reasoning_content":
			q.once(seenReasoningContent)
			p.reasoning = q.textual(partReasoning)
		case "tool_calls":
			q.once(seenCalls)
			q.toolCalls(p)
		case "refusal":
			q.null()
		default:
			q.skip()
		}
	}
	if p.reasoning == "" {
		p.reasoning = reasoning
	}
}

// toolCalls reads pieces of calls into a list that is used again.
func (q *quick) toolCalls(p *piece) {
	if q.peek() == 'n' {
		q.null()
		return
	}
	q.want('[')
	if q.peek() == ']' {
		q.i++
		return
	}
	q.calls = q.calls[:0]
	for {
		q.calls = append(q.calls, q.call())
		if q.peek() != ',' {
			break
		}
		q.i++
	}
	q.want(']')
	p.calls = q.calls
}

func (q *quick) call() callPiece {
	c := callPiece{index: -1}
	index, id, function := false, false, false
	q.open()
	for q.member() {
		switch string(q.key) {
		case "index":
			q.bad, index = index, true
			if c.index = q.integer(); c.index >= llm.CallsMax {
				q.bad = true
			}
		case "id":
			q.bad, id = id, true
			c.id = q.text()
		case "function":
			q.bad, function = function, true
			q.function(&c)
		default:
			q.skip()
		}
	}
	return c
}

func (q *quick) function(c *callPiece) {
	name, arguments := false, false
	q.open()
	for q.member() {
		switch string(q.key) {
		case "name":
			q.bad, name = name, true
			c.name = q.text()
		case "arguments":
			q.bad, arguments = arguments, true
			c.arg = q.textual(partArguments)
		default:
			q.skip()
		}
	}
}

func (q *quick) usage() {
	if q.peek() == 'n' {
		q.null()
		return
	}
	q.open()
	for q.member() {
		switch string(q.key) {
		case "prompt_tokens":
			q.once(seenPromptTokens)
			q.counting(partPrompt)
		case "completion_tokens":
			q.once(seenCompletionTokens)
			q.counting(partCompletion)
		case "reasoning_tokens":
			if q.peek() == 'n' {
				q.null()
				continue
			}
			q.once(seenTop)
			q.counting(partTop)
		case "prompt_tokens_details":
			q.once(seenPromptDetails)
			q.detail("cached_tokens", seenCached, partCached)
		case "completion_tokens_details":
			q.once(seenDetails)
			q.detail("reasoning_tokens", seenNested, partNested)
		default:
			q.skip()
		}
	}
}

// detail reads one count out of an object that may be null, as may the count.
func (q *quick) detail(name string, mark uint, what kind) {
	if q.peek() == 'n' {
		q.null()
		return
	}
	q.open()
	for q.member() {
		if string(q.key) != name || q.peek() == 'n' {
			q.skip()
			continue
		}
		q.once(mark)
		q.counting(what)
	}
}

func (q *quick) timings() {
	if q.peek() == 'n' {
		q.bad = true
		return
	}
	cached, prompt, predicted := false, false, false
	q.open()
	for q.member() {
		switch string(q.key) {
		case "cache_n":
			q.bad, cached = cached, true
			q.counting(partCacheN)
		case "prompt_n":
			q.bad, prompt = prompt, true
			q.counting(partPromptN)
		case "predicted_n":
			q.bad, predicted = predicted, true
			q.counting(partPredictedN)
		default:
			q.skip()
		}
	}
}

func (q *quick) once(mark uint) {
	if q.seen&mark != 0 {
		q.bad = true
	}
	q.seen |= mark
}

func (q *quick) space() {
	for q.i < len(q.b) && (q.b[q.i] == ' ' || q.b[q.i] == '\n' || q.b[q.i] == '\t' || q.b[q.i] == '\r') {
		q.i++
	}
}

// peek gives the byte that the next value begins with.
func (q *quick) peek() byte {
	q.space()
	if q.bad || q.i >= len(q.b) {
		return 0
	}
	return q.b[q.i]
}

func (q *quick) want(c byte) {
	if q.peek() != c || c == 0 {
		q.bad = true
		return
	}
	q.i++
}

func (q *quick) open() {
	q.want('{')
	q.fresh = true
}

// member goes to the value of the next member, or past the object's end.
func (q *quick) member() bool {
	c := q.peek()
	if q.bad {
		return false
	}
	if c == '}' {
		q.i, q.fresh = q.i+1, false
		return false
	}
	if !q.fresh {
		q.want(',')
	}
	q.fresh = false
	var plain bool
	q.key, plain = q.plain()
	q.want(':')
	// A name with an escape may be any name.
	q.bad = q.bad || !plain
	return !q.bad
}

// plain gives what is between the quotes of a string, and tells whether that is
// its value as it stands.
func (q *quick) plain() (raw []byte, asIs bool) {
	q.want('"')
	if q.bad {
		return nil, false
	}
	asIs = true
	for i := q.i; i < len(q.b); i++ {
		switch c := q.b[i]; {
		case c == '"':
			raw, q.i = q.b[q.i:i], i+1
			return raw, asIs
		case c == '\\':
			asIs = false
			i++
		case c < ' ':
			q.bad = true
			return nil, false
		case c >= utf8.RuneSelf:
			// Valid or not is found out only where it matters.
			asIs = false
		}
	}
	q.bad = true
	return nil, false
}

// text gives the value of a string, or "" for null.
func (q *quick) text() string {
	if q.peek() == 'n' {
		q.null()
		return ""
	}
	at := q.i
	raw, asIs := q.plain()
	if q.bad {
		return ""
	}
	if asIs {
		return string(raw)
	}
	var err error
	q.scratch, err = jsontext.AppendUnquote(q.scratch[:0], q.b[at:q.i])
	if err != nil {
		q.bad = true
		return ""
	}
	return string(q.scratch)
}

func (q *quick) null() { q.word("null") }

func (q *quick) word(w string) {
	q.space()
	if q.bad || len(q.b)-q.i < len(w) || string(q.b[q.i:q.i+len(w)]) != w {
		q.bad = true
		return
	}
	q.i += len(w)
}

// skip passes a value that is not a list or an object with members.
func (q *quick) skip() {
	switch c := q.peek(); {
	case c == '"':
		if _, asIs := q.plain(); !asIs {
			// What an escape stands for may be wrong, which is not for us to say.
			q.bad = true
		}
	case c == 't':
		q.word("true")
	case c == 'f':
		q.word("false")
	case c == 'n':
		q.null()
	case c == '-' || c >= '0' && c <= '9':
		from := q.i
		q.number()
		q.cut(partNumber, from)
	default:
		q.bad = true
	}
}

// integer reads a count.
func (q *quick) integer() int64 {
	q.space()
	from, n := q.i, int64(0)
	for ; q.i < len(q.b) && q.b[q.i] >= '0' && q.b[q.i] <= '9'; q.i++ {
		if n > (math.MaxInt64-9)/10 {
			q.bad = true
			return 0
		}
		n = n*10 + int64(q.b[q.i]-'0')
	}
	digits := q.i - from
	if digits == 0 || digits > 1 && q.b[from] == '0' || q.i < len(q.b) && partOfNumber(q.b[q.i]) {
		q.bad = true
		return 0
	}
	return n
}

func partOfNumber(c byte) bool {
	return c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// number passes a number as JSON has them.
func (q *quick) number() {
	if q.i < len(q.b) && q.b[q.i] == '-' {
		q.i++
	}
	from := q.i
	if n := q.digits(); n == 0 || n > 1 && q.b[from] == '0' {
		q.bad = true
	}
	if q.i < len(q.b) && q.b[q.i] == '.' {
		q.i++
		q.bad = q.digits() == 0 || q.bad
	}
	if q.i < len(q.b) && (q.b[q.i] == 'e' || q.b[q.i] == 'E') {
		q.i++
		if q.i < len(q.b) && (q.b[q.i] == '+' || q.b[q.i] == '-') {
			q.i++
		}
		q.bad = q.digits() == 0 || q.bad
	}
}

func (q *quick) digits() int {
	from := q.i
	for q.i < len(q.b) && q.b[q.i] >= '0' && q.b[q.i] <= '9' {
		q.i++
	}
	return q.i - from
}
