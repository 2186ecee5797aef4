package offer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// Until a job is booked its worker alone could tell what it came to.
func TestAnAccountIsWantedUntilTheJobIsBooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h := w.worker("w1", true)
	j := w.place(false)
	a := h.claim()
	running := []bus.Running{{Job: "j1", Attempt: 1}}
	gone := func() []bus.Running {
		gone, err := w.bus.StillWanted(t.Context(), "edge-1", "w1", running)
		require.NoError(t, err)
		return gone
	}
	wanted := a.finish(done(), pricing.Finished)
	w.all(j)
	require.Empty(t, gone())
	j.Close(t.Context())
	require.Empty(t, gone())
	require.Equal(t, []string{"j1"}, w.desk.Older(0), "its hold is still needed")
	j.Booked()
	require.True(t, <-wanted)
	require.Equal(t, running, gone())
	require.Zero(t, w.desk.Count())
}

// What a worker sends is written to clients: it must be what codecs can say.
func TestABrokenAnswerIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]llm.Event{
		"unknown finish":    {Kind: llm.Done, Finish: `stop","x":"y`},
		"call out of order": {Kind: llm.ToolCall, Call: &llm.CallDelta{Index: 1, ID: "c", Name: "f"}},
		"not its to tell":   {Kind: llm.Failed, Fault: &llm.Fault{Code: fault.NoFunds, Message: "pay me"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			first, second := w.worker("w1", true), w.worker("w2", false)
			w.other = []string{"w1", "w2"}
			j := w.place(true)
			require.False(t, <-first.claim().finish(e, pricing.Finished))
			b := second.claim()
			// Nobody is left to be asked.
			require.False(t, <-b.finish(e, pricing.Finished))
			_, last := w.all(j)
			require.Equal(t, fault.Engine, last.Fault.Code)
			require.Nil(t, j.Result().End)
		})
	}
}

func TestJobsThatWaitAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *offer.Config) { c.ClaimWait = patience })
	w.place(true)
	w.place(true)
	require.Equal(t, 2, w.desk.Waiting("glm-5.2"))
	require.Zero(t, w.desk.Waiting("kimi-k3"))
	a := w.worker("w1", true).claim()
	require.Eventually(t, func() bool { return w.desk.Waiting("glm-5.2") < 2 }, patience, time.Millisecond)
	a.finish(done(), pricing.Finished)
}
