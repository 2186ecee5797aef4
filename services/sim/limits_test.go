package sim_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/sim"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	e := start(t)
	const path = "/v1/chat/completions"
	t.Run("a body holds at its bound", func(t *testing.T) {
		t.Parallel()
		body := []byte(`{"messages":[{"role":"user","content":"x"}]}`)
		body = append(body, bytes.Repeat([]byte(" "), sim.BodyBytesMax-len(body))...)
		require.Equal(t, http.StatusOK, e.post(t, path, body).StatusCode)
		status, _ := e.refused(t, path, append(body, ' '))
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
	})
	t.Run("headers hold near their bound", func(t *testing.T) {
		t.Parallel()
		for n, want := range map[int]int{
			sim.HeaderBytesMax - 1024: http.StatusOK,
			// The library reads up to one buffer more than it is told.
			sim.HeaderBytesMax + 16<<10: http.StatusRequestHeaderFieldsTooLarge,
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/health", nil)
			require.NoError(t, err)
			req.Header.Set("X-Long", strings.Repeat("x", n))
			res, err := e.client.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, want, res.StatusCode)
		}
	})
	t.Run("a window holds at its bound, for prompts and for what they ask", func(t *testing.T) {
		t.Parallel()
		// A chat of one message costs four tokens and its text.
		prompt := func(tokens, answer int) object {
			b := user(strings.TrimSpace(strings.Repeat("a ", tokens-4)), object{"model": "small"})
			if answer > 0 {
				b["max_tokens"] = answer
			}
			return b
		}
		r := e.chat(t, prompt(255, 0))
		require.Equal(t, 255, r.Usage.Prompt)
		require.Equal(t, 1, r.Usage.Completion)
		require.Equal(t, "length", r.Choices[0].Finish)
		status, message := e.refused(t, path, prompt(256, 0))
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, message, "maximum context length is 256 tokens")
		e.chat(t, prompt(200, 56))
		status, message = e.refused(t, path, prompt(200, 57))
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, message, "57")
	})
	t.Run("slots hold at their bound", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.Slots = 2 })
		for range 2 {
			_, err := e.open(t, path, user("x [[sim stall=1]]")).next()
			require.NoError(t, err)
		}
		res := e.post(t, path, user("x"))
		require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		require.Equal(t, "1", res.Header.Get("Retry-After"))
		e.post(t, "/abort_request", object{"abort_all": true})
		e.until(t, func(c counts) bool { return c.Running == 0 })
		e.chat(t, user("x"))
		require.Equal(t, 1, e.counts(t).Refused)
	})
	t.Run("numbers of a request hold at their bounds", func(t *testing.T) {
		t.Parallel()
		many := func(n int) []string { return strings.Split(strings.Repeat("never,", n-1)+"never", ",") }
		tools := func(n int) []object {
			list := make([]object, n)
			for i := range list {
				list[i] = object{"type": "function", "function": object{"name": fmt.Sprint("tool", i)}}
			}
			return list
		}
		for _, one := range []struct{ good, bad object }{
			{object{"n": sim.ChoicesMax}, object{"n": sim.ChoicesMax + 1}},
			{object{"n": 1}, object{"n": 0}},
			{object{"logprobs": true, "top_logprobs": sim.TopLogprobsMax}, object{"logprobs": true, "top_logprobs": sim.TopLogprobsMax + 1}},
			{object{"logprobs": true}, object{"top_logprobs": 1}},
			{object{"stop": many(sim.StopsMax)}, object{"stop": many(sim.StopsMax + 1)}},
			{object{"tools": tools(sim.ToolsMax)}, object{"tools": tools(sim.ToolsMax + 1)}},
			{object{"max_tokens": 1}, object{"max_tokens": 0}},
			{object{"model": "small"}, object{"messages": []object{}}},
		} {
			e.chat(t, user("x", one.good))
			status, _ := e.refused(t, path, user("x", one.bad))
			require.Equal(t, http.StatusBadRequest, status, one.bad)
		}
	})
	t.Run("wrong requests are refused with their reason", func(t *testing.T) {
		t.Parallel()
		for body, part := range map[string]string{
			`{"messages":[{"role":"user","content":"x"}],"max_tokens":"many"}`: "/max_tokens",
			`{"messages":[{"role":"user","content":[{"type":"hologram"}]}]}`:   "hologram",
			`{"messages":[{"role":"wizard","content":"x"}]}`:                   "wizard",
			`{"messages":`: "not valid JSON",
			`[]`:           "",
			`{"messages":[{"role":"user","content":"x"}],"tool_choice":"required"}`:  "no tools",
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{}}]}`: "no function name",
		} {
			status, message := e.refused(t, path, []byte(body))
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, message, part)
		}
		status, _ := e.refused(t, path, user("x", object{"model": "ghost"}))
		require.Equal(t, http.StatusNotFound, status)
		for body, part := range map[string]string{
			`{}`: "missing", `{"prompt":[0]}`: "vocabulary",
			`{"prompt":["a","b"]}`: "prompt", `{"prompt":""}`: "no tokens",
		} {
			status, message := e.refused(t, "/v1/completions", []byte(body))
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, message, part)
		}
	})
	t.Run("the configuration holds at its bounds", func(t *testing.T) {
		t.Parallel()
		good := func() sim.Config {
			return sim.Config{
				Listen: "127.0.0.1:0", Models: sim.Models{{ID: "m", Window: sim.WindowMax}}, Slots: sim.SlotsMax,
				CacheBlocks: sim.CacheBlocksMax, AnswerTokens: sim.AnswerTokensMax, ThinkTokens: sim.AnswerTokensMax, TTFT: sim.PaceMax, ITL: sim.PaceMax, Drain: sim.PaceMax,
			}
		}
		require.NoError(t, good().Validate())
		for _, over := range []func(*sim.Config){
			func(c *sim.Config) { c.Models[0].Window++ },
			func(c *sim.Config) { c.Slots++ },
			func(c *sim.Config) { c.CacheBlocks++ },
			func(c *sim.Config) { c.AnswerTokens++ },
			func(c *sim.Config) { c.ThinkTokens++ },
			func(c *sim.Config) { c.TTFT++ },
			func(c *sim.Config) { c.ITL++ },
			func(c *sim.Config) { c.Drain++ },
			func(c *sim.Config) {
				for i := range sim.ModelsMax {
					c.Models = append(c.Models, sim.Model{ID: fmt.Sprint(i)})
				}
			},
		} {
			c := good()
			over(&c)
			require.Error(t, c.Validate())
		}
	})
}

// BenchmarkStreams shows what a token costs from the simulator to a client that
// only throws it away, for one stream and for many.
func BenchmarkStreams(b *testing.B) {
	for _, streams := range []int{1, 500} {
		b.Run(fmt.Sprintf("%d streams", streams), func(b *testing.B) {
			benchmarkStreams(b, streams)
		})
	}
}

func benchmarkStreams(b *testing.B, streams int) {
	b.Helper()
	e := start(b)
	each := max(1, b.N/streams)
	body := fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":"x [[sim tokens=%d]]"}]}`, each)
	done := make(chan error, streams)
	b.ReportAllocs()
	b.ResetTimer()
	for range streams {
		go func() {
			res, err := e.client.Post(e.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
			done <- err
		}()
	}
	for range streams {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
