package bus

import "time"

// Ticket tells workers that a job waits. It holds no content: the work itself
// is granted by the owner against a Claim.
type Ticket struct {
	// Job is the request id, 64 hex digits.
	Job string `json:"job"`
	// Owner is the edge that holds the client and decides who may work.
	Owner  string `json:"owner"`
	Region string `json:"region"`
	// Model is a catalogue id.
	Model string `json:"model"`
	Class Class  `json:"class"`
	// Worker names the only worker that may take the ticket, empty for any.
	Worker string `json:"worker,omitzero"`
	// Offer counts how often the owner has offered this job, from 1.
	Offer int `json:"offer"`
	// PromptTokens is an estimate; BodyBytes is the size of the work.
	PromptTokens int64 `json:"prompt_tokens"`
	BodyBytes    int64 `json:"body_bytes"`
	// Deadline is when the owner gives up.
	Deadline time.Time `json:"deadline"`
	Priority int       `json:"priority,omitzero"`
	// Affinity is the same for prompts of an account that begin alike, which find a
	// warm cache where one of them was computed. Empty for those too short to matter.
	Affinity string `json:"affinity,omitzero"`
	// Trace is a W3C traceparent, empty when nothing is traced.
	Trace string `json:"trace,omitzero"`
}
