package responses

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// tool is what a call of a tool looks like to the caller.
type tool struct {
	// item is the kind of item of a call.
	item string
	// name and namespace are the caller's own.
	name, namespace string
}

const (
	functionCall = "function_call"
	customCall   = "custom_tool_call"
)

// builtin is a tool that the caller runs and whose form the protocol fixes. To the
// model it is a function, whose arguments are the call's member.
type builtin struct {
	kind, item, member string
	name, description  string
	schema             string
}

// builtins lists them. The names of the schemas' members are the protocol's.
func builtins() []builtin {
	return []builtin{
		{
			kind: "local_shell", item: "local_shell_call", member: "action", name: "local_shell",
			description: "Runs a command on the user's machine and gives its output.",
			schema: `{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},` +
				`"description":"The program and its arguments."},"working_directory":{"type":"string"},` +
				`"timeout_ms":{"type":"integer"}},"required":["command"]}`,
		},
		{
			kind: "shell", item: "shell_call", member: "action", name: "shell",
			description: "Runs shell commands and gives the output of each.",
			schema: `{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}},` +
				`"timeout_ms":{"type":"integer"},"max_output_length":{"type":"integer"}},"required":["commands"]}`,
		},
		{
			kind: "apply_patch", item: "apply_patch_call", member: "operation", name: "apply_patch",
			description: "Creates, changes or deletes one file. The diff is in the V4A format.",
			schema: `{"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},` +
				`"path":{"type":"string"},"diff":{"type":"string","description":"Left out to delete."}},"required":["type","path"]}`,
		},
	}
}

// builtinOf finds a built-in tool by the kind of its calls.
func builtinOf(item string) (builtin, bool) {
	for _, b := range builtins() {
		if b.item == item {
			return b, true
		}
	}
	return builtin{}, false
}

// arguments gives the call's member as the model wrote it.
func (b builtin) arguments(field string, raw jsontext.Value) (string, error) {
	if raw.Kind() != '{' {
		return "", fault.At(field, field+" must be an object")
	}
	if b.kind != "local_shell" {
		return string(raw), nil
	}
	out := []byte("{")
	err := wire.Members(raw, func(name string, value jsontext.Value) error {
		if name == "type" || value.Kind() == 'n' || name == "env" && string(value) == "{}" {
			return nil
		}
		out = append(member(out, name), value...)
		return nil
	})
	return string(append(out, '}')), err
}

// member writes the name of the next member.
func member(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(wire.Quote(b, name), ':')
}

// call gives the member of a call from the model's arguments, and whether they are
// an object at all.
func (b builtin) call(arguments string) ([]byte, bool) {
	raw := jsontext.Value(arguments)
	if raw.Compact() != nil || raw.Kind() != '{' {
		return nil, false
	}
	if b.kind != "local_shell" {
		return raw, true
	}
	env := []byte("{}")
	out := []byte(`{"type":"exec"`)
	err := wire.Members(raw, func(name string, value jsontext.Value) error {
		switch name {
		case "type":
		case "env":
			env = bytes.Clone(value)
		default:
			out = append(member(out, name), value...)
		}
		return nil
	})
	return append(append(member(out, "env"), env...), '}'), err == nil
}

type wireTool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      jsontext.Value `json:"strict"`
	Format      jsontext.Value `json:"format"`
	Environment jsontext.Value `json:"environment"`
	Tools       jsontext.Value `json:"tools"`
	// Function is the nested form of Chat Completions, which some clients send.
	Function *wireTool `json:"function"`
}

// qualified is how the model knows a tool of a namespace.
func qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.TrimRight(namespace, "_") + "__" + strings.TrimLeft(name, "_")
}

// tools reads the tools and the choice among them.
func tools(req *llm.Request, n *note, in *request) error {
	n.tools = map[string]tool{}
	if err := declare(req, n, "tools", "", in.Tools); err != nil {
		return err
	}
	return choice(req, in.ToolChoice)
}

func declare(req *llm.Request, n *note, field, namespace string, raw jsontext.Value) error {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return nil
	}
	var list []wireTool
	if raw.Kind() != '[' || json.Unmarshal(raw, &list) != nil {
		return fault.At(field, field+" must be a list of tools")
	}
	for i := range list {
		t, at := &list[i], field+"["+strconv.Itoa(i)+"]"
		var err error
		switch t.Type {
		case "function", "custom":
			err = t.declare(req, n, at, namespace)
		case "namespace":
			if namespace != "" {
				return fault.At(at+".type", "a namespace holds no namespaces")
			}
			if err = wire.ToolName(at+".name", t.Name); err == nil {
				err = declare(req, n, at+".tools", t.Name, t.Tools)
			}
		default:
			err = t.builtin(req, n)
		}
		if err != nil {
			return err
		}
		if len(req.Tools) > wire.ToolsMax {
			return fault.At("tools", "tools holds more than "+strconv.Itoa(wire.ToolsMax)+" tools")
		}
	}
	return nil
}

// declare adds a function, or a custom tool as a function with one text.
func (t *wireTool) declare(req *llm.Request, n *note, at, namespace string) error {
	f := t
	if t.Function != nil {
		f = t.Function
	}
	spec := llm.ToolSpec{Name: qualified(namespace, f.Name), Description: f.Description}
	for _, name := range []string{f.Name, spec.Name} {
		if err := wire.ToolName(at+".name", name); err != nil {
			return err
		}
	}
	made := tool{item: functionCall, name: f.Name, namespace: namespace}
	if t.Type == "custom" {
		made.item = customCall
		if err := t.custom(&spec, at); err != nil {
			return err
		}
	} else if f.Parameters.Kind() == '{' {
		schema, err := wire.Keep(at+".parameters", f.Parameters)
		if err != nil {
			return err
		}
		spec.Schema = schema
	}
	if k := f.Strict.Kind(); k == 't' || k == 'f' {
		spec.Extra = append(spec.Extra, llm.Field{Name: "strict", Value: bytes.Clone(f.Strict)})
	}
	n.add(req, spec, made)
	return nil
}

// add keeps a tool. Of two with one name the first is the one that is restored.
func (n *note) add(req *llm.Request, spec llm.ToolSpec, t tool) {
	req.Tools = append(req.Tools, spec)
	if _, taken := n.tools[spec.Name]; !taken {
		n.tools[spec.Name] = t
	}
}

// custom describes a tool that takes a text. Its grammar is told to the model,
// since no engine enforces it.
func (t *wireTool) custom(spec *llm.ToolSpec, at string) error {
	var format struct {
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`
	}
	if len(t.Format) > 0 && json.Unmarshal(t.Format, &format) != nil {
		return fault.At(at+".format", at+".format must be an object")
	}
	if format.Definition != "" {
		spec.Description = strings.TrimSpace(spec.Description + "\n\nThe input must match this " +
			format.Syntax + " grammar:\n" + format.Definition)
	}
	spec.Schema = []byte(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`)
	return nil
}

// builtin adds a tool that the caller runs. Hosted tools are left out: nobody
// here runs them.
func (t *wireTool) builtin(req *llm.Request, n *note) error {
	for _, b := range builtins() {
		if b.kind != t.Type {
			continue
		}
		var where struct {
			Type string `json:"type"`
		}
		if len(t.Environment) > 0 && json.Unmarshal(t.Environment, &where) != nil {
			return fault.At("tools", "the environment of a tool must be an object")
		}
		if where.Type != "" && where.Type != "local" {
			return nil // a container of another platform
		}
		n.add(req, llm.ToolSpec{Name: b.name, Description: b.description, Schema: []byte(b.schema)}, tool{item: b.item, name: b.name})
	}
	return nil
}

type wireChoice struct {
	Type      string       `json:"type"`
	Name      string       `json:"name"`
	Namespace string       `json:"namespace"`
	Function  *wireChoice  `json:"function"`
	Mode      string       `json:"mode"`
	Tools     []wireChoice `json:"tools"`
}

// model gives the name that the model knows, empty for tools that were left out.
func (c *wireChoice) model() string {
	if c.Function != nil {
		return qualified(c.Function.Namespace, c.Function.Name)
	}
	for _, b := range builtins() {
		if b.kind == c.Type {
			return b.name
		}
	}
	return qualified(c.Namespace, c.Name)
}

func choice(req *llm.Request, raw jsontext.Value) error {
	bad := fault.At("tool_choice", "tool_choice must be auto, none, required, or name tools of the request")
	var c wireChoice
	switch raw.Kind() {
	case 'n', 0:
		return nil
	case '"':
		var word string
		if json.Unmarshal(raw, &word) != nil || !openai.Choose(req, word) {
			return bad
		}
		return nil
	case '{':
		if json.Unmarshal(raw, &c) != nil {
			return bad
		}
	default:
		return bad
	}
	switch c.Type {
	case "allowed_tools":
		return allow(req, &c, bad)
	case "function", "custom", "local_shell", "shell", "apply_patch":
		if name := c.model(); hasTool(req, name) {
			req.Choice, req.ChoiceName = "tool", name
			return nil
		}
		return bad
	case "auto", "none", "required", "any":
		openai.Choose(req, c.Type)
	}
	// A hosted tool was left out, so it cannot be called.
	return nil
}

func hasTool(req *llm.Request, name string) bool {
	return slices.ContainsFunc(req.Tools, func(t llm.ToolSpec) bool { return t.Name == name })
}

// allow leaves only the tools that may be called. When all of them were left out
// before, there is none to call.
func allow(req *llm.Request, c *wireChoice, bad error) error {
	if c.Mode == "" {
		c.Mode = "auto"
	}
	if c.Mode != "auto" && c.Mode != "required" {
		return bad
	}
	allowed := map[string]bool{}
	for i := range c.Tools {
		allowed[c.Tools[i].model()] = true
	}
	req.Tools = slices.DeleteFunc(req.Tools, func(t llm.ToolSpec) bool { return !allowed[t.Name] })
	if len(req.Tools) == 0 {
		req.Tools, c.Mode = nil, "none"
	}
	req.Choice = c.Mode
	return nil
}
