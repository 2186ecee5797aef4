package worker

import "time"

// Bounds of a worker.
const (
	// SlotsMax bounds the jobs that run at once.
	SlotsMax = 10_000
	// ProbeEvery is how often an engine that is down or healthy is looked at,
	// and ProbeMisses how many misses in a row take it out of the fleet.
	ProbeEvery  = 2 * time.Second
	ProbeWait   = 5 * time.Second
	ProbeMisses = 3
)
