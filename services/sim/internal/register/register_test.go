package register_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/sim/internal/register"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	t.Run("slots are taken and given back", func(t *testing.T) {
		t.Parallel()
		r := register.New(1, 1, 1)
		none := func(error) {}
		require.NoError(t, r.Start("a", "m", none))
		require.ErrorIs(t, r.Start("b", "m", none), register.ErrBusy)
		require.Equal(t, 1, r.Running("m"))
		r.End("a", "m", register.Work{Prompt: 3, Completion: 2})
		require.NoError(t, r.Start("b", "m", none))
		r.End("b", "m", register.Work{Outcome: register.Aborted})
		require.Equal(t, register.Counts{Total: 2, Finished: 1, Aborted: 1, PromptTokens: 3, CompletionTokens: 2}, r.Counts())
	})
	t.Run("an abort reaches the one that is meant", func(t *testing.T) {
		t.Parallel()
		r := register.New(2, 1, 1)
		a, endA := context.WithCancelCause(t.Context())
		b, endB := context.WithCancelCause(t.Context())
		defer endB(nil)
		require.NoError(t, r.Start("a", "m", endA))
		require.NoError(t, r.Start("b", "m", endB))
		require.False(t, r.Abort("c"))
		require.True(t, r.Abort("a"))
		require.ErrorIs(t, context.Cause(a), register.ErrAborted)
		require.NoError(t, b.Err())
	})
	t.Run("kept bodies hold at both bounds, the oldest leave", func(t *testing.T) {
		t.Parallel()
		r := register.New(1, 3, 10)
		kept := func(name string) bool { _, ok := r.Kept(name); return ok }
		r.Keep("a", make([]byte, 4))
		r.Keep("b", make([]byte, 6))
		require.True(t, kept("a") && kept("b"))
		r.Keep("c", make([]byte, 1))
		require.False(t, kept("a"))
		r.Keep("d", nil)
		r.Keep("e", nil)
		require.False(t, kept("b"))
		require.True(t, kept("c") && kept("d") && kept("e"))
		r.Keep("c", make([]byte, 10))
		require.True(t, kept("c"))
		r.Keep("c", make([]byte, 11))
		require.False(t, kept("c"))
	})
}
