package script

import (
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Schema is a JSON Schema, decoded. The simulator follows the parts that make a
// value valid most of the time: type, enum, const, required, items, bounds,
// anyOf, oneOf and references within the document. It does not follow pattern,
// format, not or conditions.
type Schema map[string]any

// Tool is an offered function.
type Tool struct {
	Name   string
	Schema Schema
}

// depthMax ends schemas that refer to themselves.
const depthMax = 24

// fill writes a JSON value of the schema. Strings are taken from the words of
// the prompt, so that arguments show where they came from.
func fill(s Schema, prompt string, seed uint64) string {
	f := filler{root: s, words: promptWords(prompt), seed: seed}
	if len(s) == 0 {
		return "{}"
	}
	out, err := json.Marshal(f.value(s, 0), json.Deterministic(true))
	if err != nil {
		// Every value below is made of plain maps, lists and finite numbers.
		return "{}"
	}
	return string(out)
}

// bigArgs puts n bytes into the first text property, or into one named content.
func bigArgs(s Schema, n int) string {
	props, _ := s["properties"].(map[string]any)
	key := "content"
	for _, name := range required(s, props) {
		if p, _ := props[name].(map[string]any); p["type"] == "string" {
			key = name
			break
		}
	}
	return `{"` + key + `":"` + strings.Repeat("x", n) + `"}`
}

type filler struct {
	root  Schema
	words []string
	seed  uint64
	drawn uint64
}

func (f *filler) next() uint64 {
	f.drawn++
	return split(f.seed, f.drawn)
}

func (f *filler) value(s Schema, depth int) any {
	if depth > depthMax {
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		return f.value(f.resolve(ref), depth+1)
	}
	if c, ok := s["const"]; ok {
		return c
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[f.next()%uint64(len(list))]
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			first, _ := list[0].(map[string]any)
			return f.value(first, depth+1)
		}
	}
	switch kind(s) {
	case "object":
		return f.object(s, depth)
	case "array":
		return f.array(s, depth)
	case "string":
		return f.text(s)
	case "integer", "number":
		return f.number(s)
	case "boolean":
		return true
	}
	return nil
}

// kind finds the type to make: the first that is not null, or what the other
// members imply.
func kind(s Schema) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok && name != "null" {
				return name
			}
		}
		return "null"
	}
	if s["items"] != nil {
		return "array"
	}
	if s["properties"] != nil {
		return "object"
	}
	return "string"
}

func (f *filler) object(s Schema, depth int) any {
	props, _ := s["properties"].(map[string]any)
	out := make(map[string]any)
	for _, name := range required(s, props) {
		prop, _ := props[name].(map[string]any)
		out[name] = f.value(prop, depth+1)
	}
	return out
}

// required lists the properties to fill: those that are required, or all of
// them when the schema requires none.
func required(s Schema, props map[string]any) []string {
	var names []string
	list, _ := s["required"].([]any)
	for _, one := range list {
		if name, ok := one.(string); ok {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		return names
	}
	for name := range props {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *filler) array(s Schema, depth int) any {
	// A list longer than this asks for more than a test needs.
	const itemsMax = 64
	least, _ := s["minItems"].(float64)
	items, _ := s["items"].(map[string]any)
	out := make([]any, 0, 1)
	for range int(max(1, min(least, itemsMax))) {
		out = append(out, f.value(items, depth+1))
	}
	return out
}

func (f *filler) text(s Schema) string {
	word := "text"
	if len(f.words) > 0 {
		word = f.words[f.next()%uint64(len(f.words))]
	}
	const lengthMax = 1 << 16
	if least, ok := s["minLength"].(float64); ok && float64(len(word)) < least {
		word += strings.Repeat("x", int(min(least, lengthMax))-len(word))
	}
	if most, ok := s["maxLength"].(float64); ok && most >= 0 && float64(len(word)) > most {
		word = word[:int(most)]
	}
	return word
}

func (f *filler) number(s Schema) any {
	n := float64(1 + f.next()%9)
	if least, ok := s["minimum"].(float64); ok && n < least {
		n = math.Ceil(least)
	}
	if least, ok := s["exclusiveMinimum"].(float64); ok && n <= least {
		n = math.Floor(least) + 1
	}
	if most, ok := s["maximum"].(float64); ok && n > most {
		n = math.Floor(most)
	}
	return n
}

// resolve follows a reference such as "#/$defs/Point" within the document.
func (f *filler) resolve(ref string) Schema {
	at := map[string]any(f.root)
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	for _, name := range strings.Split(path, "/") {
		at, ok = at[name].(map[string]any)
		if !ok {
			return nil
		}
	}
	return at
}

// promptWords are the plain words of the prompt's beginning, of some length.
func promptWords(prompt string) []string {
	const look, keep = 4096, 64
	if len(prompt) > look {
		prompt = prompt[:look]
	}
	var out []string
	for _, w := range strings.FieldsFunc(prompt, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		if len(w) > 2 && len(out) < keep {
			out = append(out, w)
		}
	}
	return out
}
