package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/engy-ai/engy/services/sim/internal/register"
	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

// answer sends the plan as one JSON body, when its last token is due.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, j *job) {
	n := j.longest()
	err := j.pacer.Token(ctx, max(0, n-1))
	reached := func(at int) bool { return at != script.Unset && at <= n }
	if err == nil && reached(j.set.Stall) {
		err = s.forever(ctx)
	}
	reason := ""
	switch {
	case errors.Is(err, register.ErrAborted):
		n, reason = j.pacer.Due(n), "abort"
	case err != nil:
		j.end(j.work(register.Aborted, j.pacer.Due(n)))
		s.fail(w, &wire.Failure{Status: http.StatusServiceUnavailable, Message: err.Error()})
		return
	}
	body := s.appendAnswer(nil, j, n, reason)
	out := newWriter(w, s.opt.WriteStallMax)
	w.Header().Set("Content-Type", "application/json")
	outcome := register.Finished
	if reason != "" {
		outcome = register.Aborted
	}
	j.end(j.work(outcome, n))
	switch {
	case reached(j.set.Die):
		s.opt.Die()
		out.reset()
		return
	case reached(j.set.Cut):
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if err := out.write(body[:len(body)*2/3]); err == nil {
			out.reset()
		}
		return
	case reached(j.set.Malformed):
		body = body[:len(body)*2/3]
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if err := out.write(body); err != nil {
		s.opt.Log.Debug("client left before its answer", "id", j.id)
	}
}

// appendAnswer writes the body for the first n steps of every choice. A reason
// takes the place of each choice's own.
func (s *Server) appendAnswer(dst []byte, j *job, n int, reason string) []byte {
	if j.native != nil {
		if reason == "" {
			reason = j.plans[0].Finish
		}
		return s.appendNative(dst, j, min(n, len(j.plans[0].Steps)), reason)
	}
	dst = appendHead(append(dst, '{'), j, "text_completion", "chat.completion")
	dst = append(dst, `,"choices":`...)
	switch {
	case j.set.NullChoices:
		dst = append(dst, "null"...)
	case j.set.NullChoice:
		dst = append(dst, "[null]"...)
	default:
		dst = append(dst, '[')
		for c := range j.plans {
			if c > 0 {
				dst = append(dst, ',')
			}
			dst = s.appendChoice(dst, j, c, n, reason)
		}
		dst = append(dst, ']')
	}
	if !j.set.Usage.None {
		made, reasoned := j.tokens(n)
		dst = append(dst, `,"usage":`...)
		dst = appendUsage(dst, j, made, reasoned, true)
	}
	return append(dst, '}')
}

func (s *Server) appendChoice(dst []byte, j *job, c, n int, reason string) []byte {
	plan := &j.plans[c]
	n = min(n, len(plan.Steps))
	index := c
	if j.set.BadIndex {
		index = -1
	}
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	if j.chat {
		dst = append(dst, `,"message":{"role":"assistant"`...)
		dst = appendMessage(dst, j, plan, n)
		dst = append(dst, '}')
	} else {
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, []byte(j.echo+plan.Join(script.Text, 0, n)))
		if j.promptTop >= 0 {
			dst = append(dst, `,"prompt_logprobs":`...)
			dst = s.appendPromptLogprobs(dst, j.ids, j.promptTop)
		}
		if j.tokenIDs {
			dst = appendIDs(append(dst, `,"prompt_token_ids":`...), j.ids)
			dst = appendIDs(append(dst, `,"token_ids":`...), plan.IDs(n))
		}
	}
	dst = append(dst, `,"logprobs":`...)
	dst = s.appendLogprobs(dst, j, plan, n)
	if reason == "" {
		reason = plan.Finish
	}
	if j.set.NoFinish {
		reason = ""
	}
	return append(appendFinish(dst, reason), '}')
}

// appendMessage writes the members of a message after its role.
func appendMessage(dst []byte, j *job, plan *script.Plan, n int) []byte {
	text := plan.Join(script.Text, 0, n)
	dst = append(dst, `,"content":`...)
	switch {
	case j.set.ObjectContent:
		dst = append(dst, `{"text":"not a string"}`...)
	case text == "" && len(plan.Calls) > 0:
		dst = append(dst, "null"...)
	default:
		dst = appendString(dst, []byte(text))
	}
	if thought := plan.Join(script.Reasoning, 0, n); thought != "" {
		dst = append(dst, `,"`...)
		dst = append(dst, j.reasoning...)
		dst = append(dst, `":`...)
		dst = appendString(dst, []byte(thought))
	}
	calls := 0
	for i, call := range plan.Calls {
		if !plan.Opened(i, n) {
			break
		}
		dst = append(dst, [2]string{`,"tool_calls":[`, `,`}[min(i, 1)]...)
		dst = appendCall(dst, i, call, plan.Join(script.CallArgs, i, n))
		calls++
	}
	switch {
	case calls > 0:
		dst = append(dst, ']')
	case j.set.EmptyTools:
		dst = append(dst, `,"tool_calls":[]`...)
	}
	return dst
}

// appendLogprobs writes the entries of a whole choice, those of reasoning and
// arguments included, so that they are as many as a stream sends.
func (s *Server) appendLogprobs(dst []byte, j *job, plan *script.Plan, n int) []byte {
	switch {
	case !j.logprobs:
		return append(dst, "null"...)
	case !j.chat:
		l := lists{s: s, k: j.top}
		if j.echo != "" {
			l.prompt(j.ids)
		}
		for i := range n {
			l.step(plan, i)
		}
		return l.append(dst)
	}
	dst = append(dst, `{"content":[`...)
	first := true
	for i := range n {
		if !scored(plan.Steps[i]) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = s.appendEntry(dst, plan, i, j.top)
	}
	return append(dst, "]}"...)
}
