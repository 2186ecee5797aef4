package anthropic

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// content is a string or a list of blocks. Other forms occur in blocks that are
// ignored; they are an error only where content is read.
type content struct {
	kind   jsontext.Kind // '"', '[', 'n', 0 when absent, '?' for anything else
	text   llm.Verbatim
	blocks []block
}

// block is one block of content. Only its type tells what its members mean, so
// they are read when it is known.
type block struct {
	Type      string         `json:"type"`
	Text      wire.Raw       `json:"text"`
	Thinking  wire.Raw       `json:"thinking"`
	Source    wire.Raw       `json:"source"`
	ID        jsontext.Value `json:"id"`
	Name      jsontext.Value `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID jsontext.Value `json:"tool_use_id"`
	IsError   jsontext.Value `json:"is_error"`
	ToolName  jsontext.Value `json:"tool_name"`
	Content   content        `json:"content"`
	// odd is set for what is no object.
	odd bool
}

// UnmarshalJSONFrom reads any form.
func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch c.kind = dec.PeekKind(); c.kind {
	case '"':
		text, err := dec.ReadValue()
		c.text = llm.Verbatim(text)
		return err
	case '[':
		return json.UnmarshalDecode(dec, &c.blocks)
	case 'n':
		return dec.SkipValue()
	}
	c.kind = '?'
	return dec.SkipValue()
}

// UnmarshalJSONFrom reads a block, and passes over what is none.
func (b *block) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if b.odd = dec.PeekKind() != '{'; b.odd {
		return dec.SkipValue()
	}
	type plain block
	return json.UnmarshalDecode(dec, (*plain)(b))
}

// check refuses content of the wrong form.
func (c *content) check(field string) error {
	if c.kind == '?' {
		return fault.At(field, field+" must be a string or a list of blocks")
	}
	for i := range c.blocks {
		if c.blocks[i].odd {
			return fault.At(at(field, i), at(field, i)+" must be an object")
		}
	}
	return nil
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// word reads a short text that must not be empty.
func word(field string, raw jsontext.Value) (string, error) {
	var s string
	if raw.Kind() != '"' || json.Unmarshal(raw, &s) != nil || s == "" {
		return "", fault.At(field, field+" must be a string that is not empty")
	}
	return s, nil
}

// add appends a text. Empty ones say nothing, and some templates stumble over
// them.
func add(parts []llm.Part, field string, raw wire.Raw) ([]llm.Part, error) {
	text, err := wire.Text(field, raw)
	if err != nil || text.Empty() {
		return parts, err
	}
	return append(parts, llm.Part{Text: text}), nil
}

// system reads instructions: text only. Ones that stand between messages stay
// in their place.
func system(req *llm.Request, field string, c *content) error {
	if err := c.check(field); err != nil {
		return err
	}
	var parts []llm.Part
	if !c.text.Empty() {
		parts = []llm.Part{{Text: c.text}}
	}
	for i := range c.blocks {
		var err error
		if b := &c.blocks[i]; b.Type == "text" {
			if parts, err = add(parts, at(field, i)+".text", b.Text); err != nil {
				return err
			}
		}
	}
	if len(parts) > 0 {
		req.Items = append(req.Items, llm.Item{Role: llm.System, Parts: parts})
	}
	return nil
}

// user reads a user's turn. Results of tools come before what the user says:
// they answer the turn before.
func user(req *llm.Request, field string, c *content) error {
	if err := c.check(field); err != nil {
		return err
	}
	if c.kind != '"' && len(c.blocks) == 0 {
		return fault.At(field, field+" is missing")
	}
	it := llm.Item{Role: llm.User}
	if c.kind == '"' {
		it.Parts = []llm.Part{{Text: c.text}}
	}
	results := false
	for i := range c.blocks {
		b := &c.blocks[i]
		if b.Type == "tool_result" {
			results = true
			if err := result(req, at(field, i), b); err != nil {
				return err
			}
			continue
		}
		var err error
		if it.Parts, err = b.shown(it.Parts, at(field, i)); err != nil {
			return err
		}
	}
	if len(it.Parts) > 0 || !results {
		req.Items = append(req.Items, it)
	}
	return nil
}

// shown appends what a model can be shown of a block: text and images. Other
// kinds are ignored.
func (b *block) shown(parts []llm.Part, field string) ([]llm.Part, error) {
	switch b.Type {
	case "text":
		return add(parts, field+".text", b.Text)
	case "image":
		media, err := image(field+".source", b.Source)
		if err != nil {
			return nil, err
		}
		return append(parts, llm.Part{Media: media}), nil
	}
	return parts, nil
}

// image reads an inline image. Addresses are never fetched, so they are refused.
func image(field string, raw wire.Raw) (*llm.Media, error) {
	var source struct {
		Type string     `json:"type"`
		Kind string     `json:"media_type"`
		Data llm.Base64 `json:"data"`
	}
	if raw.Kind() != '{' || json.Unmarshal(raw, &source) != nil {
		return nil, fault.At(field, field+" must be an object with a type, a media_type and data")
	}
	if source.Type != "base64" {
		return nil, fault.At(field, field+" must be of type base64: images are inline, addresses are not fetched")
	}
	return wire.Image(field, source.Kind, source.Data)
}

// result reads a tool's answer. It always becomes one, whatever it holds: a call
// without an answer breaks chat templates.
func result(req *llm.Request, field string, b *block) error {
	id, err := word(field+".tool_use_id", b.ToolUseID)
	if err != nil {
		return err
	}
	c := &b.Content
	if err := c.check(field + ".content"); err != nil {
		return err
	}
	it := llm.Item{Role: llm.Tool, CallID: inward(id)}
	if !c.text.Empty() {
		it.Parts = []llm.Part{{Text: c.text}}
	}
	hidden := ""
	for i := range c.blocks {
		in := &c.blocks[i]
		switch in.Type {
		case "text", "image":
			if it.Parts, err = in.shown(it.Parts, at(field+".content", i)); err != nil {
				return err
			}
		case "tool_reference":
			// A search for tools answers with names only, and the tools follow in
			// the list of tools.
			if name, err := word("", in.ToolName); err == nil {
				it.Parts = append(it.Parts, llm.Part{Text: llm.NewVerbatim("Tool found: " + name)})
				continue
			}
			hidden = in.Type
		default:
			hidden = in.Type
		}
	}
	if len(it.Parts) == 0 && hidden != "" {
		it.Parts = []llm.Part{{Text: llm.NewVerbatim("(The result has no text. It holds: " + wire.Short(hidden) + ")")}}
	}
	if b.IsError.Kind() == 't' {
		it.Parts = failed(it.Parts)
	}
	req.Items = append(req.Items, it)
	return nil
}

// failed marks a result as an error, in words: engines have no field for it.
func failed(parts []llm.Part) []llm.Part {
	if len(parts) == 0 || parts[0].Media != nil {
		return append([]llm.Part{{Text: llm.NewVerbatim("Error")}}, parts...)
	}
	if text := parts[0].Text; !bytes.HasPrefix(bytes.ToLower(text[:min(len(text), 6)]), []byte(`"error`)) {
		parts[0].Text = append([]byte(`"Error: `), text[1:]...)
	}
	return parts
}

// assistant reads a turn of the model that the client sends back.
func assistant(req *llm.Request, field string, c *content) error {
	if err := c.check(field); err != nil {
		return err
	}
	it := llm.Item{Role: llm.Assistant}
	if !c.text.Empty() {
		it.Parts = []llm.Part{{Text: c.text}}
	}
	var thoughts strings.Builder
	for i := range c.blocks {
		b := &c.blocks[i]
		var err error
		switch b.Type {
		case "text":
			it.Parts, err = add(it.Parts, at(field, i)+".text", b.Text)
		case "thinking":
			err = b.thought(&thoughts, at(field, i)+".thinking")
		case "tool_use":
			err = b.call(&it, at(field, i))
		}
		if err != nil {
			return err
		}
	}
	it.Reasoning = thoughts.String()
	req.Items = append(req.Items, it)
	return nil
}

func (b *block) thought(to *strings.Builder, field string) error {
	raw, err := wire.Text(field, b.Thinking)
	if err != nil {
		return err
	}
	text, err := raw.Decode()
	to.WriteString(text)
	return err
}

func (b *block) call(it *llm.Item, field string) error {
	id, err := word(field+".id", b.ID)
	if err != nil {
		return err
	}
	name, err := word(field+".name", b.Name)
	if err != nil {
		return err
	}
	if err := wire.ToolName(field+".name", name); err != nil {
		return err
	}
	call := llm.Call{ID: inward(id), Name: name}
	switch b.Input.Kind() {
	case '{':
		kept, err := wire.Keep(field+".input", b.Input)
		if err != nil {
			return err
		}
		call.Arguments = string(kept)
	case '"':
		// What a cut call looks like in a whole answer. Templates want an object.
		call.Arguments = `{"partial":` + string(b.Input) + `}`
	case 'n', 0:
		call.Arguments = "{}"
	default:
		// What a model made of a call that takes no object; it comes back as it went.
		call.Arguments = string(b.Input)
	}
	it.Calls = append(it.Calls, call)
	return nil
}
