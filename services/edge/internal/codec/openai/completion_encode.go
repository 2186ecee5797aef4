package openai

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// encodeCompletion gives the sink that writes the answer to a raw prompt, which
// is always one body.
func encodeCompletion(w io.Writer, req *llm.Request, id string, created int64) llm.Sink {
	a := &answer{w: w, req: req, id: id, created: created}
	var fold llm.Fold
	return func(e llm.Event) error {
		if err := fold.Add(e); err != nil || !e.Last() {
			return err
		}
		r, err := fold.Response()
		if err != nil {
			return err
		}
		b, err := a.completion(r)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
}

func (a *answer) completion(r *llm.Response) ([]byte, error) {
	b := a.head(nil, "cmpl-", "text_completion")
	b = wire.Quote(append(b, `"choices":[{"text":`...), r.Text)
	b = append(b, `,"index":0,"logprobs":`...)
	var err error
	switch {
	case a.req.Raw.ScoreFrom != nil:
		b, err = span(b, r.Scores)
	case a.req.Logprobs:
		b, err = lists(b, r.Logprobs)
	default:
		b = append(b, "null"...)
	}
	if err != nil {
		return nil, err
	}
	b = wire.Quote(append(b, `,"finish_reason":`...), string(r.Finish))
	b = usage(append(b, `}],"usage":`...), r.Usage)
	return append(Receipt(append(b, ','), r.Receipt), '}'), nil
}

// entries reads what came in pieces.
func entries(pieces []json.RawMessage) ([]llm.TokenLogprob, error) {
	var all []llm.TokenLogprob
	for _, raw := range pieces {
		var some []llm.TokenLogprob
		if json.Unmarshal(raw, &some) != nil || !numbers(some) {
			return nil, fault.New(fault.Engine, "the engine's log-probabilities cannot be read")
		}
		all = append(all, some...)
	}
	return all, nil
}

// numbers tells whether all log-probabilities are numbers, or null.
func numbers(list []llm.TokenLogprob) bool {
	for i := range list {
		switch jsontext.Value(list[i].Logprob).Kind() {
		case '0', 'n', 0:
		default:
			return false
		}
		if !numbers(list[i].Top) {
			return false
		}
	}
	return true
}

// span writes the scores of a span of the prompt: nothing but two lists of the
// same length.
func span(b []byte, pieces []json.RawMessage) ([]byte, error) {
	all, err := entries(pieces)
	b = append(b, `{"token_logprobs":[`...)
	for i := range all {
		b = number(comma(b, i), all[i].Logprob)
	}
	b = append(b, `],"token_ids":[`...)
	for i := range all {
		b = strconv.AppendInt(comma(b, i), all[i].ID, 10)
	}
	return append(b, "]}"...), err
}

// lists writes log-probabilities as parallel lists. Engines count offsets in
// different ways or not at all, so none are given.
func lists(b []byte, pieces []json.RawMessage) ([]byte, error) {
	all, err := entries(pieces)
	b = append(b, `{"text_offset":[`...)
	for i := range all {
		b = append(comma(b, i), "-1"...)
	}
	b = append(b, `],"token_logprobs":[`...)
	for i := range all {
		b = number(comma(b, i), all[i].Logprob)
	}
	b = append(b, `],"tokens":[`...)
	for i := range all {
		b = wire.Quote(comma(b, i), all[i].Token)
	}
	b = append(b, `],"top_logprobs":[`...)
	for i := range all {
		b = likeliest(comma(b, i), all[i].Top)
	}
	return append(b, "]}"...), err
}

// likeliest writes a position's likeliest tokens. Tokens that look the same are
// named once, by the likeliest of them.
func likeliest(b []byte, top []llm.TokenLogprob) []byte {
	if top == nil {
		return append(b, "null"...)
	}
	b = append(b, '{')
	seen := make(map[string]bool, len(top))
	for _, t := range top {
		if seen[t.Token] {
			continue
		}
		b = wire.Quote(comma(b, len(seen)), t.Token)
		b = number(append(b, ':'), t.Logprob)
		seen[t.Token] = true
	}
	return append(b, '}')
}

func number(b, raw []byte) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}
