package fleet

import "time"

// Times of the fleet.
const (
	// endedLife is how long the id of a dead worker is remembered. Ids are unique
	// for each start of a process, so forgetting one is harmless later.
	endedLife = time.Hour
	// revival is how long after its end a heartbeat of a worker may still have been
	// under way.
	revival = 3 * time.Second
	// bereftFor is how long after the death of its last worker a model is away, and
	// not gone: whoever looks after the worker starts it anew within that.
	bereftFor = 5 * time.Second
)
