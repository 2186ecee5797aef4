package openaihttp

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// scoring is how a kind of engine tells the log-probabilities of a prompt.
type scoring int

const (
	// unscored engines do not tell them.
	unscored scoring = iota
	// native is SGLang's own route, which scores from an offset on.
	native
	// promptLogprobs is vLLM's member, which scores the whole prompt.
	promptLogprobs
)

// generate writes the body of SGLang's own route. For a start of L it returns the
// tokens from L on, but never a value for the first of them, which must be dropped:
// so it is asked for one more.
func (q *quirks) generate(name string, req *llm.Request, rid string) []byte {
	raw := req.Raw
	b := make([]byte, 0, len(raw.Text)+len(raw.IDs)+extraSize(req.Extra)+1<<10)
	b = append(b, '{')
	if q.named {
		b = append(quote(append(b, `"model":`...), name), ',')
	}
	if raw.IDs != nil {
		b = append(append(b, `"input_ids":`...), raw.IDs...)
	} else {
		b = append(append(b, `"text":`...), raw.Text.Quoted()...)
	}
	b = strconv.AppendInt(append(b, `,"sampling_params":{"max_new_tokens":`...), outputTokens(req), 10)
	for i := range req.Extra {
		f := &req.Extra[i]
		if at := sampling(f.Name); at != "" && len(f.Value) > 0 && string(f.Value) != "null" {
			b = append(append(append(append(b, `,"`...), at...), `":`...), f.Value...)
		}
	}
	b = append(b, `},"return_logprob":true,"logprob_start_len":`...)
	b = strconv.AppendInt(b, max(0, *raw.ScoreFrom-1), 10)
	if rid != "" {
		b = quote(append(b, `,"rid":`...), rid)
	}
	return append(b, '}')
}

// sampling gives the name that SGLang's own route has for a setting, empty for one
// that it would fail on.
func sampling(name string) string {
	switch name {
	case "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
		"stop", "stop_token_ids", "ignore_eos", "skip_special_tokens", "logit_bias", "regex", "ebnf":
		return name
	case "min_tokens":
		return "min_new_tokens"
	case "seed":
		return "sampling_seed"
	}
	return ""
}

// wireGenerated is an answer of SGLang's own route.
type wireGenerated struct {
	Text  string         `json:"text"`
	Error jsontext.Value `json:"error"`
	Meta  struct {
		Finish *struct {
			Type string `json:"type"`
		} `json:"finish_reason"`
		Prompt     *int64             `json:"prompt_tokens"`
		Completion int64              `json:"completion_tokens"`
		Cached     int64              `json:"cached_tokens"`
		Input      [][]jsontext.Value `json:"input_token_logprobs"`
	} `json:"meta_info"`
}

// decodeGenerated reads an answer of SGLang's own route.
func decodeGenerated(data []byte, raw *llm.Raw) (piece, error) {
	var w wireGenerated
	if err := json.Unmarshal(data, &w, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return piece{}, err
	}
	if len(w.Error) > 0 && w.Error.Kind() != 'n' {
		return piece{fault: reported(data)}, nil
	}
	if w.Meta.Prompt == nil || w.Meta.Finish == nil {
		return piece{}, errShape
	}
	p := piece{
		text: w.Text, finish: w.Meta.Finish.Type,
		counted: true, usage: counts(*w.Meta.Prompt, w.Meta.Cached, w.Meta.Completion, nil),
	}
	if p.finish == "" || gaveUp(p.finish) {
		return p, nil
	}
	input := w.Meta.Input
	if *raw.ScoreFrom > 0 && len(input) > 0 {
		input = input[1:]
	}
	s := span{raw: raw, prompt: *w.Meta.Prompt}
	for _, entry := range input {
		if len(entry) < 2 {
			return piece{}, errShape
		}
		s.add(entry[1], entry[0])
	}
	var err error
	p.scores, err = s.end()
	return p, err
}

// span gathers the scores of a part of a prompt.
type span struct {
	raw *llm.Raw
	// prompt is the number of tokens of the whole prompt.
	prompt int64
	list   []score
}

// score is a token's id and its log-probability, null where nothing precedes.
type score struct{ id, value jsontext.Value }

// add takes the next token. The id of the first may come later.
func (s *span) add(id, value jsontext.Value) {
	s.list = append(s.list, score{id.Clone(), value.Clone()})
}

// end gives what was gathered, which must be all of what was asked for.
func (s *span) end() ([][]byte, error) {
	from := *s.raw.ScoreFrom
	if s.prompt > 0 && from >= s.prompt {
		return nil, errStart(s.prompt)
	}
	// With other tokens before it, the span would be another one.
	if n := s.raw.IDs.Len(); s.prompt == 0 || n > 0 && n != s.prompt || int64(len(s.list)) != s.prompt-from {
		return nil, errShape
	}
	var p parts
	for i, t := range s.list {
		nothing := i == 0 && from == 0 && t.value.Kind() == 'n' // precedes it
		if !isNumber(t.id) || !isNumber(t.value) && !nothing {
			return nil, errShape
		}
		b := append(append(p.next(), `{"id":`...), t.id...)
		b = append(append(b, `,"logprob":`...), t.value...)
		p.done(append(b, '}'))
	}
	return p.all(), nil
}

// errStart is what the caller of a prompt of text learns late: nobody knew how
// many tokens it has.
func errStart(prompt int64) *fault.Error {
	f := fault.At("logprob_start_len", "logprob_start_len must be below the length of the prompt")
	if prompt > 0 {
		f.Message += ", which is " + strconv.FormatInt(prompt, 10) + " tokens"
	}
	return f
}

// startRefused is the engine's refusal of an offset, in our words.
func startRefused(f *fault.Error) *fault.Error {
	if f.Code == fault.Invalid && strings.Contains(f.Message, "logprob_start_len") {
		return errStart(0)
	}
	return f
}

// decodePromptLogprobs reads a completion of vLLM with the log-probabilities of
// its whole prompt, of which it keeps those of the span: the list may be as long
// as a window and is not held.
func decodePromptLogprobs(r io.Reader, raw *llm.Raw) (piece, error) {
	dec := jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	s := span{raw: raw}
	var p piece
	var problem jsontext.Value
	err := each(dec, func(name string) (err error) {
		switch name {
		case "choices":
			return s.choices(dec, &p)
		case "usage":
			var u *wireUsage
			if err = json.UnmarshalDecode(dec, &u); err == nil && u != nil {
				p.usage, p.counted = u.internal()
			}
			return err
		case "error":
			problem, err = dec.ReadValue()
			problem = problem.Clone()
			return err
		}
		return dec.SkipValue()
	})
	switch {
	case err != nil:
		return piece{}, err
	case len(problem) > 0 && problem.Kind() != 'n':
		return piece{fault: reported(append(append([]byte(`{"error":`), problem...), '}'))}, nil
	case p.finish == "" || gaveUp(p.finish):
		return p, nil
	}
	if p.counted && p.usage.Prompt != s.prompt {
		return piece{}, errShape
	}
	p.scores, err = s.end()
	return p, err
}

// choices reads the one choice.
func (s *span) choices(dec *jsontext.Decoder, p *piece) error {
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '[' {
		return errors.Join(errShape, err)
	}
	err := each(dec, func(name string) error {
		switch name {
		case "text":
			return json.UnmarshalDecode(dec, &p.text)
		case "finish_reason":
			return json.UnmarshalDecode(dec, &p.finish)
		case "prompt_logprobs":
			return s.places(dec)
		case "prompt_token_ids":
			return s.first(dec)
		}
		return dec.SkipValue()
	})
	if err != nil {
		return err
	}
	if token, err := dec.ReadToken(); err != nil || token.Kind() != ']' {
		return errors.Join(errShape, err)
	}
	return nil
}

// first reads the id of a text's first token, which has no log-probability and so
// no name among them.
func (s *span) first(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '[' {
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for n := 0; dec.PeekKind() != ']'; n++ {
		id, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if n == 0 && *s.raw.ScoreFrom == 0 && len(s.list) > 0 {
			s.list[0].id = id.Clone()
		}
	}
	_, err := dec.ReadToken()
	return err
}

// places reads the list of the prompt's tokens.
func (s *span) places(dec *jsontext.Decoder) error {
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '[' {
		return errors.Join(errShape, err)
	}
	var ids []int64
	if s.raw.IDs != nil {
		if err := json.Unmarshal(s.raw.IDs, &ids); err != nil {
			return err
		}
	}
	for s.prompt = 0; dec.PeekKind() != ']'; s.prompt++ {
		if s.prompt < *s.raw.ScoreFrom {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		own := ""
		if int(s.prompt) < len(ids) {
			own = strconv.FormatInt(ids[s.prompt], 10)
		}
		if err := s.place(value, own); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// place reads what is said of one token of the prompt: null, or a map in which the
// token is the first member when others are there too.
func (s *span) place(value jsontext.Value, own string) error {
	if value.Kind() == 'n' {
		s.add(jsontext.Value(own), value)
		return nil
	}
	found := false
	err := walk(value, func(name string, token jsontext.Value) error {
		if found || own != "" && own != name {
			return nil
		}
		found = true
		var t struct {
			Logprob jsontext.Value `json:"logprob"`
		}
		if json.Unmarshal(token, &t, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
			return errShape
		}
		s.add(jsontext.Value(name), t.Logprob)
		return nil
	})
	if err == nil && !found {
		err = errShape
	}
	return err
}

// each hands over the names of the next object's members; take reads the values.
func each(dec *jsontext.Decoder, take func(name string) error) error {
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return errors.Join(errShape, err)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		if err := take(name.String()); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}
