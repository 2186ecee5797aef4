package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
)

// TestABatchGrowsWhileOthersAreBooked: what comes while as many batches as may be
// are under way is one batch, up to its bound.
func TestABatchGrowsWhileOthersAreBooked(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	sent := 0
	send := func(n int) {
		for range n {
			sent++
			require.NoError(t, b.RecordUsage(bus.Usage{Job: fmt.Sprintf("j%d", sent), Account: "a1", Model: "glm-5.2", Region: "eu"}))
		}
	}
	batches, release := make(chan int, 10), make(chan struct{})
	// The rest comes as one batch when it comes within the wait, so that is long.
	bustest.Run(t, func(ctx context.Context) error {
		return b.Usages(ctx, "billing", bus.Batches{Most: 4, Wait: 2 * time.Second, AtOnce: 2}, func(_ context.Context, us []bus.UsageEvent) error {
			batches <- len(us)
			<-release
			return nil
		})
	})
	next := func() int {
		select {
		case n := <-batches:
			return n
		case <-time.After(patience):
			require.FailNow(t, "no batch came")
			return 0
		}
	}
	for range 2 {
		send(1)
		require.Equal(t, 1, next())
	}
	// Nothing waits on the bus beyond what one reader has in its hands.
	send(6)
	require.Never(t, func() bool { return len(batches) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	close(release)
	require.Equal(t, 6, next()+next(), "a full one and the rest")
}
