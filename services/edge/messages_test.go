package edge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge"
)

// message posts to a route of Messages, with a key if there is one.
func (w *world) message(path, secret, body string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.addr+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if secret != "" {
		req.Header.Set("x-api-key", secret)
	}
	tr := &http.Transport{}
	w.t.Cleanup(tr.CloseIdleConnections)
	resp, err := (&http.Client{Transport: tr}).Do(req)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// counted asks how many tokens a prompt has.
func (w *world) counted(body string) int64 {
	w.t.Helper()
	resp := w.message("/v1/messages/count_tokens?beta=true", "", body)
	require.Equal(w.t, 200, resp.StatusCode)
	var answer struct {
		Tokens int64 `json:"input_tokens"`
	}
	require.NoError(w.t, json.Unmarshal([]byte(w.text(resp)), &answer))
	return answer.Tokens
}

func TestACountNeedsNoKeyNoWorkerAndNoMoney(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	last := int64(0)
	for _, more := range []string{
		``,
		`,"system":"` + strings.Repeat("rule ", 400) + `"`,
		`,"system":"` + strings.Repeat("rule ", 400) + `","tools":[{"name":"a","input_schema":{"type":"object"}},{"name":"b","input_schema":{}},{"name":"c","input_schema":{}}]`,
	} {
		now := w.counted(`{"model":"engy/kimi-k3[1m]","messages":[{"role":"user","content":"hello"}]` + more + `}`)
		require.Greater(t, now, last)
		last = now
	}
	seen := w.counted(`{"model":"kimi-k3","messages":[{"role":"user","content":[{"type":"text","text":"hello"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}`)
	require.Greater(t, seen, last)
	resp := w.message("/v1/messages/count_tokens", "", `{"model":"claude-sonnet-5","messages":[{"role":"user","content":"hello"}]}`)
	require.Equal(t, 404, resp.StatusCode)
	require.Contains(t, w.text(resp), `"type":"not_found_error"`)
	require.Equal(t, 401, w.message("/v1/messages", "", `{"model":"glm-5.2","messages":[{"role":"user","content":"hello"}]}`).StatusCode)
	w.stop()
	require.Empty(t, w.recorded(0))
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.holds)
}

func TestCountsFollowWhatEnginesCount(t *testing.T) {
	t.Parallel()
	const prompt = 1500
	w := newWorld(t, func(w *world) {
		w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
			_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Text, Text: "hello"}, {Kind: llm.Done, Finish: llm.Stop}},
				bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: prompt, Cached: 1000, Completion: 5}})
		}
	})
	body := `{"model":"glm-5.2","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("some words of a prompt ", 200) + `"}]}`
	before := w.counted(body)
	require.Less(t, before, int64(prompt))
	for range 100 {
		text := w.text(w.message("/v1/messages", key, body))
		require.Contains(t, text, `"usage":{"input_tokens":500,"cache_creation_input_tokens":0,"cache_read_input_tokens":1000,"output_tokens":5}`)
	}
	after := w.counted(body)
	require.InDelta(t, prompt, after, prompt/50)
	require.GreaterOrEqual(t, after, int64(prompt))
	// The message begins with the same number.
	text := w.text(w.message("/v1/messages", key, body))
	require.Contains(t, text, fmt.Sprintf(`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,`, after))
	// A thread that goes on, and a model that nobody knows, are quick refusals.
	resp := w.message("/v1/messages", key, `{"model":"glm-5.2","thread":{"type":"continue","previous_message_id":"msg_x"},"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, 404, resp.StatusCode)
	require.Contains(t, w.text(resp), `"details":{"error_code":"thread_not_found"}`)
	resp = w.message("/v1/messages", key, strings.Replace(body, "glm-5.2", "claude-sonnet-5", 1))
	require.Equal(t, 404, resp.StatusCode)
	require.Contains(t, w.text(resp), `{"type":"error","error":{"type":"not_found_error","message":"model 'claude-sonnet-5' not found"}`)
}

func TestAWorkersTokenizerCountsWhatItMaySee(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	asked := make(chan llm.Request, 100)
	w.run(func(ctx context.Context) error {
		return w.bus.ServeTokens(ctx, "counter", func(_ context.Context, prompt []byte) (int64, error) {
			var req llm.Request
			err := bus.Unmarshal(prompt, &req)
			asked <- req
			return 33, err
		})
	})
	require.NoError(t, w.bus.Beat(t.Context(), bus.Heartbeat{
		Worker: "counter", Name: "counter", Model: "kimi-k3", Region: "eu", Classes: []bus.Class{bus.Open}, Slots: 1,
		Modalities: []string{"text"}, Features: []string{"tokenize"}, Time: time.Now(),
	}))
	body := func(content, more string) string {
		return `{"model":"engy/kimi-k3","messages":[{"role":"user","content":` + content + `}]` + more + `}`
	}
	// Not so often that the gate takes it for too much.
	require.Eventually(t, func() bool { return w.counted(body(`"hello"`, ``)) == 33 }, patience, 100*time.Millisecond)
	req := <-asked
	require.Equal(t, "kimi-k3", req.Model)
	require.Len(t, req.Items, 1)
	for name, other := range map[string]string{
		"another region":    body(`"hello"`, `,"provider":{"region_only":["us"]}`),
		"certified workers": body(`"hello"`, `,"provider":{"zdr":true}`),
		"an image":          body(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]`, ``),
		"a prompt too long": body(`"`+strings.Repeat("x", bus.PromptBytesMax+1)+`"`, ``),
	} {
		for len(asked) > 0 {
			<-asked
		}
		require.NotEqual(t, int64(33), w.counted(other), name)
		require.Empty(t, asked, name)
	}
}

func TestAnOriginIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	for origin, good := range map[string]bool{
		"https://page.example": true, "http://localhost:3000": true, "*": true,
		"page.example": false, "https://page.example/": false, "https://": false, "https://page.example/x": false, "": false, ":": false,
	} {
		c := edge.Config{Listen: ":0", Region: "eu", Deadline: 1, HoldLease: 1, KeepAlive: 1, ClaimWait: 1, Grace: 1, Origins: []string{origin}}
		require.Equal(t, good, c.Validate() == nil, "%q", origin)
	}
}
