// Package llm is the product's own model of one text exchange: what is asked
// (Request), what happens (Event, taken by a Sink) and what comes of it
// (Response, made by Fold). It is no vendor's wire format: codecs and engines
// translate to and from it. Prices, keys, subjects and HTTP do not live here.
// What the platform reads has a field; what only an engine reads travels
// verbatim in Extra. Types that hold text print as sizes, so content cannot
// reach a log by accident.
package llm

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"unicode/utf8"
)

// Role says who speaks in an Item.
type Role string

const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Field is one member that the platform does not read, kept byte for byte.
type Field struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// Request is one exchange as asked. Model is a catalogue id, never the
// caller's spelling.
type Request struct {
	Model string     `json:"model"`
	Items []Item     `json:"items"`
	Tools []ToolSpec `json:"tools,omitzero"`
	// Raw is the prompt of a request without Items and Tools, nil for a chat.
	Raw *Raw `json:"raw,omitzero"`
	// Choice is "", "auto", "none", "required" or "tool"; with "tool",
	// ChoiceName names the only tool allowed.
	Choice     string `json:"choice,omitzero"`
	ChoiceName string `json:"choice_name,omitzero"`
	// MaxTokens bounds the output; zero means that the caller set none.
	MaxTokens int64 `json:"max_tokens,omitzero"`
	// Logprobs asks for log-probabilities of generated tokens, with
	// TopLogprobs alternatives each.
	Logprobs    bool `json:"logprobs,omitzero"`
	TopLogprobs int  `json:"top_logprobs,omitzero"`
	// Policy limits which workers may serve. It never reaches an engine.
	Policy Policy  `json:"-"`
	Extra  []Field `json:"extra,omitzero"`
	// Stream tells that the caller reads the answer as it is made; else its
	// pieces may wait for each other on the way.
	Stream bool `json:"stream,omitzero"`
	// Effort is how hard the model shall think, as the caller said it: a tier, or
	// another word. Thinking is "", "enabled" or "disabled". What a model's template
	// wants to hear of them is written into Extra at the edge.
	Effort   string `json:"-"`
	Thinking string `json:"-"`
	// IncludeUsage and Spelling say how the caller wants the answer written, and
	// stay at the edge.
	IncludeUsage bool   `json:"-"`
	Spelling     string `json:"-"`
	// PromptTokens is the estimate of the prompt, set when the request is admitted,
	// for answers that name a count before the engine has.
	PromptTokens int64 `json:"-"`
	// CacheKey is the caller's name for requests that begin alike.
	CacheKey string `json:"-"`
	// Note is what the codec that read the request needs to write the answer.
	// Nobody else reads it.
	Note any `json:"-"`
}

// Item is one turn of the conversation, or a tool's answer.
type Item struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts,omitzero"`
	// Reasoning is what the assistant thought, sent back by the caller.
	Reasoning string `json:"reasoning,omitzero"`
	// Calls are the tool calls that the assistant made in this turn.
	Calls []Call `json:"calls,omitzero"`
	// CallID names the call that a Tool item answers.
	CallID string  `json:"call_id,omitzero"`
	Name   string  `json:"name,omitzero"`
	Extra  []Field `json:"extra,omitzero"`
}

// Part is a piece of an item: text, or inline media.
type Part struct {
	Text Verbatim `json:"text,omitzero"`
	// Media is set for everything that is not text.
	Media *Media `json:"media,omitzero"`
}

// Media is an inline image or sound, base64 as it came.
type Media struct {
	// Kind is a modality: "image" or "audio".
	Kind string `json:"kind"`
	// Type is the media type, such as "image/png".
	Type string `json:"type"`
	Data Base64 `json:"data"`
}

// Call is one finished tool call. Arguments is JSON text, which may be cut
// short when the output limit struck.
type Call struct {
	ID        string `json:"id,omitzero"`
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitzero"`
}

// ToolSpec is a tool that the model may call. Schema keeps its member order,
// which prefix caches of engines depend on.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Schema      json.RawMessage `json:"schema,omitzero"`
	Extra       []Field         `json:"extra,omitzero"`
}

// Policy is what the caller requires of workers and of us.
type Policy struct {
	ZDR           bool
	Proof         bool
	RegionOnly    []string
	RegionExclude []string
	// Collect is the caller's word on data collection: "", "allow" or "deny".
	Collect string
}

// Chars counts the characters of all text that the model will read, tools
// included, and the number of media parts. Estimates are made from it. Token ids
// are no text; Raw counts them.
func (r *Request) Chars() (chars, media int) {
	if r.Raw != nil {
		chars = r.Raw.Text.Chars()
	}
	for i := range r.Items {
		it := &r.Items[i]
		chars += utf8.RuneCountInString(it.Reasoning) + utf8.RuneCountInString(it.Name)
		for j := range it.Parts {
			if it.Parts[j].Media != nil {
				media++
				continue
			}
			chars += it.Parts[j].Text.Chars()
		}
		for _, c := range it.Calls {
			chars += utf8.RuneCountInString(c.Name) + utf8.RuneCountInString(c.Arguments)
		}
	}
	for _, t := range r.Tools {
		chars += utf8.RuneCountInString(t.Name) + utf8.RuneCountInString(t.Description) + len(t.Schema)
	}
	return chars, media
}

// String gives sizes only.
func (r *Request) String() string {
	chars, media := r.Chars()
	if r.Raw != nil {
		return fmt.Sprintf("request(%s, %s)", r.Model, r.Raw)
	}
	return fmt.Sprintf("request(%s, %d items, %d chars, %d media)", r.Model, len(r.Items), chars, media)
}

// LogValue keeps content out of logs.
func (r *Request) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String gives sizes only.
func (it Item) String() string {
	return fmt.Sprintf("item(%s, %d parts, %d calls)", it.Role, len(it.Parts), len(it.Calls))
}

// LogValue keeps content out of logs.
func (it Item) LogValue() slog.Value { return slog.StringValue(it.String()) }

// String gives sizes only.
func (p Part) String() string {
	if p.Media != nil {
		return fmt.Sprintf("media(%s, %d base64 bytes)", p.Media.Type, len(p.Media.Data))
	}
	return p.Text.String()
}

// LogValue keeps content out of logs.
func (p Part) LogValue() slog.Value { return slog.StringValue(p.String()) }
