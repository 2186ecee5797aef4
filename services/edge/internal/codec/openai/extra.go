package openai

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// dropped are members that concern the caller's own bookkeeping or another
// platform's storage; no engine reads them.
func dropped(name string) bool {
	switch name {
	case "store", "metadata", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
		"prediction", "modalities", "audio", "verbosity", "web_search_options":
		return true
	}
	return false
}

// known are the members that the platform reads. A twin in another case must
// not travel on: somebody downstream might read it.
func known(name string) bool {
	switch name {
	case "model", "messages", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
		"tools", "tool_choice", "logprobs", "top_logprobs", "provider", "reasoning_effort", "reasoning", "thinking",
		"role", "content", "tool_calls", "tool_call_id", "reasoning_content":
		return true
	}
	return false
}

// cacheKeyBytesMax bounds what is read of a cache's name.
const cacheKeyBytesMax = 1024

// Settings keeps the members of a request that the platform does not act on, as Extra
// does, checks those that engines read of how to answer, and reads what the caller
// calls its cache.
func Settings(req *llm.Request, raw jsontext.Value, drop ...string) (err error) {
	req.Extra, err = extra(raw, drop, func(name string, value jsontext.Value) {
		if name == "prompt_cache_key" && value.Kind() == '"' {
			req.CacheKey = string(value[:min(len(value), cacheKeyBytesMax)])
		}
	})
	if err != nil {
		return err
	}
	return wire.Settings(req.Extra)
}

// Extra keeps the members that the platform does not read, in their order and
// byte for byte. Those of the given names, in small letters, are left out in any
// case.
func Extra(raw jsontext.Value, drop ...string) ([]llm.Field, error) {
	return extra(raw, drop, func(string, jsontext.Value) {})
}

// extra is Extra for who looks at every member too.
func extra(raw jsontext.Value, drop []string, look func(name string, value jsontext.Value)) ([]llm.Field, error) {
	var fields []llm.Field
	err := wire.Members(raw, func(name string, value jsontext.Value) error {
		look(name, value)
		folded := strings.ToLower(name)
		if dropped(name) || known(folded) || slices.Contains(drop, folded) {
			return nil
		}
		kept, err := wire.Keep(wire.Short(name), value)
		if err != nil {
			return err
		}
		fields = append(fields, llm.Field{Name: name, Value: kept})
		return nil
	})
	return fields, err
}
