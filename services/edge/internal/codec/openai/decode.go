// Package openai is the codec of OpenAI's Chat Completions and models list.
// Wire types are private to it. It is pure: bytes in, values out, and back.
// Fields that the platform does not read travel on verbatim; a wrong-case twin
// of a field that it does read is dropped, so that nobody downstream can read
// the request another way.
package openai

import (
	"bytes"
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

// Codec speaks Chat Completions.
type Codec struct{}

// Routes gives the routes of this codec.
func (Codec) Routes() []string { return []string{chatRoute} }

type chatRequest struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options"`
	MaxTokens           jsontext.Value `json:"max_tokens"`
	MaxCompletionTokens jsontext.Value `json:"max_completion_tokens"`
	N                   jsontext.Value `json:"n"`
	Tools               []tool         `json:"tools"`
	ToolChoice          jsontext.Value `json:"tool_choice"`
	Logprobs            bool           `json:"logprobs"`
	TopLogprobs         jsontext.Value `json:"top_logprobs"`
	Provider            jsontext.Value `json:"provider"`
	Extra               jsontext.Value `json:",embed"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role             string         `json:"role"`
	Content          content        `json:"content"`
	Name             string         `json:"name"`
	ToolCallID       string         `json:"tool_call_id"`
	ToolCalls        []toolCall     `json:"tool_calls"`
	ReasoningContent *string        `json:"reasoning_content"`
	Reasoning        jsontext.Value `json:"reasoning"`
	Details          jsontext.Value `json:"reasoning_details"`
	Extra            jsontext.Value `json:",embed"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

type tool struct {
	Type        string         `json:"type"`
	Function    *function      `json:"function"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      jsontext.Value `json:"strict"`
}

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      jsontext.Value `json:"strict"`
	Extra       jsontext.Value `json:",embed"`
}

// content is a string, a list of parts, or null.
type content struct {
	parts []llm.Part
}

type part struct {
	Type     string         `json:"type"`
	Text     jsontext.Value `json:"text"`
	Refusal  jsontext.Value `json:"refusal"`
	ImageURL jsontext.Value `json:"image_url"`
	Audio    *inputAudio    `json:"input_audio"`
}

type inputAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

// UnmarshalJSONFrom reads any of the three forms.
func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case '"':
		text, err := dec.ReadValue()
		if err != nil {
			return err
		}
		c.parts = []llm.Part{{Text: llm.Verbatim(bytes.Clone(text))}}
		return nil
	case '[':
		var parts []part
		if err := json.UnmarshalDecode(dec, &parts); err != nil {
			return err
		}
		c.parts = make([]llm.Part, 0, len(parts))
		for i := range parts {
			p, err := parts[i].internal()
			if err != nil {
				return err
			}
			c.parts = append(c.parts, p)
		}
		return nil
	case 'n':
		return dec.SkipValue()
	}
	return fault.At("messages", "content must be a string, a list of parts, or null")
}

// textPart keeps a text as it came.
func textPart(raw jsontext.Value) (llm.Part, error) {
	text, err := wire.Text("messages", raw)
	return llm.Part{Text: text}, err
}

func (p part) internal() (llm.Part, error) {
	switch p.Type {
	case "text", "input_text", "output_text", "":
		return textPart(p.Text)
	case "refusal":
		return textPart(p.Refusal)
	case "image_url":
		media, err := image(p.ImageURL)
		return llm.Part{Media: media}, err
	case "input_audio":
		if p.Audio == nil || p.Audio.Data == "" {
			return llm.Part{}, fault.At("messages", "input_audio needs base64 data and a format")
		}
		return llm.Part{Media: &llm.Media{Kind: "audio", Type: p.Audio.Format, Data: p.Audio.Data}}, nil
	}
	return llm.Part{}, fault.At("messages", "content part of an unknown type")
}

// image reads an inline image, with its address in an object or bare.
func image(raw jsontext.Value) (*llm.Media, error) {
	var url string
	if raw.Kind() == '"' {
		if err := json.Unmarshal(raw, &url); err != nil {
			return nil, err
		}
	} else {
		var object struct {
			URL string `json:"url"`
		}
		if len(raw) == 0 || json.Unmarshal(raw, &object) != nil {
			return nil, fault.At("messages", "image_url must be an object with a url")
		}
		url = object.URL
	}
	return wire.DataURI("messages", url)
}

// Decode reads a chat completion request.
func (Codec) Decode(_ string, body []byte) (*llm.Request, error) {
	in, err := wire.Decode[chatRequest](body)
	if err != nil {
		return nil, err
	}
	if err := wire.Model(in.Model); err != nil {
		return nil, err
	}
	req := &llm.Request{
		Model: in.Model, Spelling: in.Model, Stream: in.Stream, Logprobs: in.Logprobs,
		IncludeUsage: in.Stream && in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
	}
	steps := []func() error{
		func() error { return limits(req, in) },
		func() error { return items(req, in.Messages) },
		func() error { return tools(req, in) },
		func() (err error) { req.Policy, err = wire.Policy(in.Provider); return err },
		func() (err error) { req.Extra, err = Extra(in.Extra); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return req, nil
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

func items(req *llm.Request, messages []message) error {
	if len(messages) == 0 {
		return fault.At("messages", "messages must hold at least one message")
	}
	if len(messages) > wire.ItemsMax {
		return fault.At("messages", "messages holds more than "+strconv.Itoa(wire.ItemsMax)+" messages")
	}
	req.Items = make([]llm.Item, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		field := "messages[" + strconv.Itoa(i) + "]"
		it := llm.Item{Parts: m.Content.parts, Name: m.Name, CallID: m.ToolCallID}
		switch role := llm.Role(m.Role); role {
		case llm.System, llm.Developer, llm.User, llm.Assistant, llm.Tool:
			it.Role = role
		case "function":
			it.Role, it.CallID = llm.Tool, m.Name
		default:
			return fault.At(field+".role", field+".role must be system, developer, user, assistant or tool")
		}
		if it.Role == llm.User && len(it.Parts) == 0 {
			return fault.At(field+".content", field+".content is missing")
		}
		for j := range m.ToolCalls {
			call, err := m.ToolCalls[j].internal()
			if err != nil {
				return err
			}
			it.Calls = append(it.Calls, call)
		}
		it.Reasoning = m.thoughts()
		var err error
		if it.Extra, err = Extra(m.Extra, "refusal", "annotations", "audio", "function_call"); err != nil {
			return err
		}
		req.Items = append(req.Items, it)
	}
	return nil
}

// thoughts reads reasoning that a client sends back, in any of three spellings.
func (m *message) thoughts() string {
	if m.ReasoningContent != nil {
		return *m.ReasoningContent
	}
	var text string
	if m.Reasoning.Kind() == '"' && json.Unmarshal(m.Reasoning, &text) == nil {
		return text
	}
	var details []struct {
		Text    string `json:"text"`
		Summary string `json:"summary"`
	}
	if len(m.Details) > 0 && json.Unmarshal(m.Details, &details) == nil {
		for _, d := range details {
			text += d.Text + d.Summary
		}
	}
	return text
}

func (c toolCall) internal() (llm.Call, error) {
	if err := wire.ToolName("messages.tool_calls.function.name", c.Function.Name); err != nil {
		return llm.Call{}, err
	}
	call := llm.Call{ID: c.ID, Name: c.Function.Name}
	switch c.Function.Arguments.Kind() {
	case '"':
		if err := json.Unmarshal(c.Function.Arguments, &call.Arguments); err != nil {
			return llm.Call{}, wire.Refusal(err)
		}
	case '{':
		call.Arguments = string(c.Function.Arguments)
	}
	return call, nil
}

func tools(req *llm.Request, in *chatRequest) error {
	if len(in.Tools) > wire.ToolsMax {
		return fault.At("tools", "tools holds more than "+strconv.Itoa(wire.ToolsMax)+" tools")
	}
	for i := range in.Tools {
		t := &in.Tools[i]
		f := t.Function
		if f == nil {
			// Some clients send the flat form of another protocol.
			f = &function{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
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

func choice(req *llm.Request, raw jsontext.Value) error {
	bad := fault.At("tool_choice", "tool_choice must be auto, none, required, or name a function of tools")
	switch {
	case len(raw) == 0 || raw.Kind() == 'n':
		return nil
	case raw.Kind() == '"':
		var word string
		if err := json.Unmarshal(raw, &word); err != nil {
			return bad
		}
		switch word {
		case "auto", "none", "required":
			req.Choice = word
			return nil
		case "any":
			req.Choice = "required"
			return nil
		}
		return bad
	}
	var object struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return bad
	}
	name := object.Function.Name + object.Name
	for _, t := range req.Tools {
		if t.Name == name {
			req.Choice, req.ChoiceName = "tool", name
			return nil
		}
	}
	return bad
}
