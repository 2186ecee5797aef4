package responses

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// echoBytesMax bounds one member that an answer repeats of its request. An answer
// has them up to three times; one that is larger is repeated as if it had not been
// sent.
const echoBytesMax = 256 << 10

// note is what the answer needs of the request. Nothing changes it after Decode.
type note struct {
	// echo holds the members that the answer repeats, as they are written.
	echo []byte
	// tools finds a tool of the caller by the name that the model knows.
	tools map[string]tool
	// thoughts asks for thoughts in a form that the caller sends back.
	thoughts bool
}

// noteOf gives the note of a request, an empty one when there is none.
func noteOf(req *llm.Request) *note {
	if n, ok := req.Note.(*note); ok {
		return n
	}
	n := &note{}
	n.echo = appendEcho(nil, func(string) jsontext.Value { return nil })
	return n
}

// echoes lists the members that an answer repeats, and what stands for one that
// was not sent.
func echoes() [][2]string {
	return [][2]string{
		{"instructions", "null"},
		{"max_output_tokens", "null"},
		{"max_tool_calls", "null"},
		{"metadata", "{}"},
		{"parallel_tool_calls", "true"},
		{"reasoning", `{"effort":null,"summary":null}`},
		{"temperature", "1"},
		{"text", `{"format":{"type":"text"}}`},
		{"tool_choice", `"auto"`},
		{"tools", "[]"},
		{"top_logprobs", "0"},
		{"top_p", "1"},
		{"truncation", `"disabled"`},
		{"prompt_cache_key", "null"},
		{"safety_identifier", "null"},
		{"user", "null"},
	}
}

// repeat keeps what the answer repeats.
func (n *note) repeat(in *request) error {
	sent := map[string]jsontext.Value{
		"instructions": in.Instructions, "max_output_tokens": in.MaxOutputTokens, "metadata": in.Metadata,
		"reasoning": in.Reasoning, "text": in.Text, "tool_choice": in.ToolChoice, "tools": in.Tools,
		"top_logprobs": in.TopLogprobs,
	}
	err := wire.Members(in.Extra, func(name string, value jsontext.Value) error {
		switch name {
		case "parallel_tool_calls", "temperature", "top_p", "truncation", "max_tool_calls", "prompt_cache_key",
			"safety_identifier", "user":
			sent[name] = value.Clone()
		}
		return nil
	})
	for _, name := range []string{"max_output_tokens", "max_tool_calls", "top_logprobs"} {
		// Clients read these into integers.
		if plain, ok := wire.Whole(sent[name]); ok {
			sent[name] = plain
		}
	}
	n.echo = appendEcho(nil, func(name string) jsontext.Value { return sent[name] })
	return err
}

// appendEcho writes the members, each with a comma before it. A frame of a stream
// is one line, so white space between values goes.
func appendEcho(b []byte, sent func(name string) jsontext.Value) []byte {
	for _, e := range echoes() {
		b = append(append(append(b, `,"`...), e[0]...), `":`...)
		v := sent(e[0])
		if len(v) > echoBytesMax || len(v) == 0 || v.Kind() == 'n' || v.Compact() != nil {
			b = append(b, e[1]...)
			continue
		}
		b = append(b, v...)
	}
	return b
}
