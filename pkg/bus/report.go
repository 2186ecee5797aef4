package bus

import (
	"time"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// Report is a worker's own short note on an attempt, without content. It
// settles a job whose owner died.
type Report struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	Worker  string `json:"worker"`
	Model   string `json:"model"`
	// Orphan says that the owner did not take the last frame.
	Orphan  bool            `json:"orphan,omitzero"`
	Outcome pricing.Outcome `json:"outcome"`
	Tokens  llm.Usage       `json:"tokens"`
	Time    time.Time       `json:"time"`
	// EngineMS is how long the engine worked, in milliseconds.
	EngineMS int64 `json:"engine_ms"`
}
