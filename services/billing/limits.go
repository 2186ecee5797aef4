package billing

import "time"

const (
	// holdGroupMax is the most holds of one statement.
	holdGroupMax = 200
	// holdQueueMax is how many holds may wait for the statement under way; one
	// more is answered busy. At the rate of a busy server it is a tenth of a
	// second, well within what an edge waits.
	holdQueueMax = 2000
	// holdWait bounds one statement of holds, its repetitions included: less than
	// edges wait. holdPause is what lies between those; a database that is started
	// anew, or handed over, is back soon.
	holdWait  = 1500 * time.Millisecond
	holdPause = 20 * time.Millisecond

	// usageBatchMax and usageBatchWait are when a batch of usage leaves: the
	// time is what ends it, unless more waits than can be booked meanwhile.
	usageBatchMax  = 1000
	usageBatchWait = 20 * time.Millisecond
	// usageBatches is how many batches are under way at once. A third one waits
	// for the same accounts.
	usageBatches = 2

	// sweepEveryDefault is how often expired holds are looked for, sweepBatch
	// how many at once, sweepLease how long nobody else takes them up.
	sweepEveryDefault = 5 * time.Second

	// sweepAfterDefault is how long after its start billing lets expired holds
	// be: longer than edges take to renew theirs.
	sweepAfterDefault = 45 * time.Second

	sweepBatch = 200
	// sweepAsks is how many reports are asked for at once.
	sweepAsks  = 16
	sweepLease = time.Minute
	// sweepGrace is how long after its end a hold is left to a usage event that
	// may still be on its way.
	sweepGrace = 10 * time.Second
	// sweepWait bounds one round, hearWait how long the bus may take to answer.
	sweepWait = 30 * time.Second
	hearWait  = 2 * time.Second

	// orphanGrace is how long nobody must have answered for an edge before it counts
	// as dead: longer than a connection takes to come back. absentMax bounds the
	// edges that are remembered as such.
	orphanGrace = 3 * time.Second
	absentMax   = 1000

	// usageOnItsWay is how old a usage event must be to be missed in the books.
	usageOnItsWay = 10 * time.Second

	// holdOverdue is when an open hold that ran out is a finding: the sweeper
	// has had many rounds for it.
	holdOverdue = 5 * time.Minute

	// The names under which billing reads the bus, the same for all replicas.
	usageDurable  = "billing"
	orphanDurable = "billing-orphans"
)
