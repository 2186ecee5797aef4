package edge

import (
	"time"

	"github.com/engy-ai/engy/services/edge/internal/httpapi"
)

// Bounds of the edge. Sizes are bytes.
const (
	// BodyBytesMax bounds the body of a text request.
	BodyBytesMax = 32 << 20
	// LargeBytesUsual bounds the large bodies that are under way.
	LargeBytesUsual = 2 << 30
	// HeaderBytesMax bounds the request line and headers together.
	HeaderBytesMax = 64 << 10
	// ClientQueueBytes bounds what waits for a client that reads slowly.
	ClientQueueBytes = 4 << 20
	// AnswerBytesMax bounds an answer that is not streamed.
	AnswerBytesMax = 128 << 20

	// WriteWait is how long one write may block on a client that does not read.
	WriteWait = 30 * time.Second

	// HoldAfter is when a hold is asked for at the latest. On few cores it and the
	// job's way to an engine hinder each other, and the client waits for the engine.
	HoldAfter = 2 * time.Millisecond
	// HoldAgain is after how long a hold that was refused is asked for again, more and
	// more rarely, HoldAgainMax at the most: for HoldAgainFor when an answer of the same
	// account has ended here within SettlingFor, and for BookedFor when the account has
	// other holds. That is several times as long as it takes to book an answer.
	HoldAgain    = 20 * time.Millisecond
	HoldAgainMax = 200 * time.Millisecond
	HoldAgainFor = time.Second
	SettlingFor  = 2 * time.Second
	BookedFor    = 250 * time.Millisecond
	// RefusedFor is how long after a refusal no worker begins for the account before
	// its hold is there.
	RefusedFor = 2 * time.Second
	// BillingEvery is how often billing is asked whether it is there, and
	// BillingAgain how soon when it was not.
	BillingEvery = 2 * time.Second
	BillingAgain = 50 * time.Millisecond
	// SettleWait is how long the edge waits for a worker's account of a job
	// whose client has left: longer than a worker may take to give it.
	SettleWait = 8 * time.Second

	// AttemptsMax bounds how often one job is granted.
	AttemptsMax = 3
	// OfferAgain is after how long without a claim a ticket is offered again.
	OfferAgain = time.Second
	// WorkerQuiet is how long a worker may be silent before it is probed, and
	// ProbeWait how long a probe may take before the worker counts as hung.
	WorkerQuiet = 250 * time.Millisecond
	ProbeWait   = 2 * time.Second

	// AttemptForgotten is how long after its grant a worker must own up to an
	// attempt: longer than a large body travels.
	AttemptForgotten = 10 * time.Second
	// AttemptUnheard is the same for one that came in one message, when the worker is
	// asked about it in the next: as long as a busy one may leave it lying.
	AttemptUnheard = 2 * time.Second

	// TokensPerByteMax, TemplateTokensMax and, for each image or sound, MediaTokensMax
	// bound the prompt tokens that a worker is believed.
	TokensPerByteMax  = 2
	TemplateTokensMax = 4096
	MediaTokensMax    = 16_384

	// CountsMax bounds the prompts that workers count for this edge at once.
	CountsMax = 4

	// LargeBytes is what makes a request a large one. When TidyBytes more of them are
	// over than are under way, and none has ended for TidyAfter, memory is given back.
	LargeBytes = httpapi.LargeBytes
	TidyBytes  = 64 << 20
	TidyAfter  = time.Second

	// RetainBytesMax bounds the records being written, RetainWait one of them, and
	// RetainEvery is how often old ones are looked for.
	RetainBytesMax = 256 << 20
	RetainWait     = 30 * time.Second
	RetainEvery    = time.Minute

	// RequestsMax bounds the requests under way in one edge.
	RequestsMax = 50_000
)
