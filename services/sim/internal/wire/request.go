// Package wire reads the requests of the OpenAI-compatible endpoints.
//
// What lives here: the members that the simulator acts on, their forms, and the
// form of a failure. What does not: what the members lead to. The invariant:
// a member that is not known is ignored and a known one of the wrong type is
// refused, as the Python engines do; names are matched in exact case. To read
// one more member, add it to the struct and use it in the api package.
package wire

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Common is what chat and plain completions share.
type Common struct {
	Model         string        `json:"model"`
	Stream        bool          `json:"stream"`
	StreamOptions StreamOptions `json:"stream_options"`
	MaxTokens     *int          `json:"max_tokens"`
	MinTokens     int           `json:"min_tokens"`
	IgnoreEOS     bool          `json:"ignore_eos"`
	N             *int          `json:"n"`
	Seed          *int64        `json:"seed"`
	Stop          Strings       `json:"stop"`
	RID           string        `json:"rid"`
	CacheSalt     string        `json:"cache_salt"`
}

// StreamOptions says where usage goes in a stream.
type StreamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

// Chat is the body of a chat completion.
type Chat struct {
	Common              `json:",inline"`
	Messages            []Message      `json:"messages"`
	MaxCompletionTokens *int           `json:"max_completion_tokens"`
	Tools               jsontext.Value `json:"tools"`
	ToolChoice          ToolChoice     `json:"tool_choice"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls"`
	Logprobs            bool           `json:"logprobs"`
	TopLogprobs         int            `json:"top_logprobs"`
	TemplateKwargs      TemplateKwargs `json:"chat_template_kwargs"`
	ReasoningEffort     jsontext.Value `json:"reasoning_effort"`
	ResponseFormat      ResponseFormat `json:"response_format"`
}

// Completion is the body of a plain completion.
type Completion struct {
	Common   `json:",inline"`
	Prompt   Prompt `json:"prompt"`
	Echo     bool   `json:"echo"`
	Logprobs *int   `json:"logprobs"`
	// PromptLogprobs and ReturnTokenIDs are vLLM's.
	PromptLogprobs *int `json:"prompt_logprobs"`
	ReturnTokenIDs bool `json:"return_token_ids"`
}

// Generate is the body of a call on SGLang's own route.
type Generate struct {
	// Model is not SGLang's, which serves one.
	Model       string   `json:"model"`
	Text        *string  `json:"text"`
	InputIDs    []uint32 `json:"input_ids"`
	Params      Sampling `json:"sampling_params"`
	Stream      bool     `json:"stream"`
	RID         string   `json:"rid"`
	Logprobs    bool     `json:"return_logprob"`
	From        *int     `json:"logprob_start_len"`
	TopLogprobs int      `json:"top_logprobs_num"`
	Texts       bool     `json:"return_text_in_logprobs"`
}

// Sampling is what SGLang's own route reads of how an answer is made.
type Sampling struct {
	MaxNewTokens *int    `json:"max_new_tokens"`
	MinNewTokens int     `json:"min_new_tokens"`
	IgnoreEOS    bool    `json:"ignore_eos"`
	N            *int    `json:"n"`
	Seed         *int64  `json:"sampling_seed"`
	Stop         Strings `json:"stop"`
}

// Tokenize is the body of a tokenize call: a prompt, or messages.
type Tokenize struct {
	Model               string         `json:"model"`
	Prompt              *string        `json:"prompt"`
	Messages            []Message      `json:"messages"`
	Tools               jsontext.Value `json:"tools"`
	TemplateKwargs      TemplateKwargs `json:"chat_template_kwargs"`
	AddGenerationPrompt *bool          `json:"add_generation_prompt"`
	ReturnTokenStrs     bool           `json:"return_token_strs"`
}

// TemplateKwargs are the settings that chat templates read.
type TemplateKwargs struct {
	EnableThinking  *bool          `json:"enable_thinking"`
	Thinking        *bool          `json:"thinking"`
	ReasoningEffort jsontext.Value `json:"reasoning_effort"`
}

// ResponseFormat asks for JSON.
type ResponseFormat struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema map[string]any `json:"schema"`
	} `json:"json_schema"`
}

// Message is one turn of a chat.
type Message struct {
	Role             string         `json:"role"`
	Content          Content        `json:"content"`
	ReasoningContent string         `json:"reasoning_content"`
	Reasoning        string         `json:"reasoning"`
	ToolCalls        jsontext.Value `json:"tool_calls"`
	ToolCallID       string         `json:"tool_call_id"`
	Name             string         `json:"name"`
}

// Content is a text, null, or a list of parts.
type Content struct {
	Texts      []string
	MediaParts int
}

// UnmarshalJSONFrom reads any of the three forms.
func (c *Content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*c = Content{}
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '"':
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		c.Texts = []string{token.String()}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.UnmarshalDecode(d, &parts); err != nil {
		return err
	}
	for i, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "refusal":
			c.Texts = append(c.Texts, p.Text)
		case "image_url", "input_image", "input_audio", "audio_url", "video_url", "image", "audio", "video":
			c.MediaParts++
		default:
			return fmt.Errorf("content part %d has the unknown type %q", i, p.Type)
		}
	}
	return nil
}

// Strings is one string or a list of them.
type Strings []string

// UnmarshalJSONFrom reads either form; null is an empty list.
func (s *Strings) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*s = nil
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '"':
		var one string
		err := json.UnmarshalDecode(d, &one)
		*s = Strings{one}
		return err
	}
	var list []string
	err := json.UnmarshalDecode(d, &list)
	*s = list
	return err
}

// ToolChoice says whether a tool is to be called, and which.
type ToolChoice struct {
	Mode string // auto, none, required, or empty
	Name string // set when one tool is named
}

// UnmarshalJSONFrom reads a mode or an object that names a function.
func (c *ToolChoice) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*c = ToolChoice{}
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '"':
		return json.UnmarshalDecode(d, &c.Mode)
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.UnmarshalDecode(d, &named); err != nil {
		return err
	}
	c.Name = named.Function.Name
	return nil
}

// Prompt is a text or a list of token ids.
type Prompt struct {
	Text  string
	IDs   []uint32
	IsIDs bool
	Given bool
}

// UnmarshalJSONFrom reads a string, a list of ids, or a list that holds exactly
// one of them.
func (p *Prompt) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*p = Prompt{}
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '"':
		p.Given = true
		return json.UnmarshalDecode(d, &p.Text)
	}
	p.Given = true
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if json.Unmarshal(raw, &p.IDs) == nil {
		p.IsIDs = true
		return nil
	}
	var lists [][]uint32
	if json.Unmarshal(raw, &lists) == nil && len(lists) == 1 {
		p.IDs, p.IsIDs = lists[0], true
		return nil
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil && len(texts) == 1 {
		p.Text = texts[0]
		return nil
	}
	return errors.New("prompt is a string, a list of token ids, or a list of one such prompt")
}

// Function is an offered tool.
type Function struct {
	Name       string         `json:"name"`
	Parameters map[string]any `json:"parameters"`
}

// Functions reads the offered tools out of their JSON.
func Functions(raw jsontext.Value) ([]Function, error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return nil, nil
	}
	var tools []struct {
		Type     string   `json:"type"`
		Function Function `json:"function"`
	}
	if err := json.Unmarshal(raw, &tools, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, Wrong("tools", "%s", reason(err))
	}
	list := make([]Function, 0, len(tools))
	for i, t := range tools {
		if t.Function.Name == "" {
			return nil, Wrong("tools", "tool %d has no function name", i)
		}
		list = append(list, t.Function)
	}
	return list, nil
}

// Read decodes a body. Duplicate names are allowed and the last one wins, as in
// the engines that this stands in for.
func Read(body []byte, into any) *Failure {
	err := json.Unmarshal(body, into, jsontext.AllowDuplicateNames(true))
	if err == nil {
		return nil
	}
	return Wrong("", "%s", reason(err))
}

// reason words a decoding error without the names of Go types.
func reason(err error) string {
	var semantic *json.SemanticError
	if errors.As(err, &semantic) && semantic.JSONPointer != "" {
		if semantic.Err != nil {
			return fmt.Sprintf("%s: %v", semantic.JSONPointer, semantic.Err)
		}
		return fmt.Sprintf("%s must not be a JSON %v", semantic.JSONPointer, semantic.JSONKind)
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("the body is not valid JSON at byte %d", syntax.ByteOffset)
	}
	return "the body is not a JSON object of the expected form"
}
