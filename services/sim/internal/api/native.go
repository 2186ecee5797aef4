package api

import (
	"net/http"
	"strconv"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

// nativeTokens is how long an answer of /generate is when it does not say.
const nativeTokens = 128

// generate is SGLang's own route: one prompt, which may be scored from an offset
// on, and an answer whose texts are those so far.
func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	var req wire.Generate
	body, f := s.read(w, r, &req)
	prompt := wire.Prompt{Given: req.Text != nil || req.InputIDs != nil, IsIDs: req.InputIDs != nil, IDs: req.InputIDs}
	var ids []tokenizer.ID
	if f == nil {
		if req.Text != nil {
			prompt.Text = *req.Text
		}
		ids, f = readPrompt(&prompt)
	}
	if f != nil {
		s.register.Refused()
		s.fail(w, f)
		return
	}
	p := &req.Params
	common := &wire.Common{
		Model: req.Model, Stream: req.Stream, MaxTokens: p.MaxNewTokens, MinTokens: p.MinNewTokens, IgnoreEOS: p.IgnoreEOS,
		N: p.N, Seed: p.Seed, Stop: p.Stop, RID: req.RID,
	}
	if common.MaxTokens == nil {
		usual := nativeTokens
		common.MaxTokens = &usual
	}
	j := &job{common: common, native: &req, user: prompt.Text, logprobs: req.Logprobs, top: req.TopLogprobs, promptTop: -1}
	s.run(w, r, j, func(j *job) ([]tokenizer.ID, script.Ask, *wire.Failure) {
		s.keep(j, body)
		if ids == nil {
			ids = tokenizer.Encode(nil, prompt.Text)
		}
		return ids, script.Ask{}, nativeFits(j, len(ids))
	})
}

func nativeFits(j *job, tokens int) *wire.Failure {
	if n := j.common.N; n != nil && *n != 1 {
		return wire.Wrong("n", "the simulator gives one answer on this route")
	}
	if from := j.native.From; from != nil && j.native.Logprobs {
		switch {
		case *from < -1:
			return wire.Wrong("logprob_start_len", "logprob_start_len is at least -1, not %d", *from)
		case *from >= tokens:
			return wire.Wrong("logprob_start_len", "logprob_start_len=%d is higher than the number of input tokens %d. Please use a smaller logprob_start_len.", *from, tokens)
		case *from >= 0:
			j.scoreFrom = *from
		}
	}
	return nil
}

// appendNative writes an answer of the first n steps. An empty reason says that
// there is more to come.
func (s *Server) appendNative(dst []byte, j *job, n int, reason string) []byte {
	plan := &j.plans[0]
	dst = appendString(append(dst, `{"text":`...), []byte(plan.Join(script.Text, 0, n)))
	dst = appendIDs(append(dst, `,"output_ids":`...), plan.IDs(n))
	dst = appendString(append(dst, `,"meta_info":{"id":`...), []byte(j.id))
	dst = append(dst, `,"finish_reason":`...)
	switch reason {
	case "":
		dst = append(dst, "null"...)
	case "length":
		dst = strconv.AppendInt(append(dst, `{"type":"length","length":`...), int64(*j.common.MaxTokens), 10)
		dst = append(dst, '}')
	case "abort":
		dst = append(dst, `{"type":"abort","message":"Abort in waiting queue"}`...)
	default:
		dst = append(appendString(append(dst, `{"type":`...), []byte(reason)), `,"matched":null}`...)
	}
	if !j.set.Usage.None {
		made, _ := plan.Tokens(n)
		dst = strconv.AppendInt(append(dst, `,"prompt_tokens":`...), int64(j.prompt), 10)
		dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(made), 10)
		dst = strconv.AppendInt(append(dst, `,"cached_tokens":`...), int64(j.cached), 10)
	}
	if j.logprobs {
		dst = s.appendNativeScores(dst, j, n)
	}
	return append(append(append(dst, `,"engine":`...), `"`+Fingerprint+`"`...), "}}"...)
}

// appendNativeScores writes entries of a value, an id and perhaps a text. The
// first entry of a prompt never has a value.
func (s *Server) appendNativeScores(dst []byte, j *job, n int) []byte {
	dst = append(dst, `,"input_token_logprobs":[`...)
	if j.scoreFrom < scoreNone {
		before := script.Read(j.ids[:j.scoreFrom])
		for i, id := range j.ids[j.scoreFrom:] {
			dst = append(dst, [2]string{"[", ",["}[min(i, 1)]...)
			if i == 0 {
				dst = append(dst, "null"...)
			} else {
				dst = appendLogprob(dst, s.words.LogProb(before, id))
			}
			dst = j.appendNativeToken(dst, id)
			before = before.After(id)
		}
	}
	dst = append(dst, `],"output_token_logprobs":[`...)
	for i, st := range j.plans[0].Steps[:n] {
		dst = append(dst, [2]string{"[", ",["}[min(i, 1)]...)
		dst = appendLogprob(dst, s.words.LogProb(st.Before, st.ID))
		dst = j.appendNativeToken(dst, st.ID)
	}
	return append(dst, ']')
}

func (j *job) appendNativeToken(dst []byte, id tokenizer.ID) []byte {
	dst = strconv.AppendUint(append(dst, ','), uint64(id), 10)
	if !j.native.Texts {
		return append(dst, ",null]"...)
	}
	text, _ := tokenizer.Append(nil, id)
	return append(appendString(append(dst, ','), text), ']')
}

// nativeChunk is the event behind n steps.
func (e *events) nativeChunk(n int, reason string) []byte {
	e.buf = e.s.appendNative(append(e.buf[:0], "data: "...), e.j, n, reason)
	e.buf = append(e.buf, "\n\n"...)
	return e.buf
}

// steps is how many steps of the one answer have been made.
func (e *events) steps() int {
	plan, made := &e.j.plans[0], 0
	for i, st := range plan.Steps {
		if made += int(st.Tokens); made > e.made {
			return i
		}
	}
	return len(plan.Steps)
}
