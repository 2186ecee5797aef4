package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
)

func TestAPromptIsCountedByTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := ""
	w.eventually("the worker joins", func() bool {
		for worker, beat := range w.fleet {
			id = worker
			require.Contains(t, beat.Features, "tokenize")
		}
		return id != ""
	})
	ask := func(model string) (int64, error) {
		prompt, err := bus.Marshal(&llm.Request{Model: model, Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim("hello")}}}}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return w.bus.CountTokens(ctx, id, prompt)
	}
	// The engine's time for it is short, and may not do on a busy machine.
	var n int64
	var err error
	require.Eventually(t, func() bool { n, err = ask("glm-5.2"); return err == nil }, patience, time.Millisecond)
	require.Equal(t, int64(11), n)
	require.Zero(t, w.engine.calls.Load(), "nothing runs")
	_, err = ask("kimi-k3")
	require.Error(t, err)
	// An engine that takes too long is not waited for.
	w.engine.down.Store(true)
	began := time.Now()
	_, err = ask("glm-5.2")
	require.Error(t, err)
	require.Less(t, time.Since(began), patience)
}
