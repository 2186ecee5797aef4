package edge_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// emptied is a world whose edge believes that the account has no money.
func emptied(t *testing.T, set func(*world)) *world {
	return newWorld(t, func(w *world) {
		require.NoError(t, w.bus.PutFunds(t.Context(), bus.Funds{Account: "acct", Empty: true}))
		set(w)
	})
}

// The copy of what accounts have may be older than a credit that the caller has
// seen: the ledger decides.
func TestACreditCountsAtOnce(t *testing.T) {
	t.Parallel()
	w := emptied(t, func(*world) {})
	for _, stream := range []bool{false, true} {
		resp := w.ask(stream)
		require.Equal(t, 200, resp.StatusCode)
		require.Contains(t, w.text(resp), `"charged_micro":14`)
	}
	w.recorded(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.holds, 2, "each request asks once")
}

func TestNoWorkerBeginsForAnEmptyAccount(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	w := emptied(t, func(w *world) {
		w.hold = func(bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Code: fault.NoFunds, Message: "no"} }
		w.serve = func(context.Context, *bus.Stream, llm.Request) { begun.Add(1) }
	})
	for i := range 20 {
		require.Equal(t, 402, w.ask(i%2 == 0).StatusCode)
	}
	w.stop()
	require.Zero(t, begun.Load())
	require.Empty(t, w.recorded(0), "a refused request is no fact")
}

// While an account has other holds a refused one is asked for again, and a worker that
// had begun would go on for nothing: it does so once, and not for whoever asks again.
func TestNoWorkerBeginsWhileHoldsAreRefused(t *testing.T) {
	t.Parallel()
	for code, status := range map[fault.Code]int{fault.NoFunds: 402, fault.Busy: 429} {
		var begun atomic.Int64
		w := newWorld(t, func(w *world) {
			w.hold = func(bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Code: code, Message: "no", Open: true} }
			w.serve = func(ctx context.Context, _ *bus.Stream, _ llm.Request) { begun.Add(1); <-ctx.Done() }
		})
		for i := range 6 {
			require.Equal(t, status, w.ask(i%2 == 0).StatusCode)
		}
		w.stop()
		require.LessOrEqual(t, begun.Load(), int64(1))
		require.Empty(t, w.recorded(0), "a refused request is no fact")
	}
}

// A hold that may stand is given back, though no job was placed.
func TestAHoldThatNobodyAnsweredIsSettled(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	w := emptied(t, func(w *world) {
		w.hold = func(h bus.Hold) bus.HoldAnswer {
			<-silent
			return bus.HoldAnswer{Micro: h.Micro}
		}
	})
	t.Cleanup(func() { close(silent) })
	resp := w.ask(true)
	require.Equal(t, 503, resp.StatusCode, w.text(resp))
	u := w.recorded(1)[0]
	require.Equal(t, pricing.Failed, u.Outcome)
	require.Zero(t, u.ChargedMicro)
}

// A billing that cannot tell may have taken the hold: its end must be booked.
func TestAHoldThatNobodyKnowsOfIsSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.hold = func(bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Code: fault.Unavailable, Message: "no"} }
	})
	require.Equal(t, 503, w.ask(false).StatusCode)
	require.Equal(t, 503, w.ask(true).StatusCode)
	for _, u := range w.recorded(2) {
		require.Equal(t, pricing.Failed, u.Outcome)
		require.Zero(t, u.ChargedMicro)
	}
}

func TestAHoldThatNobodyWasAskedForIsNoFact(t *testing.T) {
	t.Parallel()
	for _, empty := range []bool{true, false} {
		w := newWorld(t, func(w *world) {
			require.NoError(t, w.bus.PutFunds(t.Context(), bus.Funds{Account: "acct", Empty: empty}))
			w.hold = nil
		})
		resp := w.ask(true)
		require.Equal(t, 503, resp.StatusCode, w.text(resp))
		w.stop()
		require.Empty(t, w.recorded(0))
	}
}

// A balance that covers a part is known before the job leaves: it begins once.
func TestWhatAnEmptyAccountWasGivenIsWhatTheJobIsSentWith(t *testing.T) {
	t.Parallel()
	var limits []int64
	var mu sync.Mutex
	w := emptied(t, func(w *world) {
		w.hold = func(h bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Micro: h.Micro / 2} }
		serve := w.serve
		w.serve = func(ctx context.Context, s *bus.Stream, req llm.Request) {
			mu.Lock()
			limits = append(limits, req.MaxTokens)
			mu.Unlock()
			serve(ctx, s, req)
		}
	})
	require.Equal(t, 200, w.ask(false).StatusCode)
	w.recorded(1)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, limits, 1)
	require.Less(t, limits[0], int64(100))
}
