package api

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// lists are log-probabilities in the form of plain completions: a list for each
// thing that is said of a token.
type lists struct {
	s *Server
	// k is how many likely tokens are listed at each place.
	k int
	// offset is where the next token's text begins, in characters.
	offset                        int
	tokens, values, tops, offsets []byte
	text                          []byte
}

// place adds a token after a text.
func (l *lists) place(before script.State, id tokenizer.ID) {
	l.token(id)
	l.values = appendLogprob(l.values, l.s.words.LogProb(before, id))
	l.tops = appendTop(l.tops, l.s.words.Likely(before, l.k))
}

// token adds what is known of a token that nothing precedes.
func (l *lists) token(id tokenizer.ID) {
	if len(l.tokens) > 0 {
		l.tokens, l.values = append(l.tokens, ','), append(l.values, ',')
		l.tops, l.offsets = append(l.tops, ','), append(l.offsets, ',')
	}
	l.text, _ = tokenizer.Append(l.text[:0], id)
	l.tokens = appendString(l.tokens, l.text)
	l.offsets = strconv.AppendInt(l.offsets, int64(l.offset), 10)
}

// prompt adds all tokens of a prompt.
func (l *lists) prompt(ids []tokenizer.ID) {
	var before script.State
	for i, id := range ids {
		if i == 0 {
			l.token(id)
			l.values, l.tops = append(l.values, "null"...), append(l.tops, "null"...)
		} else {
			l.place(before, id)
		}
		before = before.After(id)
		l.offset += utf8.RuneCount(l.text)
	}
}

// step adds a token of an answer.
func (l *lists) step(plan *script.Plan, at int) {
	st := plan.Steps[at]
	if scored(st) {
		l.place(st.Before, st.ID)
	}
	l.text = plan.Append(l.text[:0], st)
	l.offset += utf8.RuneCount(l.text)
}

func (l *lists) append(dst []byte) []byte {
	dst = append(append(dst, `{"tokens":[`...), l.tokens...)
	dst = append(append(dst, `],"token_logprobs":[`...), l.values...)
	dst = append(append(dst, `],"top_logprobs":[`...), l.tops...)
	dst = append(append(dst, `],"text_offset":[`...), l.offsets...)
	return append(dst, "]}"...)
}

func appendTop(dst []byte, top []script.Candidate) []byte {
	dst = append(dst, '{')
	for i, c := range top {
		if i > 0 {
			dst = append(dst, ',')
		}
		text, _ := tokenizer.Append(nil, c.ID)
		dst = append(appendString(dst, text), ':')
		dst = appendLogprob(dst, c.LogProb)
	}
	return append(dst, '}')
}

// appendLogprob writes a log-probability so that a reader gets the same number
// back: sums can be compared.
func appendLogprob(dst []byte, p float64) []byte {
	return strconv.AppendFloat(dst, p, 'g', -1, 64)
}

// appendPromptLogprobs writes a map for each token of a prompt, in the form of
// vLLM: the token itself, and the k likeliest beside it.
func (s *Server) appendPromptLogprobs(dst []byte, ids []tokenizer.ID, k int) []byte {
	dst = append(dst, '[')
	var before script.State
	for i, id := range ids {
		if i == 0 {
			dst = append(dst, "null"...)
		} else {
			dst = s.appendPlace(append(dst, ','), before, id, k)
		}
		before = before.After(id)
	}
	return append(dst, ']')
}

func appendIDs(dst []byte, ids []tokenizer.ID) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

func (s *Server) appendPlace(dst []byte, before script.State, id tokenizer.ID, k int) []byte {
	own := script.Candidate{ID: id, LogProb: s.words.LogProb(before, id)}
	rank := 1 + s.words.Size()
	for i, c := range s.words.Likely(before, rank) {
		if c.ID == id {
			rank = 1 + i
		}
	}
	dst = appendRanked(append(dst, '{'), own, rank)
	for i, c := range s.words.Likely(before, k) {
		if c.ID != id {
			dst = appendRanked(append(dst, ','), c, 1+i)
		}
	}
	return append(dst, '}')
}

func appendRanked(dst []byte, c script.Candidate, rank int) []byte {
	dst = append(dst, '"')
	dst = strconv.AppendUint(dst, uint64(c.ID), 10)
	dst = appendLogprob(append(dst, `":{"logprob":`...), math.Max(c.LogProb, -9999))
	dst = strconv.AppendInt(append(dst, `,"rank":`...), int64(rank), 10)
	text, _ := tokenizer.Append(nil, c.ID)
	return append(appendString(append(dst, `,"decoded_token":`...), text), '}')
}

// echo is the chunk of a choice that says the prompt again.
func (e *events) echo(choice int) []byte {
	e.open(choice)
	e.buf = appendString(e.buf, []byte(e.j.echo))
	e.buf = append(e.buf, `,"logprobs":`...)
	if e.j.logprobs {
		l := lists{s: e.s, k: e.j.top}
		l.prompt(e.j.ids)
		e.buf = l.append(e.buf)
	} else {
		e.buf = append(e.buf, "null"...)
	}
	e.shown[choice] = utf8.RuneCountInString(e.j.echo)
	return e.shut("")
}
