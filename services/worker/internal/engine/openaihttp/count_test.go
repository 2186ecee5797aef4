package openaihttp_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

func TestAPromptIsCountedWhereTheEngineCan(t *testing.T) {
	t.Parallel()
	answer := `{"count":11,"max_model_len":4096,"tokens":[1]}`
	bodies := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/tokenize", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		_, _ = io.WriteString(w, answer)
	})
	for kind, counts := range map[string]bool{
		openaihttp.VLLM: true, openaihttp.SGLang: true, openaihttp.Simulator: true,
		openaihttp.LlamaCpp: false, openaihttp.Ollama: false, openaihttp.OpenAI: false,
	} {
		n, err := open(t, openaihttp.Config{Kind: kind}, mux).Count(t.Context(), "m", ask())
		if !counts {
			require.True(t, fault.Is(err, fault.Engine), kind)
			continue
		}
		require.NoError(t, err, kind)
		require.Equal(t, int64(11), n)
		require.JSONEq(t, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, <-bodies)
	}
}

func TestACountEndsWithItsContext(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(begun)
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := e.Count(ctx, "m", ask())
	require.True(t, fault.Is(err, fault.Canceled), "%v", err)
}
