// Package responses is the codec of OpenAI's Responses without stored state.
// Wire types are private to it; how it reads JSON is in wire, and what it shares
// with Chat Completions is in openai. It is pure: bytes in, values out, and back.
// An answer is a list of items of which one is open at a time, and its whole form
// has the same items, in the same order and with the same ids, as its stream.
// What an answer repeats of its request travels in the request's Note.
package responses

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

const (
	route = "POST /v1/responses"

	topLogprobsMax = 30
)

// Codec speaks Responses.
type Codec struct{}

// Routes gives the routes of this codec.
func (Codec) Routes() []string { return []string{route} }

// Error writes a failure in OpenAI's form.
func (Codec) Error(err error, id string) (int, []byte) { return openai.Codec{}.Error(err, id) }

type request struct {
	Model           string         `json:"model"`
	Input           input          `json:"input"`
	Instructions    jsontext.Value `json:"instructions"`
	Stream          bool           `json:"stream"`
	Tools           jsontext.Value `json:"tools"`
	ToolChoice      jsontext.Value `json:"tool_choice"`
	MaxOutputTokens jsontext.Value `json:"max_output_tokens"`
	TopLogprobs     jsontext.Value `json:"top_logprobs"`
	Include         []string       `json:"include"`
	Reasoning       jsontext.Value `json:"reasoning"`
	Text            jsontext.Value `json:"text"`
	Metadata        jsontext.Value `json:"metadata"`
	Provider        jsontext.Value `json:"provider"`
	Extra           jsontext.Value `json:",embed"`

	Background       bool           `json:"background"`
	PreviousResponse jsontext.Value `json:"previous_response_id"`
	Conversation     jsontext.Value `json:"conversation"`
	Prompt           jsontext.Value `json:"prompt"`
}

// Decode reads a request.
func (Codec) Decode(_ string, body []byte) (*llm.Request, error) {
	in, err := wire.Decode[request](body)
	if err != nil {
		return nil, err
	}
	if err := wire.Model(in.Model); err != nil {
		return nil, err
	}
	req := &llm.Request{Model: in.Model, Spelling: in.Model, Stream: in.Stream}
	n := &note{}
	req.Note = n
	steps := []func() error{
		func() error { return stateless(in) },
		func() error { return limits(req, n, in) },
		func() error { return items(req, in) },
		func() error { return tools(req, n, in) },
		func() error { _, err := openai.Effort(req, in.Reasoning); return err },
		func() (err error) { req.Policy, err = wire.Policy(in.Provider); return err },
		func() error { return extra(req, in) },
		func() error { return n.repeat(in) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// stateless refuses what would need an earlier exchange to be kept.
func stateless(in *request) error {
	const sorry = " needs stored state, and none is stored; send the whole conversation in input"
	for _, m := range []struct {
		field string
		value jsontext.Value
	}{
		{"previous_response_id", in.PreviousResponse},
		{"conversation", in.Conversation},
		{"prompt", in.Prompt},
	} {
		if len(m.value) > 0 && m.value.Kind() != 'n' && string(m.value) != `""` {
			return fault.At(m.field, m.field+sorry)
		}
	}
	if in.Background {
		return fault.At("background", "background needs stored state, and none is stored; use stream")
	}
	return nil
}

func limits(req *llm.Request, n *note, in *request) (err error) {
	if req.MaxTokens, err = wire.Count("max_output_tokens", in.MaxOutputTokens, 1); err != nil {
		return err
	}
	top, err := wire.Count("top_logprobs", in.TopLogprobs, 0)
	if err != nil {
		return err
	}
	if top > topLogprobsMax {
		return fault.At("top_logprobs", "top_logprobs must be at most "+strconv.Itoa(topLogprobsMax))
	}
	req.TopLogprobs, req.Logprobs = int(top), top > 0
	for _, what := range in.Include {
		switch what {
		case "message.output_text.logprobs":
			req.Logprobs = true
		case "reasoning.encrypted_content":
			n.thoughts = true
		}
	}
	if k := in.Metadata.Kind(); len(in.Metadata) > 0 && k != '{' && k != 'n' {
		return fault.At("metadata", "metadata must be an object")
	}
	return nil
}

// own are members that no engine reads, and those that are read here: their twins
// in other cases must not travel on.
func own() []string {
	return []string{
		"input", "instructions", "max_output_tokens", "include", "text", "background", "previous_response_id",
		"conversation", "prompt", "truncation", "max_tool_calls", "client_metadata", "context_management", "moderation",
		"prompt_cache_options", "access_programs", "image",
	}
}

// extra keeps what the platform does not read, and adds the form of the answer in
// the words of Chat Completions.
func extra(req *llm.Request, in *request) error {
	format, err := responseFormat(in.Text)
	if err != nil {
		return err
	}
	drop := own()
	if format != nil {
		drop = append(drop, "response_format")
	}
	if err := openai.Settings(req, in.Extra, drop...); err != nil {
		return err
	}
	if format != nil {
		req.Extra = append(req.Extra, llm.Field{Name: "response_format", Value: format})
	}
	return nil
}

// responseFormat nests what is flat here. Nil is plain text.
func responseFormat(text jsontext.Value) ([]byte, error) {
	var in struct {
		Format jsontext.Value `json:"format"`
	}
	if len(text) > 0 && json.Unmarshal(text, &in) != nil {
		return nil, fault.At("text", "text must be an object")
	}
	if len(in.Format) == 0 || in.Format.Kind() == 'n' {
		return nil, nil
	}
	bad := fault.At("text.format", "text.format must be an object of type text, json_object or json_schema")
	var kind struct {
		Type string `json:"type"`
	}
	if in.Format.Kind() != '{' || json.Unmarshal(in.Format, &kind) != nil {
		return nil, bad
	}
	switch kind.Type {
	case "text":
		return nil, nil
	case "json_object":
		return []byte(`{"type":"json_object"}`), nil
	case "json_schema":
	default:
		return nil, bad
	}
	if _, err := wire.Keep("text.format", in.Format); err != nil {
		return nil, err
	}
	b := []byte(`{"type":"json_schema","json_schema":{`)
	empty := len(b)
	err := wire.Members(in.Format, func(name string, value jsontext.Value) error {
		if name == "type" {
			return nil
		}
		if len(b) > empty {
			b = append(b, ',')
		}
		b = append(wire.Quote(b, name), ':')
		b = append(b, value...)
		return nil
	})
	return append(b, "}}"...), err
}
