package httpapi

import "time"

// Bounds of connections and requests. Sizes are bytes; what an operator may set is
// in Config.
const (
	// LargeBytes is what makes a body a large one.
	LargeBytes = 1 << 20
	// strangerBytesMax bounds the body of a request without a good key.
	strangerBytesMax = 4 << 10
	// readAheadBytes is read at once when the framework asks for less. It asks for
	// the first byte of a request alone, so as to keep no large buffer while a
	// connection is idle; most requests fit in here and take one system call.
	readAheadBytes = 4 << 10
	// writeBufferBytes is the socket's.
	writeBufferBytes = 256 << 10
	// writeBytes is how much must leave within the wait for a write.
	writeBytes = 64 << 10
	// lingerBytes and lingerTime bound what is read of a client that is still
	// sending a body which has been refused. Without it the client would see a
	// reset instead of the answer.
	lingerBytes = 256 << 20
	lingerTime  = 10 * time.Second

	// lineKept is how much of a line is looked at. Lines that frame are shorter.
	lineKept = 256
	// chunkDigits bounds a chunk's size to what fits an int64.
	chunkDigits = 15
	// forwardedMax bounds what is kept of X-Forwarded-For.
	forwardedMax = 1 << 10
	// askedMax bounds the list of headers that a browser asks for.
	askedMax = 1 << 10

	// idleTimeout is how long a connection may lie between two requests, and
	// readTimeout how long a request may take to arrive whole.
	idleTimeout = 2 * time.Minute
	readTimeout = 2 * time.Minute
	// unaryWait is one wait for an answer that is not streamed; the next follows.
	unaryWait = time.Minute
	// stopWait is what closing takes at most once all answers have ended.
	stopWait = 5 * time.Second
	// retryMax bounds what Retry-After tells, in seconds.
	retryMax = 5

	// countReadWait bounds how long the body of a count may take to arrive.
	countReadWait = 20 * time.Second
	// countWait is how long a count waits for its turn.
	countWait = time.Second

	// gateBodies bounds the bodies of requests without a key that are read at the
	// same time, in bodies of full size; one address may have one of them.
	gateBodies = 2
	// gateRate and gateBurst bound what one address may ask a second, and at once.
	// A request costs one, and one more for each gateStep bytes.
	gateRate  = 50
	gateBurst = 200
	gateStep  = 256 << 10
	// gateSmall is how many small bodies make one of full size. They have room of
	// their own, half as large as one body: large ones cannot shut them out.
	gateSmall = 128
	// callersMax bounds the addresses that are remembered.
	callersMax = 4096
	// gateRetry is when to come again when others take the room.
	gateRetry = time.Second
)
