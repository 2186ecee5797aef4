package main_test

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
)

// The marker is planted in every part of a request, and the simulator answers
// with it.
const marker = "XYZZY-plugh-4711"

// collector is an OTLP endpoint of a few lines.
func collector(t *testing.T) (url string, spans func() string) {
	t.Helper()
	var got lockedBuffer
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(&got, r.Body)
	}))
	t.Cleanup(s.Close)
	return s.URL, got.String
}

func TestContentIsNowhereButInMemory(t *testing.T) {
	otlp, spans := collector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp) // for every program; so this test is serial
	t.Setenv("TRACE_RATIO", "1")
	c := newCluster(t, shape{})
	stored := bustest.Stored(t, c.bus)
	plant := func(directive string, stream bool) ask {
		a := hello(marker+" [[sim echo "+directive+"]]", stream)
		a.Messages = append([]map[string]any{
			{"role": "system", "content": "system " + marker},
			{"role": "assistant", "content": nil, "reasoning_content": marker, "tool_calls": []map[string]any{
				{"id": "call_1", "type": "function", "function": map[string]any{"name": "f", "arguments": `{"a":"` + marker + `"}`}},
			}},
			{"role": "tool", "tool_call_id": "call_1", "content": marker},
		}, a.Messages...)
		return a
	}
	for _, stream := range []bool{false, true} {
		r := c.fold(c.chat(c.key, plant("", stream)))
		require.Contains(t, r.Text, marker, "the marker travels")
		for _, directive := range []string{"status=400", "status=500", "cut=1", "malformed=1", "object_content"} {
			c.fold(c.chat(c.key, plant(directive, stream)))
		}
		// Refused requests, too.
		bad := strings.ReplaceAll(`{"model":"glm-5.2","messages":[{"role":"user","content":"M"}],"max_tokens":"M"}`, "M", marker)
		c.body(c.do("POST", "/v1/chat/completions", c.key, strings.NewReader(bad)))
		c.body(c.do("POST", "/v1/chat/completions", c.key, strings.NewReader(`{"model":"`+marker+`","messages":[`)))
		c.body(c.do("POST", "/v1/chat/completions", "sk-engy-"+marker, strings.NewReader(bad)))
		c.body(c.do("GET", "/v1/models?key="+marker, "", nil))
	}
	// Raw prompts, continued, echoed and scored, and such that are refused.
	for _, more := range []string{`"logprobs":1`, `"echo":true,"logprobs":1`, `"logprob_start_len":1`, `"stream":true`, `"suffix":"M"`, `"logprob_start_len":"M"`} {
		for _, directive := range []string{"tokens=2", "status=400", "status=500", "cut=1"} {
			body := `{"model":"glm-5.2","prompt":"M [[sim ` + directive + `]]","max_tokens":3,` + more + `}`
			c.body(c.do("POST", "/v1/completions", c.key, strings.NewReader(strings.ReplaceAll(body, "M", marker))))
		}
	}
	// A client that leaves, a worker that is killed, an edge that is killed.
	_, lines, leave := c.open(plant("tokens=900 itl=50ms", true))
	require.True(t, lines.Scan())
	leave()
	c.running(0)
	c.open(plant("tokens=900 itl=50ms", true))
	c.running(1)
	c.workers[0].kill()
	c.eventually("the lost job is settled", func() bool { return c.balance().OpenHolds == 0 })
	c.addWorker()
	c.eventually("the new worker serves", func() bool {
		resp := c.chat(c.key, plant("", false))
		return strings.Contains(c.body(resp), marker)
	})
	c.open(plant("tokens=900 itl=50ms", true))
	c.running(1)
	c.edge.kill()
	c.running(0)
	c.eventually("every hold ends", func() bool { return c.balance().OpenHolds == 0 })
	for _, w := range c.workers[1:] {
		require.Zero(t, w.stop())
	}

	clean := func(where, what string) {
		require.NotContains(t, what, marker, where)
		require.NotContains(t, what, c.key, where)
	}
	require.NotEmpty(t, stored())
	clean("streams and buckets", stored())
	clean("tables", pgtest.Dump(t, c.dsn))
	require.NotEmpty(t, spans())
	clean("spans", spans())
	for _, p := range c.logs {
		if p.name == "sim" {
			continue // the engine is not ours to judge
		}
		clean("log of "+p.name, p.log.String())
		clean("files of "+p.name, files(t, p.cmd.Dir))
	}
	clean("data directory", files(t, c.data))
}

// files gives the bytes of all files below a folder.
func files(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // files of a running server come and go
		}
		raw, err := os.ReadFile(path)
		if err == nil {
			all.WriteString(path + "\n")
			all.Write(raw)
		}
		return nil
	}))
	return all.String()
}
