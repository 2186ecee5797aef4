// Package dialect says a caller's reasoning effort in the words of a model
// family: every chat template reads its own switch and its own levels, and takes
// another's word for its loudest one or fails. The table below is all there is to
// know; to add a family, add a row. Differences between engines that serve the
// same family are the worker's engine adapters', and what a caller may send is
// the codecs'.
package dialect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Kwargs is the member of a request that templates are given, and Effort, Switch
// and OtherSwitch are its members that concern reasoning.
const (
	Kwargs      = "chat_template_kwargs"
	Effort      = "reasoning_effort"
	Switch      = "enable_thinking"
	OtherSwitch = "thinking"
)

// tiers are the caller's words, lowest first; the first two mean not to think.
func tiers() []string { return []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"} }

// Family is how one family of models is spoken to.
type Family struct {
	Name string
	// Switch is the template's switch for thinking, empty when it has none.
	Switch string
	// words are what the tiers from low to max are called; off is what none and
	// minimal are called where there is no switch.
	words [5]string
	off   string
}

// families is the table. The first is that of every model without a row.
func families() []Family {
	return []Family{
		{Name: "glm-5.2", Switch: Switch, words: [5]string{"high", "high", "high", "max", "max"}},
		// Its template has no switch; set one, and its thoughts come as the answer.
		{Name: "glm-5.3", words: [5]string{"low", "high", "high", "max", "max"}, off: "low"},
		{Name: "kimi-k3", Switch: OtherSwitch, words: [5]string{"low", "high", "high", "max", "max"}},
		{Name: "deepseek-v4", Switch: Switch, words: [5]string{"low", "high", "high", "max", "max"}},
		{Name: "deepseek-v4.1", Switch: OtherSwitch, words: [5]string{"low", "high", "high", "max", "max"}},
		{Name: "qwen3.8", Switch: Switch, words: [5]string{"low", "medium", "xhigh", "xhigh", "xhigh"}},
	}
}

// Of finds a family by its name, and gives that of every other model when there
// is none.
func Of(name string) Family {
	all := families()
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	return all[0]
}

// OfModel finds the family of a model by its id: the longest name that it begins
// with.
func OfModel(id string) Family {
	all := families()
	best := all[0]
	for _, f := range all {
		if strings.HasPrefix(strings.ToLower(id), f.Name) && (len(f.Name) > len(best.Name) || best.Name == all[0].Name) {
			best = f
		}
	}
	return best
}

// Say writes what the caller wants of effort and thinking into the template's
// arguments of the request. A switch or a word that the caller has put there
// itself wins over what is derived.
func (f Family) Say(req *llm.Request) error {
	at := slices.IndexFunc(req.Extra, func(x llm.Field) bool { return x.Name == Kwargs })
	var raw jsontext.Value
	if at >= 0 {
		raw = jsontext.Value(req.Extra[at].Value)
	}
	args, err := Members(raw)
	if err != nil {
		return fault.At(Kwargs, Kwargs+" must be an object")
	}
	args = slices.DeleteFunc(args, func(a llm.Field) bool { return reserved(a.Name) })
	thinks := f.switched(&args)
	f.level(&args, req, thinks)
	if len(args) == 0 {
		if at >= 0 {
			req.Extra = slices.Delete(slices.Clone(req.Extra), at, at+1)
		}
		return nil
	}
	field := llm.Field{Name: Kwargs, Value: Object(args)}
	// The caller's list stays as it is: another attempt may read it.
	req.Extra = slices.Clone(req.Extra)
	if at >= 0 {
		req.Extra[at] = field
	} else {
		req.Extra = append(req.Extra, field)
	}
	return nil
}

// reserved names what an engine hands to its template itself, or to the library
// that runs it: a caller's own template, above all, runs in everybody's engine.
func reserved(name string) bool {
	switch name = strings.ToLower(name); name {
	case "chat_template", "template", "messages", "conversation", "tools", "documents", "add_generation_prompt",
		"continue_final_message", "tokenize", "padding", "truncation", "max_length", "tokenizer_kwargs":
		return true
	}
	return strings.HasPrefix(name, "return_")
}

// switched gives the caller's switch the family's name, and tells what it says;
// nil when the caller set none.
func (f Family) switched(args *[]llm.Field) (thinks *bool) {
	read := func(name string) *bool {
		var b bool
		if v := get(*args, name); v == nil || json.Unmarshal(v, &b) != nil {
			return nil
		}
		return &b
	}
	switch f.Switch {
	case "":
		thinks = read(Switch)
		if other := read(OtherSwitch); other != nil {
			thinks = other
		}
		remove(args, Switch)
		remove(args, OtherSwitch)
	case OtherSwitch:
		if get(*args, OtherSwitch) != nil {
			remove(args, Switch)
		}
		for i := range *args {
			if (*args)[i].Name == Switch {
				(*args)[i].Name = OtherSwitch
			}
		}
		thinks = read(OtherSwitch)
	default:
		thinks = read(f.Switch)
	}
	return thinks
}

// level sets the word for the effort, or the switch when it is not to think.
func (f Family) level(args *[]llm.Field, req *llm.Request, thinks *bool) {
	tier := slices.Index(tiers(), strings.ToLower(req.Effort))
	off := req.Thinking == "disabled" || tier == 0 || tier == 1
	own := get(*args, Effort)
	if f.Switch == "" {
		// There is no off: the lowest level stands for it, also where the caller
		// has said it in the template's own arguments.
		switch {
		case own != nil && strings.EqualFold(string(own), `"none"`), own == nil && (off || thinks != nil && !*thinks):
			set(args, Effort, quoted(f.off))
			return
		}
	}
	switch {
	case own != nil:
	case off:
		if thinks == nil {
			set(args, f.Switch, []byte("false"))
		}
	case thinks != nil && !*thinks, req.Effort == "":
	case tier < 0:
		set(args, Effort, quoted(req.Effort))
	default:
		set(args, Effort, quoted(f.words[tier-2]))
	}
}

func quoted(word string) []byte {
	b, _ := jsontext.AppendQuote(nil, word)
	return b
}

// Members reads an object's members in their order. Null and nothing have none.
func Members(raw jsontext.Value) ([]llm.Field, error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return nil, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	token, err := dec.ReadToken()
	if err != nil || token.Kind() != '{' {
		return nil, fault.New(fault.Invalid, "not an object")
	}
	var fields []llm.Field
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, fault.New(fault.Invalid, "not an object")
		}
		field := llm.Field{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, fault.New(fault.Invalid, "not an object")
		}
		field.Value = bytes.Clone(value)
		fields = append(fields, field)
	}
	return fields, nil
}

// Object writes members in their order.
func Object(fields []llm.Field) []byte {
	b := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quoted(f.Name)...), ':')
		b = append(b, f.Value...)
	}
	return append(b, '}')
}

func get(fields []llm.Field, name string) []byte {
	for i := range fields {
		if fields[i].Name == name && string(fields[i].Value) != "null" {
			return fields[i].Value
		}
	}
	return nil
}

func set(fields *[]llm.Field, name string, value []byte) {
	remove(fields, name)
	*fields = append(*fields, llm.Field{Name: name, Value: value})
}

func remove(fields *[]llm.Field, name string) {
	*fields = slices.DeleteFunc(*fields, func(f llm.Field) bool { return f.Name == name })
}
