package openaihttp_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/facts"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// pages answers paths with bodies, and 404 elsewhere.
func pages(bodies map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, body)
	})
}

func model(name string, window int64, features []string, modalities ...string) facts.Model {
	return facts.Model{Name: name, Window: window, Features: features, Modalities: append([]string{"text"}, modalities...)}
}

func TestFactsTellWhatAnEngineServes(t *testing.T) {
	t.Parallel()
	usual, all := []string{"tools", "logprobs", "completions"}, []string{"tools", "logprobs", "tokenize", "completions", "token_ids", "score"}
	ids := append(slices.Clone(usual), "token_ids")
	list := func(owner, rest string) string {
		return `{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"` + owner + `"` + rest + `}]}`
	}
	const (
		info  = `{"model_path":"/m","is_generation":true,"has_image_understanding":true}`
		props = `{"default_generation_settings":{"n_ctx":512},"total_slots":4,"modalities":{"vision":true,"audio":true}}`
	)
	for name, c := range map[string]struct {
		bodies map[string]string
		want   facts.Engine
	}{
		"vllm": {
			map[string]string{"/v1/models": list("vllm", `,"root":"/m","max_model_len":8192`)},
			facts.Engine{Kind: openaihttp.VLLM, Models: []facts.Model{model("m", 8192, all)}},
		},
		"sglang": {
			map[string]string{"/v1/models": list("sglang", `,"max_model_len":4096`), "/get_model_info": info},
			facts.Engine{Kind: openaihttp.SGLang, Models: []facts.Model{model("m", 4096, all, "image")}},
		},
		"an older sglang": {
			map[string]string{"/v1/models": list("somebody", ""), "/get_model_info": info, "/get_server_info": `{"context_length":2048}`},
			facts.Engine{Kind: openaihttp.SGLang, Models: []facts.Model{model("m", 2048, all, "image")}},
		},
		"the simulator": {
			map[string]string{"/v1/models": list("engy-simulator", `,"max_model_len":8192`), "/get_model_info": info},
			facts.Engine{Kind: openaihttp.Simulator, Models: []facts.Model{model("m", 8192, all)}},
		},
		"llama.cpp": {
			map[string]string{"/v1/models": list("llamacpp", `,"meta":{"n_ctx_train":1024}`), "/props": props},
			facts.Engine{Kind: openaihttp.LlamaCpp, Models: []facts.Model{model("m", 512, ids, "image", "audio")}},
		},
		"llama.cpp behind another name": {
			map[string]string{"/v1/models": list("me", ""), "/props": props},
			facts.Engine{Kind: openaihttp.LlamaCpp, Models: []facts.Model{model("m", 512, ids, "image", "audio")}},
		},
		"ollama": {
			map[string]string{
				"/v1/models": list("library", ""), "/api/version": `{"version":"0.17.4"}`,
				"/api/show": `{"model_info":{"general.architecture":"llama","llama.context_length":1024},"capabilities":["completion","tools","vision"]}`,
				"/api/ps":   `{"models":[{"name":"other","context_length":1},{"name":"m","context_length":512}]}`,
			},
			facts.Engine{Kind: openaihttp.Ollama, Models: []facts.Model{model("m", 512, []string{"logprobs", "tools"}, "image")}},
		},
		"ollama with nothing loaded": {
			map[string]string{
				"/v1/models": list("somebody", ""), "/api/version": `{"version":"0.17.4"}`,
				"/api/show": `{"model_info":{"llama.context_length":1024},"capabilities":["completion"]}`,
			},
			facts.Engine{Kind: openaihttp.Ollama, Models: []facts.Model{model("m", 1024, []string{"logprobs"})}},
		},
		"another": {
			map[string]string{"/v1/models": list("acme", "")},
			facts.Engine{Kind: openaihttp.OpenAI, Models: []facts.Model{model("m", 0, usual)}},
		},
		"one without models": {
			map[string]string{"/v1/models": `{"object":"list","data":[]}`},
			facts.Engine{Kind: openaihttp.OpenAI},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := open(t, openaihttp.Config{}, pages(c.bodies)).Facts(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestAKindThatIsGivenIsNotAskedFor(t *testing.T) {
	t.Parallel()
	e := open(t, openaihttp.Config{Kind: openaihttp.OpenAI}, pages(map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"vllm"}]}`}))
	got, err := e.Facts(t.Context())
	require.NoError(t, err)
	require.Equal(t, openaihttp.OpenAI, got.Kind)
}

// An engine that is replaced by one of another kind is spoken to as such from
// the next facts on.
func TestGenerateFindsTheKindByItself(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 2)
	owners := make(chan string, 2)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"`+<-owners+`"}]}`)
	})
	mux.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		serve(fixture(t, "vllm"))(w, r)
	})
	e := open(t, openaihttp.Config{}, mux)
	owners <- "vllm"
	mustAnswer(t, e)
	require.Contains(t, <-bodies, "continuous_usage_stats")
	owners <- "acme"
	_, err := e.Facts(t.Context())
	require.NoError(t, err)
	mustAnswer(t, e)
	require.NotContains(t, <-bodies, "continuous_usage_stats")
}

func TestModelsHaveABound(t *testing.T) {
	t.Parallel()
	entry := func(i int) string { return `{"id":"m` + strconv.Itoa(i) + `","owned_by":"vllm"}` }
	entries := make([]string, 0, openaihttp.ModelsMax+1)
	for i := range openaihttp.ModelsMax + 1 {
		entries = append(entries, entry(i))
	}
	e := open(t, openaihttp.Config{}, pages(map[string]string{"/v1/models": `{"data":[` + strings.Join(entries, ",") + `]}`}))
	got, err := e.Facts(t.Context())
	require.NoError(t, err)
	require.Len(t, got.Models, openaihttp.ModelsMax)
}

func TestFactsThatMakeNoSenseAreAFault(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `{"data":{}}`, `<html>`, `{"data":[{"id":1}]}`} {
		_, err := open(t, openaihttp.Config{}, pages(map[string]string{"/v1/models": body})).Facts(t.Context())
		require.True(t, fault.Is(err, fault.Engine), err)
	}
	_, err := open(t, openaihttp.Config{}, pages(nil)).Facts(t.Context())
	require.True(t, fault.Is(err, fault.Engine), err)
}

func TestHealthIsWhatTheEngineSays(t *testing.T) {
	t.Parallel()
	status := make(chan int, 1)
	e := open(t, openaihttp.Config{Kind: openaihttp.LlamaCpp}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			w.WriteHeader(<-status)
		}
	}))
	for code, want := range map[int]fault.Code{200: "", 503: fault.Busy, 500: fault.Engine} {
		status <- code
		err := e.Health(t.Context())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.True(t, fault.Is(err, want), err)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []openaihttp.Config{
		{},
		{URL: "127.0.0.1:8000"},
		{URL: "ftp://x"},
		{URL: "http://"},
		{URL: "http://user:pass@x"},
		{URL: "http://x/?a=b"},
		{URL: "http://x", Kind: "other"},
	} {
		_, err := openaihttp.New(cfg)
		require.Error(t, err, cfg.URL)
		require.NotContains(t, err.Error(), "pass")
	}
}

// An engine that has no time for a question may have it for its answers.
func TestAnEngineThatSendsIsAlive(t *testing.T) {
	t.Parallel()
	sends := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for {
			select {
			case <-sends:
				_, _ = io.WriteString(w, hello)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, mux)
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return e.Health(ctx)
	}
	require.ErrorIs(t, probe(), openaihttp.ErrLost, "nothing comes at all")

	ctx, lose := context.WithCancelCause(t.Context())
	came, over := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := e.Generate(ctx, "m", ask(), func(llm.Event) error { came <- struct{}{}; return nil })
		over <- err
	}()
	alive := make(chan error, 1)
	require.Eventually(t, func() bool {
		go func() { alive <- probe() }()
		sends <- struct{}{}
		<-came
		return <-alive == nil // unless the token was there before the probe
	}, patience, time.Millisecond)
	require.ErrorIs(t, probe(), openaihttp.ErrLost, "nothing comes any more")
	lose(openaihttp.ErrLost)
	require.ErrorIs(t, <-over, openaihttp.ErrLost)
}
