package edge_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// An engine that counts nothing gives nothing away: the estimate that the hold was asked
// with is charged, shown and booked.
func TestAPromptThatNobodyCountedCostsItsEstimate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, body string
		reported   int64
		prompt     int64
		charged    string
	}{
		"a chat":            {"/v1/chat/completions", `{"model":"glm-5.2","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`, 0, 16, "18"},
		"a streamed chat":   {"/v1/chat/completions", `{"model":"glm-5.2","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, 0, 16, "18"},
		"below zero":        {"/v1/chat/completions", `{"model":"glm-5.2","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`, -3, 16, "18"},
		"counted":           {"/v1/chat/completions", `{"model":"glm-5.2","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`, 10, 10, "14"},
		"a raw prompt":      {"/v1/completions", `{"model":"glm-5.2","max_tokens":100,"prompt":"hi there"}`, 0, 18, "20"},
		"ids are their own": {"/v1/completions", `{"model":"glm-5.2","max_tokens":100,"prompt":[1,2,3]}`, 0, 3, "10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) {
				w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
					_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Text, Text: "hello"}, {Kind: llm.Done, Finish: llm.Stop}},
						bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: c.reported, Completion: 5}})
				}
			})
			resp := w.post(c.path, c.body)
			require.Equal(t, 200, resp.StatusCode)
			text := w.text(resp)
			require.Contains(t, text, `"charged_micro":`+c.charged+`}`)
			u := w.recorded(1)[0]
			require.Equal(t, llm.Usage{Prompt: c.prompt, Completion: 5}, u.Tokens)
			require.Equal(t, c.charged, fmt.Sprint(int64(u.ChargedMicro)), text)
		})
	}
}

func TestAPromptThatNobodyCountedCostsNothingUnlessItWasRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome pricing.Outcome
		code    fault.Code
		made    int64
		want    llm.Usage
		charged int64
	}{
		"left in the middle":          {pricing.Left, fault.Canceled, 2, llm.Usage{Prompt: 16, Completion: 2}, 14},
		"left before anything came":   {pricing.Left, fault.Canceled, 0, llm.Usage{}, 0},
		"the engine failed meanwhile": {pricing.Failed, fault.Engine, 2, llm.Usage{Completion: 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) {
				w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
					_ = s.Emit([]llm.Event{{Kind: llm.Text, Text: "hello"}})
					<-ctx.Done()
					_, _ = s.Finish(context.WithoutCancel(ctx), []llm.Event{{Kind: llm.Failed, Fault: &llm.Fault{Code: c.code}}},
						bus.End{Outcome: c.outcome, Usage: llm.Usage{Completion: c.made}})
				}
			})
			resp := w.ask(true)
			_, err := resp.Body.Read(make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			u := w.recorded(1)[0]
			require.Equal(t, c.outcome, u.Outcome)
			require.Equal(t, c.want, u.Tokens)
			require.EqualValues(t, c.charged, u.ChargedMicro)
		})
	}
}
