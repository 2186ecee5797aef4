package offer

import "time"

// Bounds that no operator sets; the others are in Config.
const (
	// suspectsMax bounds the suspects that wait for their probe.
	suspectsMax = 64
	// putOffMax is how many holds may be put off at one time.
	putOffMax = 4
	// eventBytes is what an event weighs beside its text, against Config.QueueBytes.
	eventBytes = 128
	// countFor is how long a count of those who wait holds.
	countFor = 250 * time.Millisecond
)
