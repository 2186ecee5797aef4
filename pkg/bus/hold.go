package bus

import (
	"time"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

// Hold asks billing to set money aside for a job.
type Hold struct {
	Job     string `json:"job"`
	Account string `json:"account"`
	Key     string `json:"key"`
	Model   string `json:"model"`
	// Micro is what the job may cost at most. When the balance covers less, but
	// at least FloorMicro, that much is granted instead; FloorMicro equal to
	// Micro means all or nothing.
	Micro      money.Micro `json:"micro"`
	FloorMicro money.Micro `json:"floor_micro"`
	// Rates are what a report would be settled by.
	Rates pricing.Rates `json:"rates"`
	// Expires is when the hold ends by itself.
	Expires time.Time `json:"expires"`
	// Raise asks to raise an open hold of the same job to Micro.
	Raise bool `json:"raise,omitzero"`
}

// HoldAnswer is billing's word on a Hold.
type HoldAnswer struct {
	// Code is empty when the hold stands, else no_funds, busy (a concurrency
	// limit), unauthorized (key or account closed) or invalid (job settled); it is
	// not known whether it stands after unavailable, timeout or internal.
	Code fault.Code `json:"code,omitzero"`
	// Message may be shown to the caller.
	Message string `json:"message,omitzero"`
	// Micro is the amount that is held.
	Micro money.Micro `json:"micro,omitzero"`
	// Open tells, of a refusal, that the account has open holds: what they do not need
	// comes back when they are settled, perhaps in a moment.
	Open bool `json:"open,omitzero"`
	// Settled tells that the job is over: no hold stands, and Micro was charged.
	Settled bool `json:"settled,omitzero"`
}
