package pace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/sim/internal/pace"
)

func TestPacer(t *testing.T) {
	t.Parallel()
	t.Run("a late token does not make the next ones late", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			p := pace.New(time.Second, 100*time.Millisecond)
			require.Zero(t, p.Due(10))
			for i := range 10 {
				require.NoError(t, p.Token(t.Context(), i))
				if i == 3 {
					time.Sleep(250 * time.Millisecond)
				}
			}
			require.Equal(t, 1900*time.Millisecond, time.Since(begun))
			require.Equal(t, 10, p.Due(20))
			require.Equal(t, 5, p.Due(5))
		})
	})
	t.Run("a wait ends with its context, for its cause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := errors.New("gone")
			time.AfterFunc(time.Second, func() { cancel(gone) })
			p := pace.New(time.Hour, 0)
			require.ErrorIs(t, p.Token(ctx, 0), gone)
			require.ErrorIs(t, pace.New(0, 0).Token(ctx, 5), gone)
		})
	})
	t.Run("without a pace nothing waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			p := pace.New(0, 0)
			require.NoError(t, p.Token(t.Context(), 1_000_000))
			require.Zero(t, time.Since(begun))
			require.Equal(t, 7, p.Due(7))
		})
	})
}
