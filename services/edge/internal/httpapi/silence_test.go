package httpapi_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/httpapi"
)

func TestSilenceIsWrittenTo(t *testing.T) {
	t.Parallel()
	idles := 0
	addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{next: func(ctx context.Context, wait time.Duration) ([]llm.Event, error) {
			if idles++; idles <= 3 {
				return nil, httpapi.ErrIdle
			}
			return []llm.Event{{Kind: llm.Text, Text: "late"}, done()}, nil
		}}, nil
	})
	body := read(t, post(t, addr, "/v1/chat/completions", goodKey, streamed).Body)
	require.Equal(t, 3, strings.Count(body, ": keep-alive\n\n"))
	require.Contains(t, body, "late")
}

// What comes may stay out of the answer, or wait for its turn: the client hears
// something all the same.
func TestEventsThatSayNothingAreSilence(t *testing.T) {
	t.Parallel()
	call := func(index int, text string) llm.Event {
		return llm.Event{Kind: llm.ToolCall, Text: text, Call: &llm.CallDelta{Index: index, ID: "c" + strconv.Itoa(index), Name: "f"}}
	}
	for route, c := range map[string]struct{ body, alive string }{
		"/v1/chat/completions": {streamed, ": keep-alive\n\n"},
		"/v1/responses":        {`{"model":"m","stream":true,"input":"hi"}`, ": keep-alive\n\n"},
		"/v1/messages":         {`{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, "event: ping\n"},
	} {
		t.Run(route, func(t *testing.T) {
			t.Parallel()
			// The second call waits for the first one to be whole.
			events := []llm.Event{call(0, "{"), call(1, "{"), call(1, `"x":`), call(1, "1"), call(0, "}")}
			addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
				return answer{next: func(ctx context.Context, wait time.Duration) ([]llm.Event, error) {
					if len(events) == 0 {
						return []llm.Event{{Kind: llm.Done, Finish: llm.ToolCalls}}, nil
					}
					e := events[0]
					if events = events[1:]; e.Call.Index == 1 {
						<-time.After(wait) // each comes at the last moment
					}
					return []llm.Event{e}, nil
				}}, nil
			})
			body := read(t, post(t, addr, route, goodKey, c.body).Body)
			require.Equal(t, 3, strings.Count(body, c.alive), body)
		})
	}
}
