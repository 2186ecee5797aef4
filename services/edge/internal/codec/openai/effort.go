package openai

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// effortMax bounds a word for the effort, in bytes.
const effortMax = 64

// Effort reads the reasoning object of a request: OpenAI's effort, and the switch
// that OpenRouter has beside it. It tells whether the thoughts shall stay out of
// the answer.
func Effort(req *llm.Request, raw jsontext.Value) (hidden bool, err error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return false, nil
	}
	var in struct {
		Effort  string `json:"effort"`
		Enabled *bool  `json:"enabled"`
		Exclude bool   `json:"exclude"`
	}
	if raw.Kind() != '{' || json.Unmarshal(raw, &in) != nil {
		return false, fault.At("reasoning", "reasoning must be an object with a word as its effort")
	}
	if req.Effort, err = word("reasoning.effort", in.Effort); err != nil {
		return false, err
	}
	switch {
	case in.Enabled == nil:
	case *in.Enabled:
		req.Thinking = "enabled"
	default:
		req.Thinking = "disabled"
	}
	return in.Exclude, nil
}

func word(field, effort string) (string, error) {
	if len(effort) > effortMax {
		return "", fault.At(field, field+" must have at most "+strconv.Itoa(effortMax)+" bytes")
	}
	return effort, nil
}
