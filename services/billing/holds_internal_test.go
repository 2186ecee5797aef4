package billing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
)

func ask(n int) bus.HoldAsk { return bus.HoldAsk{Hold: bus.Hold{Job: fmt.Sprint(n)}} }

func TestAGroupTakesWhatWaitsUpToItsBoundAndAJobOnce(t *testing.T) {
	t.Parallel()
	asks := make(chan bus.HoldAsk, holdQueueMax)
	group, later := gather([]bus.HoldAsk{ask(0)}, asks)
	require.Len(t, group, 1, "nobody is waited for")
	require.Empty(t, later)

	for n := range holdGroupMax + 10 {
		asks <- ask(n)
	}
	group, later = gather([]bus.HoldAsk{ask(0)}, asks)
	require.Len(t, group, holdGroupMax)
	require.Len(t, later, 1, "job 0 again: for the next group")
	require.Len(t, asks, 10)

	group, later = gather(later, asks)
	require.Len(t, group, 11)
	require.Empty(t, later)

	for range holdQueueMax {
		asks <- ask(7)
	}
	group, later = gather([]bus.HoldAsk{ask(7)}, asks)
	require.Len(t, group, 1)
	require.Len(t, later, holdGroupMax, "repetitions are bounded too")
}
