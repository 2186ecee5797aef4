package openaihttp

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/dialect"
	"github.com/engy-ai/engy/pkg/llm"
)

// spoken gives the members that only the engine reads, with what they say of
// effort and thinking where this kind looks for it. Requests come in the words of
// their model's family, as arguments of its template.
func (q *quirks) spoken(req *llm.Request) []llm.Field {
	if q.effort == nil {
		return req.Extra
	}
	for i := range req.Extra {
		if req.Extra[i].Name != dialect.Kwargs {
			continue
		}
		args, err := dialect.Members(jsontext.Value(req.Extra[i].Value))
		if err != nil {
			return req.Extra // the engine may say what it thinks of it
		}
		fields := append([]llm.Field(nil), req.Extra[:i]...)
		fields = append(fields, q.effort(req.Model, args)...)
		return append(fields, req.Extra[i+1:]...)
	}
	return req.Extra
}

func argument(args []llm.Field, name string) []byte {
	for _, a := range args {
		if a.Name == name {
			return a.Value
		}
	}
	return nil
}

// sglangEffort: SGLang's encoder for DeepSeek V4 reads thinking alone, and may
// not think by default; older builds read the word at the top level only.
func sglangEffort(model string, args []llm.Field) []llm.Field {
	family := dialect.OfModel(model).Name
	word := argument(args, dialect.Effort)
	if family == "deepseek-v4" {
		on, other := argument(args, dialect.Switch), argument(args, dialect.OtherSwitch)
		switch {
		case on != nil && other == nil:
			args = append(args, llm.Field{Name: dialect.OtherSwitch, Value: on})
		case on == nil && other != nil:
			args = append(args, llm.Field{Name: dialect.Switch, Value: other})
		case on == nil && word != nil:
			args = append(args, llm.Field{Name: dialect.OtherSwitch, Value: []byte("true")})
		}
	}
	fields := []llm.Field{{Name: dialect.Kwargs, Value: dialect.Object(args)}}
	if strings.HasPrefix(family, "deepseek-v4") && word != nil {
		fields = append(fields, llm.Field{Name: dialect.Effort, Value: word})
	}
	return fields
}

// ollamaEffort: Ollama has no arguments for templates. It reads one word at the
// top level, which also switches off, on a scale that ends with max.
func ollamaEffort(_ string, args []llm.Field) []llm.Field {
	for _, name := range []string{dialect.Switch, dialect.OtherSwitch} {
		if string(argument(args, name)) == "false" {
			return []llm.Field{{Name: dialect.Effort, Value: []byte(`"none"`)}}
		}
	}
	var word string
	value := argument(args, dialect.Effort)
	switch {
	case value == nil || json.Unmarshal(value, &word) != nil:
		return nil
	case word == "xhigh":
		value = []byte(`"max"`)
	}
	return []llm.Field{{Name: dialect.Effort, Value: value}}
}
