package openai

import (
	"github.com/go-json-experiment/json"

	"github.com/engy-ai/engy/pkg/fault"
)

// Model is one row of the models list.
type Model struct {
	ID               string   `json:"id"`
	Object           string   `json:"object"`
	Created          int64    `json:"created"`
	OwnedBy          string   `json:"owned_by"`
	InputModalities  []string `json:"input_modalities"`
	OutputModalities []string `json:"output_modalities"`
	ContextLength    int64    `json:"context_length"`
	MaxModelLen      int64    `json:"max_model_len"`
	MaxOutputTokens  int64    `json:"max_output_tokens"`
	Regions          []string `json:"regions"`
	Features         []string `json:"features"`
	Pricing          Pricing  `json:"pricing"`
}

// Pricing holds decimal strings in USD per token.
type Pricing struct {
	Prompt         string `json:"prompt"`
	Completion     string `json:"completion"`
	Request        string `json:"request"`
	Image          string `json:"image"`
	InputCacheRead string `json:"input_cache_read"`
}

// Models writes the list.
func Models(rows []Model) ([]byte, error) {
	if rows == nil {
		rows = []Model{}
	}
	list := struct {
		Object string  `json:"object"`
		Data   []Model `json:"data"`
	}{"list", rows}
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "models cannot be written", err)
	}
	return raw, nil
}

// One writes a single row.
func One(row Model) ([]byte, error) {
	raw, err := json.Marshal(row)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "model cannot be written", err)
	}
	return raw, nil
}
