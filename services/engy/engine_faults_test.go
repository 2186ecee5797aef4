package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// littleEngine serves glm-5.2, answers a chat as it is told, and knows nothing else: no
// tokenizer, no usage. It gives its address.
func littleEngine(t *testing.T, chat http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"glm-5.2","object":"model","owned_by":"me","max_model_len":8192}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", chat)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// says answers with chunks: a delta each, and the last with the reason for the end.
func says(finish string, deltas ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, d := range deltas {
			_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":%s,"finish_reason":null}]}`+"\n\n", d)
		}
		_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`+"\n\ndata: [DONE]\n\n", finish)
	}
}

// secondAt is second with a worker that drives another engine.
func (c *cluster) secondAt(engine string) {
	c.t.Helper()
	c.addWorker("WORKER_ENGINE="+engine, "WORKER_MODELS=glm-5.2,deepseek-v4.1-flash=glm-5.2")
	c.eventually("the second worker is known", func() bool {
		return strings.Contains(c.body(c.do("GET", "/v1/models", "", nil)), "deepseek-v4.1-flash")
	})
}

// An engine that stands still answers nothing and closes nothing. Its worker finds out,
// and does not keep what it has for the grace.
func TestAnEngineThatStandsStillHoldsNoAnswer(t *testing.T) {
	t.Parallel()
	other := littleEngine(t, says("stop", `{"content":"here"}`, `{"content":" I am"}`))
	c := newCluster(t, shape{workerEnv: []string{"WORKER_GRACE=1h"}})
	before := c.balance()
	_, lines, _ := c.open(hello("hi [[sim tokens=900 itl=200ms]]", true))
	chunks(t, lines, 2)
	waits := make(chan reply, 1)
	go func() { waits <- c.fold(c.chat(c.key, hello("hi [[sim tokens=5 ttft=10m]]", true))) }()
	c.running(2)
	c.secondAt(other)
	sim := slices.IndexFunc(c.logs, func(p *process) bool { return p.name == "sim" })
	require.NoError(t, c.logs[sim].cmd.Process.Signal(syscall.SIGSTOP))
	var moved reply
	select {
	case moved = <-waits:
	case <-time.After(patience):
		require.FailNow(t, "the answer does not come")
	}
	require.Nil(t, moved.Error)
	require.Equal(t, "worker-2", moved.Engy.Worker)
	require.Equal(t, "here I am", moved.Text)
	// What has begun cannot move.
	failed(t, lines)
	require.Equal(t, moved.Engy.ChargedMicro, int64(c.settled(before)))
}

// An engine that ends a connection without a word has failed, and nothing is overloaded.
func TestAnEngineThatHangsUpHasFailed(t *testing.T) {
	t.Parallel()
	hangsUp := littleEngine(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	c := newCluster(t, shape{workerEnv: []string{"WORKER_ENGINE=" + hangsUp}})
	before := c.balance()
	for _, stream := range []bool{true, false} {
		resp := c.chat(c.key, hello("hi", stream))
		require.Equal(t, 502, resp.StatusCode)
		r := c.fold(resp)
		require.Equal(t, &apiError{Message: "the engine cannot be reached", Type: "api_error", Code: 502}, r.Error)
	}
	require.Zero(t, c.settled(before))
	c.secondAt(c.sim)
	for range 5 {
		require.Equal(t, int64(3), c.fold(c.chat(c.key, hello("[[sim tokens=3]]", true))).Usage.Completion)
	}
}

// Nobody tells how long the prompt was: the operator hears of it once, and the answer
// is not free.
func TestAnEngineThatCountsNothingIsChargedByTheEstimate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{workerEnv: []string{"WORKER_ENGINE=" + littleEngine(t, says("stop", `{"content":"a"}`, `{"content":"b"}`))}})
	before := c.balance()
	var charged int64
	for _, stream := range []bool{true, false, true} {
		r := c.fold(c.chat(c.key, hello("hi", stream)))
		require.Nil(t, r.Error)
		require.Equal(t, "ab", r.Text)
		require.Equal(t, usage{Prompt: 16, Completion: 2}, r.Usage)
		require.Positive(t, r.Engy.ChargedMicro)
		charged += r.Engy.ChargedMicro
	}
	require.Equal(t, charged, int64(c.settled(before)))
	require.Equal(t, 1, strings.Count(c.workers[0].log.String(), "the engine does not tell how long prompts are"))
}
