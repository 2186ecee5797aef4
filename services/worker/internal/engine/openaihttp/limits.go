package openaihttp

import "time"

// Bounds of what an engine may send and how long it may take. Each has a test
// at the bound.
const (
	// LineBytesMax is the longest line and the longest event of a stream, and
	// the longest answer in one piece. Tool calls that write whole files make
	// lines of megabytes.
	LineBytesMax = 32 << 20
	// NameBytesMax is the longest name of a tool that is called, which may come in
	// pieces.
	NameBytesMax = 4 << 10
	// MessageBytesMax is how much of an engine's error message is passed on.
	MessageBytesMax = 1 << 10
	// PageBytesMax bounds what is read of answers that are not an exchange:
	// errors, facts, counts.
	PageBytesMax = 4 << 20
	// PartBytesMax is about how long the arrays are that log-probabilities come in:
	// each must fit a message.
	PartBytesMax = 64 << 10
	// ScoresBytesMax is the longest answer of an engine that tells the
	// log-probabilities of a whole prompt, of which most is passed over.
	ScoresBytesMax = 128 << 20
	// ModelsMax is how many models of one engine are looked at.
	ModelsMax = 256
	// OutputTokensUsual is sent as max_tokens when a request sets no bound,
	// since engines' own defaults reach from 16 to the whole window.
	OutputTokensUsual = 4096

	// IdleUsual is the usual Config.Idle.
	IdleUsual = 5 * time.Minute
	// TokenMax is what each token of an answer in one piece may add to Idle, for the
	// engine is silent while it makes them.
	TokenMax = 100 * time.Millisecond
	// AbortMax is how long telling an engine to stop may take, and how long it may
	// then take to say what it has done.
	AbortMax = 2 * time.Second
	// CountMax is how long an engine may take to count a prompt.
	CountMax = 2 * time.Second
	// ProbeMax is how long one question about facts or health may take.
	ProbeMax = 5 * time.Second
	// dialMax is how long a connection may take to come up.
	dialMax = 5 * time.Second
	// connIdleMax is shorter than the five seconds after which the Python
	// engines close an idle connection, so that requests do not meet the close.
	connIdleMax = 4 * time.Second

	// lingerMax is how long the end of an answer is waited for after all of it
	// came, so that its connection can be used again.
	lingerMax = 100 * time.Millisecond

	// bufferBytes is what reading a stream starts with; buffers that grew
	// beyond bufferBytesKept are not kept for the next stream.
	bufferBytes     = 8 << 10
	bufferBytesKept = 64 << 10
	// connsIdleMax is how many idle connections are kept.
	connsIdleMax = 1024
)
