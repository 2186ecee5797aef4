package main_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/edge"
	"github.com/engy-ai/engy/services/worker"
)

// Bounds of one service that hold only as long as another's do.
func TestBoundsFitTogether(t *testing.T) {
	t.Parallel()
	require.Greater(t, edge.SettleWait, worker.AccountMax+time.Second, "a client that left pays for what was produced")
}
