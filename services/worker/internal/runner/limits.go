package runner

import "time"

// Bounds of the loop.
const (
	// claimBytesMax bounds the bodies on their way to this worker at one time,
	// so that the server's buffer for one client never fills.
	claimBytesMax = 64 << 20
	// StreamWindow joins events that come faster than it; the first one leaves
	// at once.
	StreamWindow = 6 * time.Millisecond
	// batchEvents and batchBytes close a batch before its window.
	batchEvents = 512
	batchBytes  = 64 << 10
	// joinBytes is where a joined text is closed.
	joinBytes = 16 << 10

	aliveEvery = time.Second
	aliveWait  = 2500 * time.Millisecond
	// silencesMax is how many questions in a row must find nobody before an owner
	// is dead.
	silencesMax = 2
	fullPause   = 50 * time.Millisecond
	claimPause  = 250 * time.Millisecond
	barredPause = time.Second
	// bookedWait is how long a worker waits to hear that a job is booked: a slow
	// client may still be reading the answer. An owner that dies meanwhile is
	// noticed by aliveEvery.
	bookedWait = 5 * time.Minute
	leaveWait  = 2 * time.Second
	// countWait is how long an engine may take to count a prompt. Who asked takes
	// an estimate by then.
	countWait    = 50 * time.Millisecond
	textBytesMax = 512 << 10
)
