package bus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
)

// answerer serves holds; it hands them to take until the test ends.
func answerer(t *testing.T, b *bus.Bus, take func(bus.HoldAsk)) {
	t.Helper()
	bustest.Run(t, func(ctx context.Context) error { return b.ServeHolds(ctx, take) })
	require.Eventually(t, func() bool {
		_, err := b.Hold(t.Context(), bus.Hold{Job: "ready"})
		return err == nil
	}, patience, 10*time.Millisecond)
}

func TestHoldsShareMessagesAndEachGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	var mu sync.Mutex
	var kept []bus.HoldAsk
	keep, all := false, make(chan struct{})
	answer := func(h bus.HoldAsk) {
		a := bus.HoldAnswer{Micro: h.Hold.Micro}
		if h.Hold.Micro%7 == 0 {
			a = bus.HoldAnswer{Code: fault.NoFunds, Message: h.Hold.Job}
		}
		require.NoError(t, h.Answer(a))
	}
	answerer(t, b, func(h bus.HoldAsk) {
		mu.Lock()
		defer mu.Unlock()
		if !keep {
			answer(h)
			return
		}
		// Two messages fly, of one hold each; all others wait for an answer.
		if kept = append(kept, h); len(kept) < 2 {
			return
		}
		<-all
		keep = false
		for _, h := range kept {
			answer(h)
		}
	})
	mu.Lock()
	keep = true
	mu.Unlock()

	const count = 2*bus.HoldGroupMax + 50
	var got sync.WaitGroup
	got.Add(count)
	for n := 1; n <= count; n++ {
		h := bus.Hold{Job: fmt.Sprintf("%064x", n), Micro: money.Micro(n), Expires: time.Now()}
		b.AskHold(h, func(a bus.HoldAnswer, err error) {
			defer got.Done()
			want := bus.HoldAnswer{Micro: h.Micro}
			if n%7 == 0 {
				want = bus.HoldAnswer{Code: fault.NoFunds, Message: h.Job}
			}
			if err != nil || a != want {
				t.Errorf("hold %d: %v, %v", n, a, err)
			}
		})
	}
	close(all)
	got.Wait()
}

func TestAHoldThatNobodyAnswersIsAnError(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	// A last try that takes too long on a busy machine leaves open whether somebody does.
	var err error
	begun := time.Now()
	require.Eventually(t, func() bool {
		_, err = b.Hold(t.Context(), bus.Hold{Job: "0a"})
		return !fault.Is(err, fault.Timeout)
	}, patience, time.Millisecond)
	require.True(t, fault.Is(err, fault.Unavailable), "nobody serves: %v", err)
	// Services that are started together find each other before anybody is refused.
	require.GreaterOrEqual(t, time.Since(begun), bus.HoldWait/2)

	asked := make(chan bus.HoldAsk, 100)
	silent := false
	answerer(t, b, func(h bus.HoldAsk) {
		if silent = silent || h.Hold.Job != "ready"; silent {
			asked <- h
			return
		}
		require.NoError(t, h.Answer(bus.HoldAnswer{Micro: 1}))
	})
	// Also those that never left, because two messages are unanswered.
	begun = time.Now()
	var got sync.WaitGroup
	for n := range 10 {
		got.Add(1)
		b.AskHold(bus.Hold{Job: fmt.Sprintf("%064x", n)}, func(_ bus.HoldAnswer, err error) {
			defer got.Done()
			if !fault.Is(err, fault.Timeout) {
				t.Errorf("hold %d: %v", n, err)
			}
		})
	}
	got.Wait()
	require.GreaterOrEqual(t, time.Since(begun), bus.HoldWait)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Hold(ctx, bus.Hold{Job: "0b"})
	require.ErrorIs(t, err, context.Canceled, "who asks may go")
}
