package billing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
)

// Holds that ran out while nobody could renew them are not over.
func TestTheSweeperWaitsForEdgesAfterASilence(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	s := &service{Deps: Deps{Bus: bustest.Connect(t, server, bus.Config{})}, sweepAfter: time.Minute, heard: time.Now()}
	require.True(t, s.hears(t.Context()))

	s.heard = time.Now().Add(-sweepWait - time.Second)
	require.False(t, s.hears(t.Context()), "it stood still itself")
	require.False(t, s.hears(t.Context()), "edges have a moment")
	s.deaf = time.Now().Add(-time.Minute)
	require.True(t, s.hears(t.Context()))

	server.Close()
	require.False(t, s.hears(t.Context()), "the bus is away")
	require.WithinDuration(t, time.Now(), s.deaf, time.Minute)
}
