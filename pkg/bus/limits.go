package bus

import "time"

// Bounds of the bus. Sizes are bytes.
const (
	// QueueMax bounds the tickets of one region, model and class by default.
	QueueMax = 10_000
	// ChunkBytes is how much of a body one message carries. It stays well below
	// the server's payload limit, headers included.
	ChunkBytes = 512 << 10
	// BodyBytesMax bounds a job's body, which is larger than the request that
	// it came from only by escapes.
	BodyBytesMax = 160 << 20
	// FrameBytesMax is where a message of frames is closed and the next begun.
	FrameBytesMax = 256 << 10

	// PromptBytesMax bounds a prompt that a worker is to count.
	PromptBytesMax = 256 << 10
	// countsMax bounds the prompts that a worker counts at once.
	countsMax = 4

	chunksAhead = 4
	// RenewalJobsMax bounds the jobs of one renewal, which must fit a message.
	RenewalJobsMax = 5_000

	ticketBytesMax    = 16 << 10
	publishPendingMax = 16_384
	reconnectBytesMax = 16 << 20

	// joinStreams is how many streams to one owner make joining worth its wait.
	joinStreams = 16
	// JoinWindow is how long frames of many streams to one owner gather.
	JoinWindow = time.Millisecond

	// FinishAgain is after how long without an answer an end is sent again.
	FinishAgain = 2 * time.Second
	// BookedWindow is how long ends that are booked gather before their worker is
	// told; bookedBytesMax closes such a message earlier.
	BookedWindow   = 20 * time.Millisecond
	bookedBytesMax = 64 << 10

	// HoldGroupMax is how many holds share a message, HoldWait how long one waits for
	// its answer.
	HoldGroupMax = 200
	HoldWait     = 2 * time.Second
	// holdsFlying is how many messages may be unanswered: one that billing works
	// on, and one that waits there, so that billing never waits for the next.
	holdsFlying = 2
	// lookWait is how long a billing may take to say that it is there, and chosenFor
	// how long one that did is asked alone.
	lookWait  = 250 * time.Millisecond
	chosenFor = 30 * time.Second
	// asksMax bounds how often one question is put.
	asksMax = 3
	// holdPause is how long to wait for a billing that may not be back yet.
	holdPause = 20 * time.Millisecond
	// holdLast is what the last try must have left to hear that nobody got it.
	holdLast = 250 * time.Millisecond

	jobAge         = time.Hour
	usageAge       = 90 * 24 * time.Hour
	reportAge      = 24 * time.Hour
	dedupeWindow   = 2 * time.Minute
	freshFor       = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	publishTimeout = 5 * time.Second
	closeWait      = 5 * time.Second

	// HeartbeatEvery and HeartbeatLife: a worker that is silent for a life is
	// out of the fleet.
	HeartbeatEvery = 2 * time.Second
	HeartbeatLife  = 8 * time.Second

	// AckWait is the last resort when a worker vanishes with a ticket: owners
	// offer again long before. ProgressEvery keeps a ticket that is worked on.
	AckWait       = 10 * time.Second
	ProgressEvery = 3 * time.Second
	deliverMax    = 50

	ownPendingMax      = 1 << 20
	ownPendingBytesMax = 512 << 20

	pullExpires  = 5 * time.Second
	pullWaiting  = 4096
	pullBatchMax = 1024

	askTimeout   = 5 * time.Second
	livesWait    = time.Second
	chunkTimeout = 20 * time.Second
	finishTries  = 5
	finishPause  = 500 * time.Millisecond
	// factsMax bounds the facts that are being repeated, factPause and factPauseMax
	// what lies between the tries.
	factsMax     = 100_000
	factPause    = 500 * time.Millisecond
	factPauseMax = 8 * time.Second
	// declareTries bounds how often streams are declared anew after a loss.
	declareTries = 20
	// renewalsAtOnce is how many renewals are answered at once, renewalsWaiting how
	// many more may wait.
	renewalsAtOnce  = 4
	renewalsWaiting = 256

	factPull       = 10 * time.Second
	factAckWait    = 10 * time.Second
	factAckPending = 20_000
)
