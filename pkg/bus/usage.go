package bus

import (
	"time"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

// UsageEvent is the durable fact of one request, in the shape of CloudEvents
// 1.0 (structured JSON). It holds no content. Billing books it; internal teams
// subscribe to the same stream.
type UsageEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"` // the job, and the dedupe id
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"` // the account
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            Usage     `json:"data"`
}

// UsageType is the CloudEvents type of a usage event.
const UsageType = "ai.engy.usage.v1"

// Usage says what one request used and what it cost.
type Usage struct {
	Job     string `json:"job"`
	Account string `json:"account"`
	Key     string `json:"key"`
	Model   string `json:"model"`
	Region  string `json:"region"`
	// Worker is the worker whose attempt was settled, empty when none served.
	Worker  string          `json:"worker,omitzero"`
	Attempt int             `json:"attempt,omitzero"`
	Route   string          `json:"route"`
	Outcome pricing.Outcome `json:"outcome"`
	Tokens  llm.Usage       `json:"tokens"`
	Rates   pricing.Rates   `json:"rates"`
	// ChargedMicro is pricing.Charge of the three above, at most the hold.
	ChargedMicro money.Micro `json:"charged_micro"`
	// FirstByteMS and TotalMS are milliseconds from the request's arrival to
	// its first byte and to its end.
	FirstByteMS int64 `json:"first_byte_ms"`
	TotalMS     int64 `json:"total_ms"`
}
