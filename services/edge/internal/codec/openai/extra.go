package openai

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// dropped are members that concern the caller's own bookkeeping or another
// platform's storage; no engine reads them.
func dropped(name string) bool {
	switch name {
	case "store", "metadata", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention":
		return true
	}
	return false
}

// known are the members that the platform reads. A twin in another case must
// not travel on: somebody downstream might read it.
func known(name string) bool {
	switch name {
	case "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
		"tools", "tool_choice", "logprobs", "top_logprobs", "provider", "role", "content", "tool_calls",
		"tool_call_id", "reasoning_content":
		return true
	}
	return false
}

// extra keeps the members that the platform does not read, in their order and
// byte for byte.
func extra(raw jsontext.Value, drop ...string) ([]llm.Field, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.ReadToken(); err != nil {
		return nil, refusal(err)
	}
	var fields []llm.Field
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, refusal(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, refusal(err)
		}
		if dropped(name) || known(strings.ToLower(name)) || slices.Contains(drop, name) {
			continue
		}
		kept, err := keep(short(name), value)
		if err != nil {
			return nil, err
		}
		fields = append(fields, llm.Field{Name: name, Value: kept})
	}
	return fields, nil
}

// policy reads the provider object: what it decides may never be read two
// ways, so a name that appears twice, in any case, is refused.
func policy(raw jsontext.Value) (llm.Policy, error) {
	var p llm.Policy
	if len(raw) == 0 || raw.Kind() == 'n' {
		return p, nil
	}
	if raw.Kind() != '{' {
		return p, fault.At("provider", "provider must be an object")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.ReadToken(); err != nil {
		return p, refusal(err)
	}
	seen := map[string]bool{}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return p, refusal(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return p, refusal(err)
		}
		folded := strings.ToLower(name)
		if seen[folded] {
			return p, fault.At("provider", "provider holds a name twice")
		}
		seen[folded] = true
		if err := rule(&p, name, value); err != nil {
			return p, err
		}
	}
	return p, nil
}

func rule(p *llm.Policy, name string, value jsontext.Value) error {
	field := "provider." + name
	var into any
	switch name {
	case "zdr":
		into = &p.ZDR
	case "require_proof":
		into = &p.Proof
	case "region_only":
		into = &p.RegionOnly
	case "region_exclude":
		into = &p.RegionExclude
	case "data_collection":
		into = &p.Collect
	default:
		// Clients send other platforms' keys here; they mean nothing to us.
		return nil
	}
	if value.Kind() == 'n' {
		return nil
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fault.At(field, field+" has the wrong type")
	}
	if name == "data_collection" && p.Collect != "allow" && p.Collect != "deny" {
		return fault.At(field, field+" must be allow or deny")
	}
	return nil
}
