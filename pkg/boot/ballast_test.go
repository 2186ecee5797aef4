package boot_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/boot"
)

// TestBallast: the next collection is far away.
func TestBallast(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	defer boot.Ballast()()
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.GreaterOrEqual(t, after.NextGC, before.NextGC+32<<20)
}
