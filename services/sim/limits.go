package sim

import (
	"time"

	"github.com/engy-ai/engy/services/sim/internal/script"
)

// Bounds of the simulator. Each has a test at the bound. The bounds of
// directives are in internal/script, next to the keys.
const (
	// BodyBytesMax is the largest request body; one byte more is a 413.
	BodyBytesMax = 64 << 20
	// HeaderBytesMax is about the most that the request line and the headers
	// may take; more is a 431.
	HeaderBytesMax = 64 << 10
	// headerSlack is what net/http adds to its own bound.
	headerSlack = 4 << 10
	// SlotsMax is how many requests can run at once when Config sets no lower
	// number. A request beyond it is a 429.
	SlotsMax = 1 << 16
	// ModelsMax is how many ids a simulator can serve.
	ModelsMax = 256
	// WindowMax is the largest context window, in tokens.
	WindowMax = 1 << 24
	// AnswerTokensMax is the longest answer, and the longest reasoning.
	AnswerTokensMax = script.CountMax
	// CacheBlocksMax is the largest prefix cache, in blocks of 64 tokens.
	CacheBlocksMax = 1 << 22
	// ChoicesMax is the largest n of a request.
	ChoicesMax = 16
	// TopLogprobsMax is the largest top_logprobs of a request.
	TopLogprobsMax = 30
	// StopsMax is how many stop strings a request may have.
	StopsMax = 64
	// ToolsMax is how many tools a request may offer.
	ToolsMax = 1024
	// KeptBodiesMax and KeptBytesMax bound the bodies kept by record.
	KeptBodiesMax = 1024
	KeptBytesMax  = 256 << 20

	// HeaderReadMax is how long the headers of a request may take to arrive.
	HeaderReadMax = 30 * time.Second
	// BodyReadMax is how long a whole request may take to arrive.
	BodyReadMax = 5 * time.Minute
	// IdleMax is how long an unused connection is kept.
	IdleMax = 2 * time.Minute
	// WriteStallMax is how long a client may leave its answer unread.
	WriteStallMax = time.Minute
	// AbortGrace is the time that aborted answers get to say so.
	AbortGrace = time.Second
	// PaceMax is the longest TTFT and ITL of Config.
	PaceMax = time.Hour
)
