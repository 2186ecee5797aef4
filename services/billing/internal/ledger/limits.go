package ledger

// Bounds of the ledger. Sizes are bytes.
const (
	// holdConns: groups leave one at a time; the second is for the moment when
	// the first is lost. bookConns are for batches of captures and for the desk.
	holdConns = 2
	bookConns = 4
	// statementWait ends a statement that stands still, in PostgreSQL's notation.
	statementWait = "5s"

	jobBytes     = 64
	nameBytesMax = 256
	noteBytesMax = 500
	// tokensMax bounds the tokens of one answer, each way.
	tokensMax = 1 << 40
	// findingsMax bounds each list of a Report.
	findingsMax = 100
)
