package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/edge/internal/fleet"
)

// pool is a fleet of workers w0, w1 ... with the given slots, and the jobs they have.
func pool(slots ...int) (*fleet.Fleet, map[string]int) {
	jobs := map[string]int{}
	f := fleet.New(time.Now, func(worker string) (int, bool) { return jobs[worker], true })
	for i, n := range slots {
		f.Beat(beat(fmt.Sprintf("w%d", i), "eu", n, 0))
	}
	return f, jobs
}

func choose(t *testing.T, f *fleet.Fleet, affinity string) string {
	t.Helper()
	w, ok := f.Choose(need(), "eu", affinity)
	require.True(t, ok)
	return w
}

func TestAnAffinityHasAWorker(t *testing.T) {
	t.Parallel()
	f, _ := pool(64, 64, 64, 64)
	home := map[string]string{}
	for i := range 1000 {
		a := fmt.Sprintf("%016x", i)
		home[a] = choose(t, f, a)
		require.Equal(t, home[a], choose(t, f, a))
	}
	count := map[string]int{}
	for _, w := range home {
		count[w]++
	}
	for w, n := range count {
		require.InDelta(t, 250, n, 60, w)
	}
	// Who comes takes its part and no more; who goes gives its own away and no more.
	f.Beat(beat("w4", "eu", 64, 0))
	moved := 0
	for a, w := range home {
		if now := choose(t, f, a); now != w {
			require.Equal(t, "w4", now)
			moved++
		}
	}
	require.InDelta(t, 200, moved, 50)
	f.Left("w4", "m")
	f.Left("w3", "m")
	for a, w := range home {
		if now := choose(t, f, a); w != "w3" {
			require.Equal(t, w, now)
		}
	}
}

func TestAnAffinityFollowsTheSizeOfWorkers(t *testing.T) {
	t.Parallel()
	f, _ := pool(30, 10)
	large := 0
	for i := range 1000 {
		if choose(t, f, fmt.Sprintf("%016x", i)) == "w0" {
			large++
		}
	}
	require.InDelta(t, 750, large, 60)
}

// One conversation that everybody has fills all workers alike, not one of them.
func TestAnAffinityOverloadsNobody(t *testing.T) {
	t.Parallel()
	f, jobs := pool(8, 8, 8, 8)
	for n := 1; n <= 32; n++ {
		w := choose(t, f, "0123456789abcdef")
		jobs[w]++
		require.True(t, jobs[w] <= 2 || jobs[w] <= (5*n+15)/16, "%d of %d are with one of four", jobs[w], n)
	}
	_, ok := f.Choose(need(), "eu", "0123456789abcdef")
	require.False(t, ok, "all are full")
	jobs["w2"]--
	require.Equal(t, "w2", choose(t, f, "0123456789abcdef"))
}

func TestAnEngineThatTakesOneAtATimeIsNoHome(t *testing.T) {
	t.Parallel()
	f, jobs := pool(1, 1)
	home := choose(t, f, "0123456789abcdef")
	jobs[home]++
	require.NotEqual(t, home, choose(t, f, "0123456789abcdef"), "nobody waits for a cache")
}
