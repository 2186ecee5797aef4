package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/sim"
	"github.com/engy-ai/engy/services/sim/internal/script"
)

// asks sends the same directives as a stream and gives its lines and its end.
func (e *engine) asks(t *testing.T, directives string, more ...object) ([]string, error) {
	t.Helper()
	return e.open(t, "/v1/chat/completions", user("hello [[sim "+directives+"]]", more...)).rest(t)
}

func TestEnds(t *testing.T) {
	t.Parallel()
	e := start(t)
	text := func(t *testing.T, data []string) (tokens int) {
		t.Helper()
		for _, line := range data {
			var r reply
			if json.Unmarshal([]byte(line), &r) == nil && len(r.Choices) > 0 && r.Choices[0].Delta.Content != "" {
				tokens++
			}
		}
		return tokens
	}
	t.Run("cut resets the connection in the middle of an event", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "cut=3")
		require.Error(t, err)
		require.Equal(t, 3, text(t, data))
		res := e.post(t, "/v1/chat/completions", user("x [[sim cut=3]]"))
		_, err = io.ReadAll(res.Body)
		require.Error(t, err)
	})
	t.Run("malformed sends a broken event and then ends in good order", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "malformed=2")
		require.NoError(t, err)
		require.Equal(t, 2, text(t, data))
		var r reply
		require.Error(t, json.Unmarshal([]byte(data[len(data)-1]), &r))
		res := e.post(t, "/v1/chat/completions", user("x [[sim malformed=2]]"))
		require.Error(t, json.UnmarshalRead(res.Body, &r))
	})
	t.Run("no_done and no_finish leave out the ends", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "no_done no_finish")
		require.NoError(t, err)
		all := strings.Join(data, "\n")
		require.NotContains(t, all, "[DONE]")
		require.NotContains(t, all, `"finish_reason":"`)
		require.Empty(t, e.chat(t, user("x [[sim no_finish]]")).Choices[0].Finish)
	})
	t.Run("status answers with an error before any token", func(t *testing.T) {
		t.Parallel()
		for _, status := range []string{"400", "429", "500", "503"} {
			res := e.post(t, "/v1/chat/completions", user("x [[sim status="+status+"]]", object{"stream": true}))
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, status, res.Status[:3])
			require.Contains(t, string(body), `"error"`)
		}
	})
	t.Run("a fault after more tokens than there are never happens", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "tokens=4 cut=5 stall=6 malformed=7")
		require.NoError(t, err)
		require.Equal(t, 4, text(t, data))
		require.Equal(t, 4, e.chat(t, user("x [[sim tokens=4 cut=5 stall=6 malformed=7]]")).Usage.Completion)
	})
}

func TestOddEvents(t *testing.T) {
	t.Parallel()
	e := start(t)
	for directive, want := range map[string]string{
		"null_choices":                      `"choices":null`,
		"null_choice":                       `"choices":[null]`,
		"bad_index":                         `"index":99999999`,
		"object_content":                    `"content":{"text"`,
		"empty_tools":                       `"tool_calls":null`,
		"empty_tools tokens=1":              `"tool_calls":[]`,
		"usage=wrong":                       `"completion_tokens":1000000000`,
		"usage=2454:23:2450":                `"prompt_tokens":2454,"completion_tokens":23,"total_tokens":2477,"prompt_tokens_details":{"cached_tokens":2450}`,
		"reasoning_field=reasoning think=1": `"delta":{"reasoning":"`,
	} {
		t.Run("the stream shows "+directive, func(t *testing.T) {
			t.Parallel()
			data, err := e.asks(t, directive)
			require.NoError(t, err)
			require.Contains(t, strings.Join(data, "\n"), want)
			require.Equal(t, "[DONE]", data[len(data)-1])
		})
	}
	for directive, want := range map[string]string{
		"null_choices":   `"choices":null`,
		"null_choice":    `"choices":[null]`,
		"bad_index":      `"index":-1`,
		"object_content": `"content":{"text"`,
		"empty_tools":    `"tool_calls":[]`,
		"usage=wrong":    `"cached_tokens":1000`,
	} {
		t.Run("the body shows "+directive, func(t *testing.T) {
			t.Parallel()
			body, err := io.ReadAll(e.post(t, "/v1/chat/completions", user("x [[sim "+directive+"]]")).Body)
			require.NoError(t, err)
			require.Contains(t, string(body), want)
		})
	}
	t.Run("usage can be missing", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "usage=none")
		require.NoError(t, err)
		require.NotContains(t, strings.Join(data, ""), "usage")
		require.Nil(t, e.chat(t, user("x [[sim usage=none]]")).Usage)
	})
	t.Run("given running counts end at their value", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "tokens=40 usage=100:23:50", object{"stream_options": object{"include_usage": true, "continuous_usage_stats": true}})
		require.NoError(t, err)
		list, before := chunks(t, data), 0
		for _, r := range list {
			require.GreaterOrEqual(t, r.Usage.Completion, before)
			before = r.Usage.Completion
		}
		require.Equal(t, 23, before)
	})
	t.Run("a long line is as long as asked", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{70 << 10, 2 << 20} {
			data, err := e.asks(t, fmt.Sprint("big=", n))
			require.NoError(t, err)
			require.Len(t, fold(t, chunks(t, data)).Choices[0].Message.Content, n)
		}
	})
	t.Run("wide characters arrive whole although they are parted on the way", func(t *testing.T) {
		t.Parallel()
		data, err := e.asks(t, "unicode=split tokens=50")
		require.NoError(t, err)
		text := fold(t, chunks(t, data)).Choices[0].Message.Content
		require.Equal(t, 50, utf8.RuneCountInString(text))
		require.NotContains(t, text, "\uFFFD")
		require.Greater(t, len(text), 100)
	})
	t.Run("an echo is the user's text without the mark", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "hello 北京🙂é", e.chat(t, user("hello 北京🙂é [[sim echo]]")).Choices[0].Message.Content)
	})
	t.Run("the header works too and wins", func(t *testing.T) {
		t.Parallel()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/v1/chat/completions",
			strings.NewReader(`{"messages":[{"role":"user","content":"[[sim tokens=3]]"}]}`))
		require.NoError(t, err)
		req.Header.Set("X-Sim", "tokens=7; echo=false")
		res, err := e.client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var r reply
		require.NoError(t, json.UnmarshalRead(res.Body, &r))
		require.Equal(t, 7, r.Usage.Completion)
	})
	t.Run("only the last user message gives directives", func(t *testing.T) {
		t.Parallel()
		r := e.chat(t, object{"messages": []object{
			{"role": "user", "content": "[[sim tokens=3]]"},
			{"role": "assistant", "content": "[[sim tokens=4]]"},
			{"role": "user", "content": []object{{"type": "text", "text": "[[sim tokens=5]]"}}},
			{"role": "assistant", "content": "so"},
		}})
		require.Equal(t, 5, r.Usage.Completion)
	})
	t.Run("unknown directives are named", func(t *testing.T) {
		t.Parallel()
		status, message := e.refused(t, "/v1/chat/completions", user("[[sim tokns=3 fly]]"))
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, message, "tokns")
		require.Contains(t, message, "fly")
	})
	t.Run("every directive is documented", func(t *testing.T) {
		t.Parallel()
		for _, file := range []string{"sim.go", "README.md"} {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, key := range script.Keys() {
				require.Regexp(t, `\b`+key+`\b`, string(text), file)
			}
		}
	})
}

func TestWaits(t *testing.T) {
	t.Parallel()
	t.Run("tokens come when they are due", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.TTFT, c.ITL = 40*time.Millisecond, 10*time.Millisecond })
		begun := time.Now()
		s := e.open(t, "/v1/chat/completions", user("x [[sim tokens=8]]"))
		_, err := s.next()
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), 40*time.Millisecond)
		_, err = s.rest(t)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), 110*time.Millisecond)
		begun = time.Now()
		e.chat(t, user("x [[sim tokens=8 ttft=1ms itl=20ms]]"))
		require.GreaterOrEqual(t, time.Since(begun), 141*time.Millisecond)
	})
	t.Run("a hang sends nothing before its time, and then everything", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		for _, stream := range []bool{true, false} {
			begun := time.Now()
			res := e.post(t, "/v1/chat/completions", user("x [[sim hang=60ms]]", object{"stream": stream}))
			require.GreaterOrEqual(t, time.Since(begun), 60*time.Millisecond)
			require.Equal(t, http.StatusOK, res.StatusCode)
		}
	})
	t.Run("a slow health check is slow for everybody until it is ended", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		const slow = 500 * time.Millisecond // which a busy machine does not take every time
		e.chat(t, user("x [[sim slow_health=500ms]]"))
		begun := time.Now()
		status, _ := e.get(t, "/health")
		require.Equal(t, http.StatusOK, status)
		require.GreaterOrEqual(t, time.Since(begun), slow)
		e.chat(t, user("x [[sim slow_health=0s]]"))
		require.Eventually(t, func() bool {
			begun := time.Now()
			e.get(t, "/health")
			return time.Since(begun) < slow
		}, patience, time.Millisecond)
	})
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	for name, directives := range map[string]string{
		"before the first byte":   "hang=forever",
		"before the first token":  "ttft=1h",
		"between tokens":          "itl=1h",
		"in a stall":              "stall=2",
		"while tokens are poured": "tokens=1000000",
	} {
		for _, stream := range []bool{true, false} {
			form := map[bool]string{true: "stream", false: "body"}[stream]
			if name == "while tokens are poured" && !stream {
				continue
			}
			t.Run("a client that leaves a "+form+" "+name+" frees its slot", func(t *testing.T) {
				t.Parallel()
				e := start(t)
				ctx, cancel := context.WithCancel(t.Context())
				raw, err := json.Marshal(user("x [[sim "+directives+"]]", object{"stream": stream}))
				require.NoError(t, err)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v1/chat/completions", strings.NewReader(string(raw)))
				require.NoError(t, err)
				var wg sync.WaitGroup
				wg.Go(func() {
					res, err := e.client.Do(req)
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
					}
				})
				e.until(t, func(c counts) bool { return c.Running == 1 })
				cancel()
				c := e.until(t, func(c counts) bool { return c.Running == 0 })
				wg.Wait()
				require.Equal(t, 1, c.Aborted)
				require.Equal(t, 1, c.Total)
				require.Less(t, c.Completion, 1_000_000)
			})
		}
	}
}

func TestAbort(t *testing.T) {
	t.Parallel()
	for _, call := range []object{{"rid": "mine"}, {"abort_all": true}} {
		t.Run("an aborted stream ends in good order", func(t *testing.T) {
			t.Parallel()
			e := start(t)
			s := e.open(t, "/v1/chat/completions", user("x [[sim stall=5 abort_text]]", object{"rid": "mine"}))
			var data []string
			for range 6 {
				line, err := s.next()
				require.NoError(t, err)
				data = append(data, line)
			}
			e.post(t, "/abort_request", object{"rid": "other"})
			require.Equal(t, 1, e.counts(t).Running)
			require.Equal(t, http.StatusOK, e.post(t, "/abort_request", call).StatusCode)
			more, err := s.rest(t)
			require.NoError(t, err)
			before := fold(t, chunks(t, append(data[:6:6], "[DONE]")))
			after := fold(t, chunks(t, more))
			require.Equal(t, "mine", before.ID)
			require.Equal(t, "abort", after.Choices[0].Finish)
			require.Equal(t, before.Choices[0].Message.Content, after.Choices[0].Message.Content)
			require.Equal(t, 5, after.Usage.Completion)
			require.Equal(t, 1, e.counts(t).Aborted)
		})
		t.Run("an aborted body says what was made so far", func(t *testing.T) {
			t.Parallel()
			e := start(t)
			got := make(chan reply, 1)
			var wg sync.WaitGroup
			wg.Go(func() { got <- e.chat(t, user("x [[sim itl=1h]]", object{"rid": "mine"})) })
			e.until(t, func(c counts) bool { return c.Running == 1 })
			e.post(t, "/abort_request", call)
			wg.Wait()
			r := <-got
			require.Equal(t, "abort", r.Choices[0].Finish)
			require.Equal(t, 1, r.Usage.Completion)
		})
	}
	t.Run("an id that is running is refused", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		_, err := e.open(t, "/v1/chat/completions", user("x [[sim stall=1]]", object{"rid": "mine"})).next()
		require.NoError(t, err)
		status, _ := e.refused(t, "/v1/chat/completions", user("x", object{"rid": "mine"}))
		require.Equal(t, http.StatusBadRequest, status)
	})
}

func TestDie(t *testing.T) {
	t.Parallel()
	t.Run("it is refused unless it is allowed", func(t *testing.T) {
		t.Parallel()
		status, message := start(t).refused(t, "/v1/chat/completions", user("x [[sim die]]"))
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, message, "die")
	})
	t.Run("Run ends and the connections of all are cut", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.AllowDie = true })
		other := e.open(t, "/v1/chat/completions", user("x [[sim stall=1]]"))
		_, err := other.next()
		require.NoError(t, err)
		data, err := e.asks(t, "die=4")
		require.Error(t, err)
		require.Len(t, data, 5)
		_, err = other.rest(t)
		require.Error(t, err)
		require.True(t, errors.Is(<-e.ended, sim.ErrDied))
	})
}
