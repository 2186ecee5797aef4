// Package openai is the codec of OpenAI's Chat Completions and models list.
// Wire types are private to it. It is pure: bytes in, values out, and back.
// Fields that the platform does not read travel on verbatim; a wrong-case twin
// of a field that it does read is dropped, so that nobody downstream can read
// the request another way.
package openai

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

const (
	chatRoute = "POST /v1/chat/completions"

	itemsMax       = 20_000
	toolsMax       = 1_024
	topLogprobsMax = 30
	modelBytesMax  = 256
	toolNameMax    = 256
	// depthMax bounds how deep values may nest.
	depthMax = 1_000
	// nameShown is how much of such a name an error shows, in bytes.
	nameShown = 64
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

// textPart keeps a text as it came. Null and nothing are the empty text.
func textPart(raw jsontext.Value) (llm.Part, error) {
	switch raw.Kind() {
	case '"':
		return llm.Part{Text: llm.Verbatim(bytes.Clone(raw))}, nil
	case 'n', 0:
		return llm.Part{}, nil
	}
	return llm.Part{}, fault.At("messages", "the text of a content part must be a string")
}

// image reads an inline image. Addresses are never fetched, so they are
// refused here.
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
	head, data, ok := strings.Cut(url, ",")
	head = strings.ToLower(head)
	kind, isData := strings.CutPrefix(head, "data:")
	kind, isBase64 := strings.CutSuffix(kind, ";base64")
	if !ok || !isData || !isBase64 || !strings.HasPrefix(kind, "image/") {
		return nil, fault.At("messages", "images must be inline: a base64 data:image/ URI; addresses are not fetched")
	}
	data = strings.NewReplacer("\n", "", "\r", "").Replace(data)
	if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))); err != nil || data == "" {
		return nil, fault.At("messages", "the image is not valid base64")
	}
	return &llm.Media{Kind: "image", Type: kind, Data: data}, nil
}

// Decode reads a chat completion request.
func (Codec) Decode(_ string, body []byte) (*llm.Request, error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, fault.New(fault.Invalid, "the body must be a JSON object")
	}
	var wire chatRequest
	if err := decode(body, &wire); err != nil {
		return nil, refusal(err)
	}
	if wire.Model == "" || len(wire.Model) > modelBytesMax {
		return nil, fault.At("model", "model must be the id of a model")
	}
	req := &llm.Request{
		Model: wire.Model, Spelling: wire.Model, Stream: wire.Stream, Logprobs: wire.Logprobs,
		IncludeUsage: wire.Stream && wire.StreamOptions != nil && wire.StreamOptions.IncludeUsage,
	}
	steps := []func() error{
		func() error { return limits(req, &wire) },
		func() error { return items(req, wire.Messages) },
		func() error { return tools(req, &wire) },
		func() (err error) { req.Policy, err = policy(wire.Provider); return err },
		func() (err error) { req.Extra, err = extra(wire.Extra); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// decode reads a body strictly. Text that is cut in the middle of a character,
// as some clients send it, is mended once: what is no character becomes U+FFFD.
func decode(body []byte, wire *chatRequest) error {
	err := json.Unmarshal(body, wire)
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) || errors.Is(err, jsontext.ErrDuplicateName) {
		return err
	}
	clean, unclean := jsontext.AppendFormat(nil, body, jsontext.AllowInvalidUTF8(true))
	if unclean != nil {
		return err
	}
	*wire = chatRequest{}
	return json.Unmarshal(clean, wire)
}

// keep copies a value that travels on verbatim. Deep ones are refused: they
// travel inside other values, and every reader has a limit.
func keep(field string, raw jsontext.Value) ([]byte, error) {
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > depthMax {
				return nil, fault.At(field, field+" is nested too deeply")
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return bytes.Clone(raw), nil
}

// refusal turns a decoder's error into one that names the field and quotes no
// content.
func refusal(err error) error {
	var coded *fault.Error
	if errors.As(err, &coded) {
		return coded
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		field := fieldName(semantic.JSONPointer)
		return fault.At(field, field+" has the wrong type")
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
		field := fieldName(syntax.JSONPointer)
		return fault.At(field, field+" appears twice")
	}
	return fault.New(fault.Invalid, "the body is not valid JSON")
}

// fieldName writes a JSON pointer the way callers write fields:
// messages[0].content.
func fieldName(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(short(token))
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

// short makes a name that the caller made up fit to be shown.
func short(name string) string {
	if len(name) > nameShown {
		name = name[:nameShown]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

func limits(req *llm.Request, wire *chatRequest) error {
	limit, err := count("max_tokens", wire.MaxTokens, 1)
	if err != nil {
		return err
	}
	newer, err := count("max_completion_tokens", wire.MaxCompletionTokens, 1)
	if err != nil {
		return err
	}
	if req.MaxTokens = limit; newer > 0 {
		req.MaxTokens = newer
	}
	n, err := count("n", wire.N, 1)
	if err != nil {
		return err
	}
	if n > 1 {
		return fault.At("n", "n must be 1: one answer a request")
	}
	top, err := count("top_logprobs", wire.TopLogprobs, 0)
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

// count reads a whole number of at least low; absent and null give 0. What is
// larger than an int64 is as good as the largest one: limits lower it anyway.
func count(field string, raw jsontext.Value, low int64) (int64, error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return 0, nil
	}
	bad := fault.At(field, field+" must be a whole number of at least "+strconv.FormatInt(low, 10))
	if raw.Kind() != '0' {
		return 0, bad
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if errors.Is(err, strconv.ErrRange) && raw[0] != '-' {
		return 1<<63 - 1, nil
	}
	if err != nil || n < low {
		return 0, bad
	}
	return n, nil
}

func items(req *llm.Request, messages []message) error {
	if len(messages) == 0 {
		return fault.At("messages", "messages must hold at least one message")
	}
	if len(messages) > itemsMax {
		return fault.At("messages", "messages holds more than "+strconv.Itoa(itemsMax)+" messages")
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
		if it.Extra, err = extra(m.Extra, "refusal", "annotations", "audio", "function_call"); err != nil {
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
	if c.Function.Name == "" || len(c.Function.Name) > toolNameMax {
		return llm.Call{}, fault.At("messages", "a tool call's name must have 1 to "+strconv.Itoa(toolNameMax)+" bytes")
	}
	call := llm.Call{ID: c.ID, Name: c.Function.Name}
	switch c.Function.Arguments.Kind() {
	case '"':
		if err := json.Unmarshal(c.Function.Arguments, &call.Arguments); err != nil {
			return llm.Call{}, refusal(err)
		}
	case '{':
		call.Arguments = string(c.Function.Arguments)
	}
	return call, nil
}

func tools(req *llm.Request, wire *chatRequest) error {
	if len(wire.Tools) > toolsMax {
		return fault.At("tools", "tools holds more than "+strconv.Itoa(toolsMax)+" tools")
	}
	for i := range wire.Tools {
		t := &wire.Tools[i]
		f := t.Function
		if f == nil {
			// Some clients send the flat form of another protocol.
			f = &function{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
		}
		if f.Name == "" || len(f.Name) > toolNameMax {
			field := "tools[" + strconv.Itoa(i) + "].function.name"
			return fault.At(field, field+" must have 1 to "+strconv.Itoa(toolNameMax)+" bytes")
		}
		spec := llm.ToolSpec{Name: f.Name, Description: f.Description}
		if f.Parameters.Kind() == '{' {
			schema, err := keep("tools", f.Parameters)
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
	return choice(req, wire.ToolChoice)
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
