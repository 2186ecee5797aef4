package ledger_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

func TestExactlyWhatIsCoveredIsAdmittedByTwoReplicas(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	replicas := []*ledger.Ledger{h.book, h.replica(t)}
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			got, err := replicas[i%2].Hold(t.Context(), []bus.Hold{hold(i, 0, 100)})
			switch {
			case err != nil:
				t.Error(err)
			case got[0].Code == "":
				admitted.Add(1)
			case got[0].Code == fault.NoFunds:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 10, admitted.Load())
	require.EqualValues(t, 40, refused.Load())
	require.Equal(t, ledger.Balance{Micro: 1000, Held: 1000, OpenHolds: 10}, h.balance(t, "a0"))
	h.adds(t, t)
}

func TestTwoReplicasNeverWaitForEachOtherInACircle(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1e9, 1e9, 1e9, 1e9, 1e9)
	replicas := []*ledger.Ledger{h.book, h.replica(t)}
	var wg sync.WaitGroup
	for r, l := range replicas {
		wg.Go(func() {
			for round := range 40 {
				var group []bus.Hold
				var batch []ledger.Ended
				for i := range 20 {
					// The two walk the accounts in opposite directions.
					a, n := i%5, (r*40+round)*20+i
					if r == 1 {
						a = 4 - a
					}
					group = append(group, hold(n, a, 10))
					batch = append(batch, ended(n, a, 7))
				}
				_, err := l.Hold(t.Context(), group)
				if err != nil {
					t.Error(err)
				}
				if _, err = l.Settle(t.Context(), batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, ledger.Balance{Micro: 1e9 - 2*40*4*7}, h.balance(t, "a0"))
	h.adds(t, t)
}

func TestTwoEndsOfOneJobMakeOneCharge(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1e6)
	replicas := []*ledger.Ledger{h.book, h.replica(t)}
	const jobs = 30
	for n := range jobs {
		h.hold(t, hold(n, 0, 200))
		verdicts := make([]ledger.Verdict, 2)
		var wg sync.WaitGroup
		for r, l := range replicas {
			wg.Go(func() {
				got, err := l.Settle(t.Context(), []ledger.Ended{ended(n, 0, int64(100+3*r))})
				if err != nil {
					t.Error(err)
					return
				}
				verdicts[r] = got[0].Verdict
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []ledger.Verdict{ledger.Booked, ledger.Contradicted}, verdicts)
	}
	r := h.adds(t, t)
	require.EqualValues(t, jobs, r.Settlements)
	require.EqualValues(t, 2*jobs+2, r.Entries)
}

func TestASweepAndALateSettlementHaveOneEffect(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1e6)
	other := h.replica(t)
	past := time.Now().Add(-time.Minute)
	for n := range 30 {
		old := hold(n, 0, 200)
		old.Expires = past
		h.hold(t, old)
		var swept, settled []ledger.Booking
		var wg sync.WaitGroup
		wg.Go(func() {
			open, err := other.Expired(t.Context(), time.Now(), time.Minute, 10)
			if err != nil {
				t.Error(err)
			}
			for _, o := range open {
				got, err := other.Settle(t.Context(), []ledger.Ended{ledger.ByExpiry(o, time.Now())})
				if err != nil {
					t.Error(err)
				}
				swept = append(swept, got...)
			}
		})
		wg.Go(func() {
			var err error
			settled, err = h.book.Settle(t.Context(), []ledger.Ended{ended(n, 0, 100)})
			if err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		won := 0
		for _, b := range append(swept, settled...) {
			if b.Verdict == ledger.Booked {
				won++
			}
		}
		require.Equal(t, 1, won)
		require.Zero(t, h.balance(t, "a0").Held)
	}
	h.adds(t, t)
}

func TestExpiredHoldsAreTakenUpOnceALease(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	now := time.Now()
	for n := range 5 {
		o := hold(n, 0, 10)
		o.Expires = now.Add(time.Duration(n-3) * time.Minute)
		h.hold(t, o)
	}
	first, err := h.book.Expired(t.Context(), now, time.Minute, 2)
	require.NoError(t, err)
	require.Len(t, first, 2, "a bounded batch")
	second, err := h.replica(t).Expired(t.Context(), now, time.Minute, 10)
	require.NoError(t, err)
	require.Len(t, second, 1, "not those under lease, not those alive")
	again, err := h.book.Expired(t.Context(), now.Add(30*time.Minute), time.Minute, 10)
	require.NoError(t, err)
	require.Len(t, again, 5)
	for _, o := range again {
		h.settle(t, ledger.ByExpiry(o, now))
	}
	require.Equal(t, ledger.Balance{Micro: 1000}, h.balance(t, "a0"))
	r := h.adds(t, t)
	require.Zero(t, r.OpenHolds)
}

func TestAWorkersReportSettlesByTheHold(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10_000)
	for n, c := range []struct {
		outcome pricing.Outcome
		tokens  llm.Usage
		charged int64
	}{
		{pricing.Finished, llm.Usage{Prompt: 10, Completion: 5}, 30},
		{pricing.Left, llm.Usage{Prompt: 10, Completion: 1}, 14},
		{pricing.Failed, llm.Usage{Prompt: 10, Completion: 1}, 0},
		{"nonsense", llm.Usage{Prompt: 10}, 0},
		{pricing.Finished, llm.Usage{Prompt: 10, Cached: 1 << 40}, 1},
		{pricing.Finished, llm.Usage{Prompt: 1 << 60, Completion: -4}, 200},
	} {
		h.hold(t, hold(n, 0, 200))
		o, err := h.book.HoldOf(t.Context(), job(n))
		require.NoError(t, err)
		e, err := ledger.ByReport(o, bus.Report{Job: job(n), Worker: "w", Outcome: c.outcome, Tokens: c.tokens, Time: time.Now()})
		require.NoError(t, err)
		got := h.settle(t, e)
		require.Equal(t, ledger.Booked, got[0].Verdict)
		require.EqualValues(t, c.charged, got[0].Charged, c.outcome)
	}
	_, err := h.book.HoldOf(t.Context(), job(0))
	require.True(t, fault.Is(err, fault.NotFound), err)
	h.adds(t, t)
}
