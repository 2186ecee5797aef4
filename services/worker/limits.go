package worker

import (
	"time"

	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// Bounds of a worker.
const (
	// SlotsMax bounds the jobs that run at once.
	SlotsMax = 10_000
	// ProbeEvery is how often an engine that is down or healthy is looked at,
	// and ProbeMisses how many misses in a row take it out of the fleet: one that
	// says nothing is taken for dead after 15 to 17 seconds, unless it sends answers.
	ProbeEvery  = 2 * time.Second
	ProbeWait   = 5 * time.Second
	ProbeMisses = 3
	// AccountMax is how long a worker may take to tell what an answer came to that
	// nobody wants any longer: it stops the engine, hears it out, and counts.
	AccountMax = 2*openaihttp.AbortMax + openaihttp.CountMax
)
