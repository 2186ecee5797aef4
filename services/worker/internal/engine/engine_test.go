package engine_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/services/worker/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenDoesNotWaitForTheEngine(t *testing.T) {
	t.Parallel()
	e, err := engine.Open(engine.Config{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	e.Close()
	e, err = engine.Open(engine.Config{URL: "nowhere"})
	require.Error(t, err)
	require.Nil(t, e)
	require.True(t, e == nil, "and not a nil pointer in an interface")
}

func TestOpenFindsTheKind(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"vllm","max_model_len":8192}]}`)
	}))
	defer srv.Close()
	e, err := engine.Open(engine.Config{URL: srv.URL})
	require.NoError(t, err)
	defer e.Close()
	got, err := e.Facts(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.Facts{Kind: "vllm", Models: []engine.Model{{
		Name: "m", Window: 8192, Modalities: []string{"text"},
		Features: []string{"tools", "logprobs", "tokenize", "completions", "token_ids", "score"},
	}}}, got)
	require.NoError(t, e.Health(t.Context()))
}
