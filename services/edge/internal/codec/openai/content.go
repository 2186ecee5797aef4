package openai

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// content is a string, a list of parts, or null. Some clients put blocks of
// Anthropic's protocol among the parts: thoughts, calls, and results of calls.
type content struct {
	parts    []llm.Part
	thoughts []string
	calls    []llm.Call
	results  []llm.Item
}

type part struct {
	Type     string      `json:"type"`
	Text     wire.Raw    `json:"text"`
	Refusal  wire.Raw    `json:"refusal"`
	ImageURL wire.Raw    `json:"image_url"`
	Audio    *inputAudio `json:"input_audio"`

	// The rest belongs to Anthropic's blocks.
	Source    *source        `json:"source"`
	Thinking  string         `json:"thinking"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID string         `json:"tool_use_id"`
	Content   *content       `json:"content"`
	IsError   bool           `json:"is_error"`
}

type source struct {
	Type      string     `json:"type"`
	MediaType string     `json:"media_type"`
	Data      llm.Base64 `json:"data"`
}

type inputAudio struct {
	Data   llm.Base64 `json:"data"`
	Format string     `json:"format"`
}

// UnmarshalJSONFrom reads any of the three forms.
func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case '"':
		text, err := dec.ReadValue()
		if err != nil {
			return err
		}
		c.parts = []llm.Part{{Text: llm.Verbatim(text)}}
		return nil
	case '[':
		var parts []part
		if err := json.UnmarshalDecode(dec, &parts); err != nil {
			return err
		}
		c.parts = make([]llm.Part, 0, len(parts))
		for i := range parts {
			if parts[i].blank() {
				at := wire.FieldName(dec.StackPointer()) + "[" + strconv.Itoa(i) + "]"
				return fault.At(at, at+" must be a part with a type")
			}
			if err := c.take(&parts[i]); err != nil {
				return err
			}
		}
		if len(c.parts) == 0 {
			c.parts = nil
		}
		return nil
	case 'n':
		return dec.SkipValue()
	}
	return fault.At("messages", "content must be a string, a list of parts, or null")
}

// blank tells that a part says nothing of what it is. One without a type is a text,
// as some clients send it, if it has one; null reads as an empty object does.
func (p *part) blank() bool {
	return p.Type == "" && (len(p.Text) == 0 || p.Text.Kind() == 'n')
}

// textPart keeps a text as it came.
func textPart(raw wire.Raw) (llm.Part, error) {
	switch raw.Kind() {
	case '"':
		return llm.Part{Text: llm.Verbatim(raw)}, nil
	case 'n', 0:
		return llm.Part{}, nil
	}
	return llm.Part{}, fault.At("messages", "the text of a part must be a string")
}

func (c *content) take(p *part) error {
	var made llm.Part
	var err error
	switch p.Type {
	case "text", "input_text", "output_text", "":
		made, err = textPart(p.Text)
	case "refusal":
		made, err = textPart(p.Refusal)
	case "image_url", "input_image":
		made.Media, err = image(p.ImageURL)
	case "input_audio":
		if p.Audio == nil {
			return fault.At("messages", "input_audio needs base64 data and a format")
		}
		made.Media, err = wire.Audio("messages", p.Audio.Format, p.Audio.Data)
	case "image":
		if p.Source == nil || p.Source.Type != "base64" {
			return fault.At("messages", "the source of an image must be base64; addresses are not fetched")
		}
		made.Media, err = wire.Image("messages", p.Source.MediaType, p.Source.Data)
	case "thinking":
		c.thoughts = append(c.thoughts, p.Thinking)
		return nil
	case "redacted_thinking":
		return nil
	case "tool_use":
		call, err := called{Name: p.Name, Arguments: p.Input}.internal(p.ID)
		c.calls = append(c.calls, call)
		return err
	case "tool_result":
		c.results = append(c.results, p.result())
		return nil
	default:
		return fault.At("messages", "content part of an unknown type")
	}
	c.parts = append(c.parts, made)
	return err
}

// result is the answer to a call. That it is an error is said in words: engines
// have no field for it.
func (p *part) result() llm.Item {
	it := llm.Item{Role: llm.Tool, CallID: p.ToolUseID}
	if p.IsError {
		it.Parts = append(it.Parts, llm.Part{Text: llm.NewVerbatim("Error: ")})
	}
	if p.Content != nil {
		it.Parts = append(it.Parts, p.Content.parts...)
	}
	return it
}

// image reads an inline image, with its address in an object or bare.
func image(raw wire.Raw) (*llm.Media, error) {
	if raw.Kind() == '"' {
		return wire.DataURI("messages", raw)
	}
	var object struct {
		URL wire.Raw `json:"url"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &object) != nil {
		return nil, fault.At("messages", "image_url must be an object with a url")
	}
	return wire.DataURI("messages", object.URL)
}
