package wire

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Policy reads the provider object: what it decides may never be read two
// ways, so a name that appears twice, in any case, is refused.
func Policy(raw jsontext.Value) (llm.Policy, error) {
	var p llm.Policy
	if len(raw) == 0 || raw.Kind() == 'n' {
		return p, nil
	}
	if raw.Kind() != '{' {
		return p, fault.At("provider", "provider must be an object")
	}
	seen := map[string]bool{}
	err := Members(raw, func(name string, value jsontext.Value) error {
		folded := strings.ToLower(name)
		if seen[folded] {
			return fault.At("provider", "provider holds a name twice")
		}
		seen[folded] = true
		return rule(&p, name, value)
	})
	return p, err
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
		switch strings.ToLower(name) {
		case "zdr", "require_proof", "region_only", "region_exclude", "data_collection":
			// It was meant, and must not be read as nothing.
			return fault.At("provider", "provider."+strings.ToLower(name)+" must be written in small letters")
		}
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
