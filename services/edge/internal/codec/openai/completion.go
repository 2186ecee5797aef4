package openai

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

const (
	completionRoute = "POST /v1/completions"

	// tokenIDMax is the largest token id: engines keep ids in 32 bits.
	tokenIDMax = 1<<31 - 1
)

type completionRequest struct {
	Model     string         `json:"model"`
	Prompt    jsontext.Value `json:"prompt"`
	Messages  jsontext.Value `json:"messages"`
	Stream    bool           `json:"stream"`
	MaxTokens jsontext.Value `json:"max_tokens"`
	// Newer is what chat calls it.
	Newer     jsontext.Value `json:"max_completion_tokens"`
	N         jsontext.Value `json:"n"`
	BestOf    jsontext.Value `json:"best_of"`
	Suffix    jsontext.Value `json:"suffix"`
	Logprobs  jsontext.Value `json:"logprobs"`
	Echo      bool           `json:"echo"`
	ScoreFrom jsontext.Value `json:"logprob_start_len"`
	Provider  jsontext.Value `json:"provider"`
	Extra     jsontext.Value `json:",embed"`
}

// decodeCompletion reads a request whose prompt no template is applied to. What
// templates and parsers would read is left out.
func decodeCompletion(body []byte) (*llm.Request, error) {
	in, err := wire.Decode[completionRequest](body)
	if err != nil {
		return nil, err
	}
	if err := wire.Model(in.Model); err != nil {
		return nil, err
	}
	req := &llm.Request{Model: in.Model, Spelling: in.Model}
	steps := []func() error{
		in.refused,
		func() (err error) { req.Raw, err = in.prompt(); return err },
		func() (err error) { req.MaxTokens, err = wire.Count("max_tokens", in.MaxTokens, 1); return err },
		func() error {
			newer, err := wire.Count("max_completion_tokens", in.Newer, 1)
			if newer > 0 {
				req.MaxTokens = newer
			}
			return err
		},
		func() error { return in.logprobs(req) },
		func() (err error) { req.Policy, err = wire.Policy(in.Provider); return err },
		func() error { return Settings(req, in.Extra, chatOnly()...) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// chatOnly are members that mean nothing here, and twins of those that do.
func chatOnly() []string {
	return []string{
		"chat_template_kwargs", "chat_template", "add_generation_prompt", "continue_final_message",
		"functions", "function_call", "parallel_tool_calls",
		"prompt", "best_of", "suffix", "echo", "logprob_start_len", "prompt_logprobs",
		// They would move the offsets of a span.
		"truncate_prompt_tokens", "truncation_side",
	}
}

// refused names what this route does not do.
func (in *completionRequest) refused() error {
	if in.Stream {
		return fault.At("stream", "stream must be false: completions of raw prompts are not streamed")
	}
	for _, m := range []struct {
		name  string
		value jsontext.Value
	}{{"n", in.N}, {"best_of", in.BestOf}} {
		n, err := wire.Count(m.name, m.value, 1)
		if err != nil {
			return err
		}
		if n > 1 {
			return fault.At(m.name, m.name+" must be 1: one answer a request")
		}
	}
	switch in.Suffix.Kind() {
	case 'n', 0:
		return nil
	case '"':
		if string(in.Suffix) == `""` {
			return nil
		}
	}
	return fault.At("suffix", "suffix is not supported: text is only continued at its end")
}

// prompt reads a text, a list of token ids, or a list that holds one of them.
func (in *completionRequest) prompt() (*llm.Raw, error) {
	raw := in.Prompt
	switch raw.Kind() {
	case 'n', 0:
		if len(in.Messages) > 0 {
			return nil, fault.At("prompt", "prompt is missing; a body with messages belongs to /v1/chat/completions")
		}
		return nil, fault.At("prompt", "prompt is missing")
	case '[':
		one, err := only(raw)
		if err != nil {
			return nil, err
		}
		if one != nil {
			raw = one
		}
	}
	switch raw.Kind() {
	case '"':
		text := llm.Verbatim(raw)
		if text.Empty() {
			return nil, fault.At("prompt", "prompt must not be empty")
		}
		return &llm.Raw{Text: text, Echo: in.Echo}, nil
	case '[':
		ids, err := tokenIDs(raw)
		return &llm.Raw{IDs: ids, Echo: in.Echo}, err
	}
	return nil, fault.At("prompt", "prompt must be a string or a list of token ids")
}

// only gives the one prompt that a list of prompts holds, nil when the list is a
// prompt itself.
func only(raw jsontext.Value) (jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.ReadToken(); err != nil {
		return nil, wire.Refusal(err)
	}
	if k := dec.PeekKind(); k != '"' && k != '[' {
		return nil, nil
	}
	one, err := dec.ReadValue()
	if err != nil {
		return nil, wire.Refusal(err)
	}
	one = bytes.Clone(one)
	if dec.PeekKind() != ']' {
		return nil, fault.At("prompt", "prompt holds several prompts; send one a request")
	}
	return one, nil
}

// tokenIDs checks a list of token ids, which is valid JSON, and keeps it as it came,
// unless numbers in it are not written plainly.
func tokenIDs(raw jsontext.Value) (llm.TokenIDs, error) {
	bad := fault.At("prompt", "a token id must be a whole number from 0 to "+strconv.Itoa(tokenIDMax))
	some := false
	for i := 1; i < len(raw)-1; i++ {
		switch c := raw[i]; {
		case c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r':
			continue
		case c < '0' || c > '9':
			if ids, ok := plainIDs(raw); ok {
				return tokenIDs(ids)
			}
			return nil, bad
		}
		id := 0
		for ; i < len(raw) && raw[i] >= '0' && raw[i] <= '9'; i++ {
			if id = id*10 + int(raw[i]-'0'); id > tokenIDMax {
				return nil, bad
			}
		}
		i--
		some = true
	}
	if !some {
		return nil, fault.At("prompt", "prompt must not be empty")
	}
	return llm.TokenIDs(raw), nil
}

// plainIDs writes a list of whole numbers plainly, and tells whether it is one.
func plainIDs(raw jsontext.Value) (ids jsontext.Value, ok bool) {
	ids = append(make([]byte, 0, len(raw)), '[')
	ok = wire.Elements(raw, func(value jsontext.Value) bool {
		plain, ok := wire.Whole(value)
		ids = append(append(ids, plain...), ',')
		return ok && plain[0] != '-'
	})
	ids[len(ids)-1] = ']'
	return ids, ok
}

// logprobs reads what is to be scored. An offset makes it the call that scores a
// span; echo and logprobs are checked and then mean nothing.
func (in *completionRequest) logprobs(req *llm.Request) error {
	top, err := wire.Count("logprobs", in.Logprobs, 1)
	if err != nil {
		return err
	}
	if top > topLogprobsMax {
		return fault.At("logprobs", "logprobs must be at most "+strconv.Itoa(topLogprobsMax))
	}
	from, err := wire.Count("logprob_start_len", in.ScoreFrom, 0)
	if err != nil {
		return err
	}
	if k := in.ScoreFrom.Kind(); k == 'n' || k == 0 {
		req.Logprobs, req.TopLogprobs = top > 0, int(top)
		return nil
	}
	req.Raw.Echo, req.Raw.ScoreFrom = false, &from
	// A text has at most as many tokens as bytes; how many, its engine knows.
	if n := req.Raw.IDs.Len(); n > 0 && from >= n {
		return fault.At("logprob_start_len", "logprob_start_len must be below the length of the prompt, which is "+
			strconv.FormatInt(n, 10)+" tokens")
	} else if n == 0 && from >= int64(len(req.Raw.Text)-len(`""`)) {
		return fault.At("logprob_start_len", "logprob_start_len must be below the length of the prompt")
	}
	return nil
}
