package bus_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/fault"
)

// counted asks until somebody serves, for a subscription takes a moment.
func counted(t *testing.T, b *bus.Bus, worker string, prompt []byte) (n int64, err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		n, err = b.CountTokens(ctx, worker, prompt)
		return !bus.Vanished(err)
	}, 2*patience, 5*time.Millisecond)
	return n, err
}

func TestAWorkerCountsAPrompt(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	bustest.Run(t, func(ctx context.Context) error {
		return b.ServeTokens(ctx, "w.1", func(_ context.Context, prompt []byte) (int64, error) {
			if string(prompt) == "odd" {
				return 99, fault.New(fault.Engine, "no tokenizer")
			}
			return int64(len(prompt)), nil
		})
	})
	n, err := counted(t, b, "w.1", []byte("12345"))
	require.NoError(t, err)
	require.Equal(t, int64(5), n)
	n, err = counted(t, b, "w.1", []byte(strings.Repeat("x", bus.PromptBytesMax)))
	require.NoError(t, err)
	require.Equal(t, int64(bus.PromptBytesMax), n)
	_, err = b.CountTokens(t.Context(), "w.1", []byte(strings.Repeat("x", bus.PromptBytesMax+1)))
	require.True(t, fault.Is(err, fault.TooLarge))
	_, err = counted(t, b, "w.1", []byte("odd"))
	require.True(t, fault.Is(err, fault.Busy), "%v", err)
	_, err = b.CountTokens(t.Context(), "w.2", nil)
	require.True(t, bus.Vanished(err), "%v", err)
}

func TestAWorkerCountsSoManyPromptsAtOnce(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	begun, release := make(chan struct{}, 100), make(chan struct{})
	bustest.Run(t, func(ctx context.Context) error {
		return b.ServeTokens(ctx, "w", func(context.Context, []byte) (int64, error) {
			begun <- struct{}{}
			<-release
			return 7, nil
		})
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			n, err := counted(t, b, "w", []byte("x"))
			if err != nil || n != 7 {
				t.Errorf("%d %v", n, err)
			}
		})
	}
	for range 4 {
		<-begun
	}
	_, err := b.CountTokens(t.Context(), "w", []byte("x"))
	require.True(t, fault.Is(err, fault.Busy), "the fifth is told at once")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = b.CountTokens(ctx, "w", []byte("x"))
	require.Error(t, err)
	close(release)
	all.Wait()
	n, err := counted(t, b, "w", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, int64(7), n)
}
