package openaihttp

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// able refuses what this kind of engine would misunderstand.
func (q *quirks) able(req *llm.Request) error {
	if req.Raw == nil {
		return nil
	}
	for _, feature := range req.Features() {
		if !q.can(feature) {
			return fault.New(fault.Engine, "this kind of engine does not do what a raw prompt asks for")
		}
	}
	return nil
}

// echoes tells whether the engine is to say the prompt again. One of text is
// known here; only what was scored of it, or what ids stand for, is not.
func echoes(req *llm.Request) bool {
	return req.Raw.Echo && (req.Logprobs || req.Raw.IDs != nil)
}

// complete writes the body of a completion, which is streamed.
func (q *quirks) complete(name string, req *llm.Request, rid string) []byte {
	b := q.prompt(name, req)
	b = append(b, `,"stream":true,"stream_options":{"include_usage":true`...)
	b = append(append(b, q.runningOptions...), '}')
	b = append(b, q.runningRequest...)
	if echoes(req) {
		b = append(b, `,"echo":true`...)
	}
	if req.Logprobs {
		b = strconv.AppendInt(append(b, `,"logprobs":`...), int64(req.TopLogprobs), 10)
	}
	return q.settings(b, req, rid)
}

// scorePrompt writes the body of a completion that tells the log-probabilities of
// its whole prompt. vLLM does not stream those.
func (q *quirks) scorePrompt(name string, req *llm.Request, rid string) []byte {
	b := append(q.prompt(name, req), `,"prompt_logprobs":0`...)
	if req.Raw.IDs == nil {
		// The first token has no log-probability, and no name without this.
		b = append(b, `,"return_token_ids":true`...)
	}
	return q.settings(b, req, rid)
}

func (q *quirks) prompt(name string, req *llm.Request) []byte {
	b := make([]byte, 0, len(req.Raw.Text)+len(req.Raw.IDs)+extraSize(req.Extra)+1<<10)
	b = append(quote(append(b, `{"model":`...), name), `,"prompt":`...)
	if req.Raw.IDs != nil {
		return append(b, req.Raw.IDs...)
	}
	return append(append(b, req.Raw.Text.Quoted()...), q.asItStands...)
}

func (q *quirks) settings(b []byte, req *llm.Request, rid string) []byte {
	b = strconv.AppendInt(append(b, `,"max_tokens":`...), outputTokens(req), 10)
	b = extra(b, req.Extra, ownCompletion)
	if rid != "" {
		b = quote(append(b, `,"rid":`...), rid)
	}
	return append(b, '}')
}

// ownCompletion names the members that Extra may not set: those of a chat, and
// those that would move or hide the prompt.
func ownCompletion(name string) bool {
	switch name {
	case "suffix", "logprob_start_len", "return_token_ids", "truncate_prompt_tokens", "truncation_side", "add_special_tokens":
		return true
	}
	return ownRequest(name)
}

// wireLists are log-probabilities as completions have them: a list for each thing
// that is said of a token.
type wireLists struct {
	Content jsontext.Value   `json:"content"`
	Tokens  []string         `json:"tokens"`
	Values  []jsontext.Value `json:"token_logprobs"`
	Tops    []jsontext.Value `json:"top_logprobs"`
}

// entries turns the lists into one, in parts that fit a message.
func (l *wireLists) entries() ([][]byte, error) {
	if len(l.Values) != len(l.Tokens) || len(l.Tops) > 0 && len(l.Tops) != len(l.Tokens) {
		return nil, errShape
	}
	var p parts
	for i, token := range l.Tokens {
		if !isNumber(l.Values[i]) && l.Values[i].Kind() != 'n' {
			return nil, errShape
		}
		b := p.next()
		b = append(quote(append(b, `{"token":`...), token), `,"logprob":`...)
		b = append(b, l.Values[i]...)
		if len(l.Tops) > 0 && l.Tops[i].Kind() == '{' {
			var err error
			if b, err = likeliest(append(b, `,"top_logprobs":[`...), l.Tops[i]); err != nil {
				return nil, err
			}
		}
		p.done(append(b, '}'))
	}
	return p.all(), nil
}

// likeliest turns a map of tokens into a list, in its order.
func likeliest(b []byte, object jsontext.Value) ([]byte, error) {
	first := true
	err := walk(object, func(name string, value jsontext.Value) error {
		if !isNumber(value) {
			return errShape
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(quote(append(b, `{"token":`...), name), `,"logprob":`...)
		b = append(append(b, value...), '}')
		return nil
	})
	return append(b, ']'), err
}

// walk hands over the members of an object in their order, twins included.
func walk(object jsontext.Value, take func(name string, value jsontext.Value) error) error {
	dec := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return each(dec, func(name string) error {
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return take(name, value)
	})
}

func isNumber(v jsontext.Value) bool { return v.Kind() == '0' }

// parts gathers entries into JSON arrays of bounded length.
type parts struct {
	list [][]byte
	open []byte
}

// next gives the place where the next entry begins.
func (p *parts) next() []byte {
	if len(p.open) > PartBytesMax {
		p.list, p.open = append(p.list, append(p.open, ']')), nil
	}
	if p.open == nil {
		return append(p.open, '[')
	}
	return append(p.open, ',')
}

func (p *parts) done(b []byte) { p.open = b }

func (p *parts) all() [][]byte {
	if p.open == nil {
		return p.list
	}
	return append(p.list, append(p.open, ']'))
}
