package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// accounts is how many a life has.
const accounts = 3

func epoch() time.Time { return time.Unix(0, 0) }

// model is the ledger in a few lines: what must come out, whatever happens in
// between.
type model struct {
	balance map[string]money.Micro
	open    map[string]openJob
	settled map[string]ledger.Ended
}

type openJob struct {
	account string
	micro   money.Micro
}

func (m *model) available(account string) money.Micro {
	free := m.balance[account]
	for _, o := range m.open {
		if o.account == account {
			free -= o.micro
		}
	}
	return free
}

func (m *model) hold(h bus.Hold) (fault.Code, money.Micro) {
	if _, ok := m.settled[h.Job]; ok {
		return fault.Invalid, 0
	}
	had, ok := m.open[h.Job]
	switch {
	case ok && had.account != h.Account:
		return fault.Invalid, had.micro
	case ok && (!h.Raise || h.Micro <= had.micro):
		return "", had.micro
	}
	grant := min(h.Micro, had.micro+m.available(h.Account))
	if grant != h.Micro && (grant < h.FloorMicro || grant <= had.micro) {
		return fault.NoFunds, had.micro
	}
	m.open[h.Job] = openJob{account: h.Account, micro: grant}
	return "", grant
}

func (m *model) settle(e ledger.Ended) ledger.Booking {
	u := e.Usage
	b := ledger.Booking{Job: u.Job}
	if was, ok := m.settled[u.Job]; ok {
		w := was.Usage
		b.Verdict = ledger.Repeated
		if w.Account != u.Account || w.Outcome != u.Outcome || w.Tokens != u.Tokens || w.ChargedMicro != u.ChargedMicro {
			b.Verdict = ledger.Contradicted
		}
		return b
	}
	o, ok := m.open[u.Job]
	if ok && o.account != u.Account {
		b.Verdict = ledger.ForeignHold
		return b
	}
	due := u.ChargedMicro
	b.Held = o.micro
	b.Charged = due
	if due > o.micro {
		b.Charged = min(due, o.micro+m.available(u.Account))
	}
	b.Shortfall = due - b.Charged
	delete(m.open, u.Job)
	m.settled[u.Job] = e
	m.balance[u.Account] -= b.Charged
	return b
}

func TestRandomLivesOfTheLedgerAddUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	replicas := []*ledger.Ledger{h.book, h.replica(t)}
	lives := 0
	rapid.Check(t, func(rt *rapid.T) {
		// Each life has accounts and jobs of its own in the same ledger.
		before, err := h.desk.Reconcile(t.Context(), epoch())
		require.NoError(rt, err)
		r := run{t: rt, h: h, replicas: replicas, first: accounts * lives, before: before.Settlements, m: &model{
			balance: map[string]money.Micro{}, open: map[string]openJob{}, settled: map[string]ledger.Ended{},
		}}
		lives++
		for i := range accounts {
			h.addAccount(t, r.first+i, 0)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"credit": r.credit,
			"hold":   r.hold,
			"settle": r.settle,
			"again":  r.again,
			"crash":  r.crash,
			"sweep":  r.sweep,
			"":       r.check,
		})
		r.end()
	})
}

// run is one random life.
type run struct {
	t        *rapid.T
	h        *house
	replicas []*ledger.Ledger
	m        *model
	first    int   // the first of its accounts
	before   int64 // settlements of earlier lives
	credits  int
	past     [][]ledger.Ended
}

func (r *run) replica(t *rapid.T) *ledger.Ledger {
	return rapid.SampledFrom(r.replicas).Draw(t, "replica")
}

func (r *run) job(t *rapid.T) int { return 1000*r.first + rapid.IntRange(0, 30).Draw(t, "job") }

func (r *run) account(t *rapid.T) int {
	return r.first + rapid.IntRange(0, accounts-1).Draw(t, "account")
}

func (r *run) credit(t *rapid.T) {
	a := r.account(t)
	c := ledger.Credit{
		Account: fmt.Sprintf("a%d", a), Micro: money.Micro(rapid.IntRange(1, 500).Draw(t, "micro")), Cause: fmt.Sprintf("c%d-%d", r.first, r.credits),
	}
	r.credits++
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		_, err := r.h.desk.Credit(context.Background(), c)
		require.NoError(t, err)
	}
	r.m.balance[c.Account] += c.Micro
}

func (r *run) drawHold(t *rapid.T) bus.Hold {
	h := hold(r.job(t), r.account(t), money.Micro(rapid.IntRange(0, 200).Draw(t, "micro")))
	h.FloorMicro = money.Micro(rapid.IntRange(0, int(h.Micro)).Draw(t, "floor"))
	h.Raise = rapid.Bool().Draw(t, "raise")
	if rapid.IntRange(0, 3).Draw(t, "old") == 0 {
		h.Expires = time.Now().Add(-time.Hour)
	}
	return h
}

func (r *run) hold(t *rapid.T) {
	group := rapid.SliceOfNDistinct(rapid.Custom(r.drawHold), 1, 8, func(h bus.Hold) string { return h.Job }).Draw(t, "group")
	got, err := r.replica(t).Hold(context.Background(), group)
	require.NoError(t, err)
	// The function decides account by account; between accounts there is no
	// order, within one it is that of the group.
	for i, h := range group {
		code, micro := r.m.hold(h)
		require.Equal(t, code, got[i].Code, "hold %d of %+v", i, group)
		if code == "" {
			require.Equal(t, micro, got[i].Micro)
		}
	}
}

func (r *run) drawEnded(t *rapid.T) ledger.Ended {
	e := ended(r.job(t), r.account(t), rapid.Int64Range(0, 250).Draw(t, "tokens"))
	if rapid.IntRange(0, 4).Draw(t, "failed") == 0 {
		e.Usage.Outcome, e.Usage.ChargedMicro = pricing.Failed, 0
	}
	return e
}

func (r *run) settle(t *rapid.T) {
	batch := rapid.SliceOfN(rapid.Custom(r.drawEnded), 1, 10).Draw(t, "batch")
	r.deliver(t, batch)
	r.past = append(r.past, batch)
}

// again delivers an old batch once more, as the bus does.
func (r *run) again(t *rapid.T) {
	if len(r.past) == 0 {
		t.Skip("nothing was delivered")
	}
	r.deliver(t, rapid.SampledFrom(r.past).Draw(t, "batch"))
}

func (r *run) deliver(t *rapid.T, batch []ledger.Ended) {
	got, err := r.replica(t).Settle(context.Background(), batch)
	require.NoError(t, err)
	require.Len(t, got, len(batch))
	// Repetitions within a batch are decided after the first ones.
	seen := map[string]bool{}
	var order, later []int
	for i, e := range batch {
		if seen[e.Usage.Job] {
			later = append(later, i)
			continue
		}
		seen[e.Usage.Job] = true
		order = append(order, i)
	}
	for _, i := range append(order, later...) {
		require.Equal(t, r.m.settle(batch[i]), got[i], "end %d of %+v", i, batch)
	}
}

// crash runs a settlement in a transaction that never commits: a service that
// died between the statement and its commit.
func (r *run) crash(t *rapid.T) {
	batch := rapid.SliceOfNDistinct(rapid.Custom(r.drawEnded), 1, 5, func(e ledger.Ended) string { return e.Usage.Job }).Draw(t, "batch")
	died := errors.New("died")
	err := r.h.diesDuring(batch, died)
	require.ErrorIs(t, err, died)
}

func (r *run) sweep(t *rapid.T) {
	l := r.replica(t)
	open, err := l.Expired(context.Background(), time.Now(), 0, 5)
	require.NoError(t, err)
	for _, o := range open {
		r.deliver(t, []ledger.Ended{ledger.ByExpiry(o, time.Now())})
	}
}

func (r *run) check(t *rapid.T) {
	report, err := r.h.desk.Reconcile(context.Background(), epoch())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, len(r.m.open), report.OpenHolds)
	require.EqualValues(t, len(r.m.settled), report.Settlements-r.before)
	for a := range r.m.balance {
		b, err := r.h.desk.Balance(context.Background(), a)
		require.NoError(t, err)
		require.Equal(t, r.m.balance[a], b.Micro)
		require.Equal(t, r.m.balance[a]-r.m.available(a), b.Held)
		require.GreaterOrEqual(t, r.m.available(a), money.Micro(0))
	}
}

// end lets time pass: every hold ends.
func (r *run) end() {
	for {
		open, err := r.h.book.Expired(context.Background(), time.Now().Add(100*time.Hour), 0, 7)
		require.NoError(r.t, err)
		if len(open) == 0 {
			break
		}
		for _, o := range open {
			r.deliver(r.t, []ledger.Ended{ledger.ByExpiry(o, time.Now())})
		}
	}
	r.check(r.t)
	require.Empty(r.t, r.m.open)
}
