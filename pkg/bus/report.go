package bus

import (
	"time"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// Report is a worker's own short note, without content, on an attempt whose
// owner has not said that it is booked: it settles a job whose owner died.
type Report struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	Worker  string `json:"worker"`
	// Owner is the edge that granted the attempt, whose the job must be: OwnedBy.
	Owner   string          `json:"owner"`
	Model   string          `json:"model"`
	Outcome pricing.Outcome `json:"outcome"`
	Tokens  llm.Usage       `json:"tokens"`
	Time    time.Time       `json:"time"`
	// EngineMS is how long the engine worked, in milliseconds.
	EngineMS int64 `json:"engine_ms"`
}
