// Package bustest gives a test a bus of its own: a real server in this process,
// gone when the test ends.
package bustest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/natsembed"
)

// Server starts a server for one test. It listens on loopback, so that other
// processes can join.
func Server(t testing.TB) *natsembed.Server {
	t.Helper()
	s, err := natsembed.Start(natsembed.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Connect joins a test's server.
func Connect(t testing.TB, s *natsembed.Server, cfg bus.Config) *bus.Bus {
	t.Helper()
	cfg.InProcess = s.InProcess()
	if cfg.Name == "" {
		cfg.Name = t.Name()
	}
	b, err := bus.Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// New gives a connected bus on a server of its own.
func New(t testing.TB) *bus.Bus {
	t.Helper()
	return Connect(t, Server(t), bus.Config{})
}

// Run keeps f going until the function that it gives is called, or else to the
// test's end; an error of f fails the test. It outlives the test's own context,
// so that what f serves can still be stopped in order.
func Run(t testing.TB, f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
