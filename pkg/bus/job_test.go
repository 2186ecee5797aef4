package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
)

func TestAJobNamesItsOwner(t *testing.T) {
	t.Parallel()
	a, b := bus.NewJob("edge-1"), bus.NewJob("edge-1")
	require.Len(t, a, 64)
	require.NotEqual(t, a[32:], b[32:])
	require.LessOrEqual(t, a[:12], b[:12])
	require.True(t, bus.OwnedBy(a, "edge-1"))
	for _, owner := range []string{"", "edge-2", "edge-1 "} {
		require.False(t, bus.OwnedBy(a, owner))
	}
	for _, job := range []string{"", "x", a[:62], a + "00", strings.Repeat("0", 64), strings.Repeat("z", 64)} {
		require.False(t, bus.OwnedBy(job, "edge-1"), job)
	}
}
