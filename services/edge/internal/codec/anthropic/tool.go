package anthropic

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

type tool struct {
	Type        jsontext.Value `json:"type"`
	Name        jsontext.Value `json:"name"`
	Description jsontext.Value `json:"description"`
	Schema      jsontext.Value `json:"input_schema"`
	Strict      jsontext.Value `json:"strict"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

// served tells that a tool is run by Anthropic's service, or that its schema is
// known only there. No engine could offer it.
func (t *tool) served() bool {
	var kind string
	if t.Type.Kind() == '"' && json.Unmarshal(t.Type, &kind) != nil {
		return true
	}
	return kind != "" && kind != "custom" && t.Schema.Kind() != '{'
}

func tools(req *llm.Request, in *request) error {
	if len(in.Tools) > wire.ToolsMax {
		return fault.At("tools", "tools holds more than "+strconv.Itoa(wire.ToolsMax)+" tools")
	}
	dropped := map[string]bool{}
	for i := range in.Tools {
		t, field := &in.Tools[i], at("tools", i)
		if t.served() {
			if name, err := word(field, t.Name); err == nil {
				dropped[name] = true
			}
			continue
		}
		spec, err := t.spec(field)
		if err != nil {
			return err
		}
		req.Tools = append(req.Tools, spec)
	}
	return choose(req, in.ToolChoice, dropped)
}

func (t *tool) spec(field string) (llm.ToolSpec, error) {
	name, err := word(field+".name", t.Name)
	if err != nil {
		return llm.ToolSpec{}, err
	}
	if err := wire.ToolName(field+".name", name); err != nil {
		return llm.ToolSpec{}, err
	}
	spec := llm.ToolSpec{Name: name}
	description, err := wire.Text(field+".description", t.Description)
	if err != nil {
		return spec, err
	}
	if spec.Description, err = description.Decode(); err != nil {
		return spec, err
	}
	switch t.Schema.Kind() {
	case '{':
		if spec.Schema, err = wire.Keep(field+".input_schema", t.Schema); err != nil {
			return spec, err
		}
	case 'n', 0:
	default:
		return spec, fault.At(field+".input_schema", field+".input_schema must be an object")
	}
	switch t.Strict.Kind() {
	case 't', 'f':
		spec.Extra = append(spec.Extra, llm.Field{Name: "strict", Value: bytes.Clone(t.Strict)})
	}
	return spec, nil
}

// choose says which tools the model may call. A choice that only dropped tools
// could meet is left to the model.
func choose(req *llm.Request, c *toolChoice, dropped map[string]bool) error {
	if c == nil {
		return nil
	}
	word := ""
	switch c.Type {
	case "auto", "none":
		word = c.Type
	case "any":
		word = "required"
	case "tool":
		for i := range req.Tools {
			if req.Tools[i].Name == c.Name {
				req.Choice, req.ChoiceName = "tool", c.Name
				return nil
			}
		}
		if !dropped[c.Name] {
			return fault.At("tool_choice.name", "tool_choice.name must be the name of one of tools")
		}
		word = "auto"
	default:
		return fault.At("tool_choice.type", "tool_choice.type must be auto, any, tool or none")
	}
	if len(req.Tools) > 0 {
		req.Choice = word
	}
	return nil
}
