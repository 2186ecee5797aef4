// Package anthropic is the codec of Anthropic's Messages API and its models
// list. Wire types are private to it. It is pure: bytes in, values out, and
// back. What Messages and Chat Completions both can say becomes the same
// internal request; what only Anthropic's own service reads (cache marks,
// metadata, server tools, threads) is dropped here, and no engine sees it.
package anthropic

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

const (
	messagesRoute = "POST /v1/messages"
	countRoute    = "POST /v1/messages/count_tokens"
)

// Codec speaks Messages.
type Codec struct{}

// Routes gives the routes of this codec that run a request.
func (Codec) Routes() []string { return []string{messagesRoute} }

// CountRoutes gives the routes that count the tokens of a prompt.
func (Codec) CountRoutes() []string { return []string{countRoute} }

// KeyHeader is where clients may send their key instead of Authorization.
func (Codec) KeyHeader() string { return "X-Api-Key" }

// IDHeader is where clients look for the id of their request.
func (Codec) IDHeader() string { return "Request-Id" }

type request struct {
	Model        string         `json:"model"`
	Messages     []message      `json:"messages"`
	System       content        `json:"system"`
	Stream       bool           `json:"stream"`
	MaxTokens    jsontext.Value `json:"max_tokens"`
	Stops        jsontext.Value `json:"stop_sequences"`
	Tools        []tool         `json:"tools"`
	ToolChoice   *toolChoice    `json:"tool_choice"`
	Thinking     *thinking      `json:"thinking"`
	OutputConfig *outputConfig  `json:"output_config"`
	OutputFormat *outputFormat  `json:"output_format"`
	Thread       *thread        `json:"thread"`
	Provider     jsontext.Value `json:"provider"`
	Extra        jsontext.Value `json:",embed"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

type thinking struct {
	Type string `json:"type"`
}

type outputConfig struct {
	Effort string        `json:"effort"`
	Format *outputFormat `json:"format"`
}

type outputFormat struct {
	Type   string         `json:"type"`
	Schema jsontext.Value `json:"schema"`
}

type thread struct {
	Type string `json:"type"`
}

// errNoThread is the cause of the refusal to continue a thread. Clients that see
// its code send the whole conversation.
var errNoThread = errors.New("no thread is kept")

// Decode reads a request to answer or to count messages.
func (Codec) Decode(_ string, body []byte) (*llm.Request, error) {
	in, err := wire.Decode[request](body)
	if err != nil {
		return nil, err
	}
	if err := wire.Model(in.Model); err != nil {
		return nil, err
	}
	if in.Thread != nil && in.Thread.Type == "continue" {
		return nil, fault.Wrap(fault.NotFound, "no thread is kept here; send the whole conversation", errNoThread)
	}
	req := &llm.Request{Model: in.Model, Spelling: in.Model, Stream: in.Stream}
	steps := []func() error{
		func() (err error) { req.MaxTokens, err = wire.Count("max_tokens", in.MaxTokens, 1); return err },
		func() error { return items(req, in) },
		func() error { return tools(req, in) },
		func() (err error) { req.Policy, err = wire.Policy(in.Provider); return err },
		func() error { return extra(req, in) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	// Adaptive thinking is what the model does when nobody says anything.
	if in.Thinking != nil && (in.Thinking.Type == "enabled" || in.Thinking.Type == "disabled") {
		req.Thinking = in.Thinking.Type
	}
	if in.OutputConfig != nil {
		req.Effort = in.OutputConfig.Effort
	}
	return req, nil
}

// items reads the system prompt and the messages.
func items(req *llm.Request, in *request) error {
	if len(in.Messages) == 0 {
		return fault.At("messages", "messages must hold at least one message")
	}
	if len(in.Messages) > wire.ItemsMax {
		return fault.At("messages", "messages holds more than "+strconv.Itoa(wire.ItemsMax)+" messages")
	}
	req.Items = make([]llm.Item, 0, len(in.Messages)+1)
	if err := system(req, "system", &in.System); err != nil {
		return err
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		field := "messages[" + strconv.Itoa(i) + "]"
		var err error
		switch m.Role {
		case "user":
			err = user(req, field+".content", &m.Content)
		case "assistant":
			err = assistant(req, field+".content", &m.Content)
		case "system":
			err = system(req, field+".content", &m.Content)
		default:
			err = fault.At(field+".role", field+".role must be user, assistant or system")
		}
		if err != nil {
			return err
		}
		if len(req.Items) > wire.ItemsMax {
			return fault.At("messages", "messages holds more than "+strconv.Itoa(wire.ItemsMax)+" turns and results")
		}
	}
	return nil
}

// extra keeps what engines may read, in its order and byte for byte, and adds
// under the names of Chat Completions what only has another name here.
func extra(req *llm.Request, in *request) error {
	err := wire.Members(in.Extra, func(name string, value jsontext.Value) error {
		if value.Kind() == 'n' || foreign(name) || known(strings.ToLower(name)) {
			return nil
		}
		kept, err := wire.Keep(wire.Short(name), value)
		req.Extra = append(req.Extra, llm.Field{Name: name, Value: kept})
		return err
	})
	if err != nil {
		return err
	}
	if err := wire.Settings(req.Extra); err != nil {
		return err
	}
	if err := stops(req, in.Stops); err != nil {
		return err
	}
	format := in.OutputFormat
	if in.OutputConfig != nil && in.OutputConfig.Format != nil {
		format = in.OutputConfig.Format
	}
	if err := answerFormat(req, format); err != nil {
		return err
	}
	if c := in.ToolChoice; c != nil && c.DisableParallel && len(req.Tools) > 0 {
		set(req, "parallel_tool_calls", []byte("false"))
	}
	return nil
}

// set writes a member. An engine must never see one name twice.
func set(req *llm.Request, name string, value []byte) {
	for i := range req.Extra {
		if req.Extra[i].Name == name {
			req.Extra[i].Value = value
			return
		}
	}
	req.Extra = append(req.Extra, llm.Field{Name: name, Value: value})
}

func stops(req *llm.Request, raw jsontext.Value) error {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return nil
	}
	some := false
	texts := wire.Elements(raw, func(value jsontext.Value) bool {
		some = true
		return value.Kind() == '"'
	})
	if !texts {
		return fault.At("stop_sequences", "stop_sequences must be a list of strings")
	}
	if some {
		set(req, "stop", bytes.Clone(raw))
	}
	return nil
}

// answerFormat asks for an answer that follows a schema the way Chat Completions
// does.
func answerFormat(req *llm.Request, f *outputFormat) error {
	if f == nil || f.Type != "json_schema" {
		return nil
	}
	if f.Schema.Kind() != '{' {
		return fault.At("output_config.format.schema", "output_config.format.schema must be an object")
	}
	schema, err := wire.Keep("output_config.format.schema", f.Schema)
	if err != nil {
		return err
	}
	b := append([]byte(`{"type":"json_schema","json_schema":{"name":"answer","schema":`), schema...)
	set(req, "response_format", append(b, `,"strict":true}}`...))
	return nil
}

// foreign are members that only Anthropic's own service reads, and those that
// concern the caller's own bookkeeping.
func foreign(name string) bool {
	switch name {
	case "metadata", "cache_control", "context_management", "mcp_servers", "container", "service_tier", "betas",
		"anthropic_beta", "anthropic_version", "diagnostics", "inference_geo", "speed", "user_profile_id", "workspace_id",
		"fallbacks", "fallback_credit_token", "billing_policy", "compaction",
		"store", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention":
		return true
	}
	return false
}

// known are the members that the platform reads, here or in Chat Completions. A
// twin in another case, or in the other protocol's words, must not travel on:
// somebody downstream might read it.
func known(name string) bool {
	switch name {
	case "model", "messages", "system", "stream", "max_tokens", "stop_sequences", "tools", "tool_choice", "thinking", "output_config",
		"output_format", "thread", "provider", "stream_options", "max_completion_tokens", "n", "logprobs", "top_logprobs",
		"reasoning", "reasoning_effort":
		return true
	}
	return false
}
