// Package openai is the codec of OpenAI's Chat Completions, Completions and models
// list.
// Wire types are private to it. It is pure: bytes in, values out, and back.
// Fields that the platform does not read travel on verbatim; a wrong-case twin
// of a field that it does read is dropped, so that nobody downstream can read
// the request another way.
package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

const (
	chatRoute = "POST /v1/chat/completions"

	topLogprobsMax = 30
)

// Codec speaks Chat Completions, and Completions of raw prompts.
type Codec struct {
	// Responses reads a body that is shaped for Responses, which some clients send
	// here and whose answer they read as a chat. Without it such a body is refused.
	Responses func(route string, body []byte) (*llm.Request, error)
}

// Routes gives the routes of this codec.
func (Codec) Routes() []string { return []string{chatRoute, completionRoute} }

type chatRequest struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Input               jsontext.Value `json:"input"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options"`
	MaxTokens           jsontext.Value `json:"max_tokens"`
	MaxCompletionTokens jsontext.Value `json:"max_completion_tokens"`
	N                   jsontext.Value `json:"n"`
	Tools               []tool         `json:"tools"`
	ToolChoice          jsontext.Value `json:"tool_choice"`
	Logprobs            bool           `json:"logprobs"`
	TopLogprobs         jsontext.Value `json:"top_logprobs"`
	ReasoningEffort     string         `json:"reasoning_effort"`
	Reasoning           jsontext.Value `json:"reasoning"`
	Thinking            *struct {
		Type string `json:"type"`
	} `json:"thinking"`
	Provider jsontext.Value `json:"provider"`
	Extra    jsontext.Value `json:",embed"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type tool struct {
	Type        string         `json:"type"`
	Function    *function      `json:"function"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      jsontext.Value `json:"strict"`
	// InputSchema is what Anthropic's protocol calls the parameters.
	InputSchema jsontext.Value `json:"input_schema"`
}

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      jsontext.Value `json:"strict"`
	Extra       jsontext.Value `json:",embed"`
}

// Decode reads a chat completion request, or one with a raw prompt.
func (c Codec) Decode(route string, body []byte) (*llm.Request, error) {
	if route == completionRoute {
		return decodeCompletion(body)
	}
	in, err := wire.Decode[chatRequest](body)
	if err != nil {
		return nil, err
	}
	if err := wire.Model(in.Model); err != nil {
		return nil, err
	}
	counted := in.Stream && in.StreamOptions != nil && in.StreamOptions.IncludeUsage
	if len(in.Messages) == 0 && len(in.Input) > 0 && c.Responses != nil {
		req, err := c.Responses(route, body)
		if err == nil {
			req.IncludeUsage = counted
		}
		return req, err
	}
	if len(in.Messages) == 0 && len(in.Input) > 0 {
		return nil, fault.At("messages", "messages is missing; a body with input belongs to /v1/responses")
	}
	req := &llm.Request{
		Model: in.Model, Spelling: in.Model, Stream: in.Stream, Logprobs: in.Logprobs, IncludeUsage: counted,
	}
	steps := []func() error{
		func() error { return limits(req, in) },
		func() error { return items(req, in.Messages) },
		func() error { return tools(req, in) },
		func() error { return effort(req, in) },
		func() (err error) { req.Policy, err = wire.Policy(in.Provider); return err },
		func() error { return Settings(req, in.Extra) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// effort reads how hard to think. The plain word is meant before the one in an
// object.
func effort(req *llm.Request, in *chatRequest) error {
	hidden, err := Effort(req, in.Reasoning)
	if err != nil {
		return err
	}
	req.Note = note{hidden: hidden}
	if in.Thinking != nil && req.Thinking == "" && (in.Thinking.Type == "enabled" || in.Thinking.Type == "disabled") {
		req.Thinking = in.Thinking.Type
	}
	if in.ReasoningEffort != "" {
		req.Effort, err = word("reasoning_effort", in.ReasoningEffort)
	}
	return err
}

func limits(req *llm.Request, in *chatRequest) error {
	limit, err := wire.Count("max_tokens", in.MaxTokens, 1)
	if err != nil {
		return err
	}
	newer, err := wire.Count("max_completion_tokens", in.MaxCompletionTokens, 1)
	if err != nil {
		return err
	}
	if req.MaxTokens = limit; newer > 0 {
		req.MaxTokens = newer
	}
	n, err := wire.Count("n", in.N, 1)
	if err != nil {
		return err
	}
	if n > 1 {
		return fault.At("n", "n must be 1: one answer a request")
	}
	top, err := wire.Count("top_logprobs", in.TopLogprobs, 0)
	if err != nil {
		return err
	}
	if top > topLogprobsMax {
		return fault.At("top_logprobs", "top_logprobs must be at most 30")
	}
	if top > 0 && !req.Logprobs {
		return fault.At("top_logprobs", "top_logprobs needs logprobs to be true")
	}
	req.TopLogprobs = int(top)
	return nil
}

func tools(req *llm.Request, in *chatRequest) error {
	if len(in.Tools) > wire.ToolsMax {
		return fault.At("tools", "tools holds more than "+strconv.Itoa(wire.ToolsMax)+" tools")
	}
	for i := range in.Tools {
		t := &in.Tools[i]
		f := t.Function
		if f == nil {
			if t.Name == "" && t.Type != "" && t.Type != "function" && t.Type != "custom" {
				continue // a tool that another platform runs
			}
			// Some clients send the flat form of another protocol.
			f = &function{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
			if len(f.Parameters) == 0 {
				f.Parameters = t.InputSchema
			}
		}
		if err := wire.ToolName("tools["+strconv.Itoa(i)+"].function.name", f.Name); err != nil {
			return err
		}
		spec := llm.ToolSpec{Name: f.Name, Description: f.Description}
		if f.Parameters.Kind() == '{' {
			schema, err := wire.Keep("tools", f.Parameters)
			if err != nil {
				return err
			}
			spec.Schema = schema
		}
		switch f.Strict.Kind() {
		case 't', 'f':
			spec.Extra = append(spec.Extra, llm.Field{Name: "strict", Value: bytes.Clone(f.Strict)})
		}
		req.Tools = append(req.Tools, spec)
	}
	return choice(req, in.ToolChoice)
}

// allowed limits which of the tools may be called.
type allowed struct {
	Mode  string `json:"mode"`
	Tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

// narrow leaves the other tools out, and tells whether all that are named exist.
func (a *allowed) narrow(req *llm.Request) bool {
	if a == nil || len(a.Tools) == 0 || a.Mode != "auto" && a.Mode != "required" {
		return false
	}
	names := map[string]bool{}
	for _, t := range a.Tools {
		names[t.Name+t.Function.Name] = true
	}
	kept := slices.DeleteFunc(slices.Clone(req.Tools), func(t llm.ToolSpec) bool { return !names[t.Name] })
	if len(kept) != len(names) {
		return false
	}
	req.Tools, req.Choice = kept, a.Mode
	return true
}

func choice(req *llm.Request, raw jsontext.Value) error {
	bad := fault.At("tool_choice", "tool_choice must be auto, none, required, or name a function of tools")
	switch {
	case len(raw) == 0 || raw.Kind() == 'n':
		return nil
	case raw.Kind() == '"':
		var word string
		if json.Unmarshal(raw, &word) != nil || !Choose(req, word) {
			return bad
		}
		return nil
	}
	var object struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		Name    string   `json:"name"`
		Allowed *allowed `json:"allowed_tools"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return bad
	}
	if object.Type == "allowed_tools" {
		if !object.Allowed.narrow(req) {
			return bad
		}
		return nil
	}
	name := object.Function.Name + object.Name
	if name == "" && Choose(req, object.Type) {
		return nil
	}
	for _, t := range req.Tools {
		if t.Name == name {
			req.Choice, req.ChoiceName = "tool", name
			return nil
		}
	}
	return bad
}

// Choose sets the tool choice a word names, and tells whether it names one.
func Choose(req *llm.Request, word string) bool {
	switch word {
	case "auto", "none", "required":
		req.Choice = word
	case "any":
		req.Choice = "required"
	default:
		return false
	}
	return true
}
