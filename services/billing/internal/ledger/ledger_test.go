package ledger_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
	"github.com/engy-ai/engy/sql"
)

func TestMain(m *testing.M) {
	// A life is some hundred statements; more of them on request.
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
	pgtest.Main(wrap{m})
}

// wrap looks for goroutines that outlive the tests.
type wrap struct{ m *testing.M }

func (w wrap) Run() int {
	code := w.m.Run()
	if code == 0 {
		// The cluster itself is tended by one goroutine until the very end.
		err := goleak.Find(goleak.IgnoreAnyFunction("github.com/engy-ai/engy/pkg/pg/pglocal.(*Server).tend"))
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return code
}

// house is a database with accounts a0, a1, … and a key k0, k1, … for each.
type house struct {
	dsn   string
	book  *ledger.Ledger
	desk  *ledger.Desk
	owner *pg.Pool
	role  *pg.Pool
}

func newHouse(t testing.TB, credits ...money.Micro) *house {
	t.Helper()
	h := &house{dsn: pgtest.DSN(t, sql.Billing())}
	h.book = h.replica(t)
	h.owner = pgtest.Open(t, pg.Config{DSN: h.dsn, Name: "owner"})
	h.role = pgtest.Open(t, pg.Config{DSN: h.dsn, Role: ledger.Role, Name: "role"})
	h.desk = ledger.NewDesk(h.role)
	for i, c := range credits {
		h.addAccount(t, i, c)
	}
	return h
}

func (h *house) addAccount(t testing.TB, i int, credit money.Micro) {
	t.Helper()
	a, k := fmt.Sprintf("a%d", i), fmt.Sprintf("k%d", i)
	h.exec(t, "insert into accounts (id, name, kind) values ($1, $1, 'customer')", a)
	h.exec(t, "insert into balances (account_id) values ($1)", a)
	sum := sha256.Sum256([]byte(k))
	h.exec(t, "insert into keys (id, account_id, hash, prefix) values ($1, $2, $3, 'sk-engy-')", k, a, sum[:])
	if credit > 0 {
		_, err := h.desk.Credit(t.Context(), ledger.Credit{Account: a, Micro: credit, Cause: "first-" + a})
		require.NoError(t, err)
	}
}

// replica is one more billing on the same database.
func (h *house) replica(t testing.TB) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), h.dsn)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func (h *house) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := h.owner.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
}

func (h *house) balance(t testing.TB, account string) ledger.Balance {
	t.Helper()
	b, err := h.desk.Balance(t.Context(), account)
	require.NoError(t, err)
	return b
}

// adds asserts that the whole ledger adds up.
func (h *house) adds(t require.TestingT, tb testing.TB) ledger.Report {
	r, err := h.desk.Reconcile(tb.Context(), time.Unix(0, 0))
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	return r
}

func (h *house) diesDuring(batch []ledger.Ended, died error) error {
	return ledger.DieDuring(context.Background(), h.role, batch, died)
}

func job(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "job %d", n))
	return hex.EncodeToString(sum[:])
}

// rates cost 1 micro-USD a fresh prompt token, 0.1 a cached one, 4 an output
// token.
func rates() pricing.Rates {
	return pricing.Rates{Version: "test", Input: 1_000_000, CachedInput: 100_000, Output: 4_000_000}
}

func hold(n, account int, micro money.Micro) bus.Hold {
	return bus.Hold{
		Job: job(n), Account: fmt.Sprintf("a%d", account), Key: fmt.Sprintf("k%d", account), Model: "m",
		Micro: micro, FloorMicro: micro, Rates: rates(), Expires: time.Now().Add(time.Hour),
	}
}

// ended is a finished job whose price is its prompt tokens.
func ended(n, account int, tokens int64) ledger.Ended {
	return ledger.Ended{Source: ledger.FromUsage, EndedAt: time.Now(), Usage: bus.Usage{
		Job: job(n), Account: fmt.Sprintf("a%d", account), Key: fmt.Sprintf("k%d", account), Model: "m",
		Region: "eu", Route: "chat", Outcome: pricing.Finished, Tokens: llm.Usage{Prompt: tokens},
		Rates: rates(), ChargedMicro: money.Micro(tokens),
	}}
}

func (h *house) hold(t testing.TB, group ...bus.Hold) []bus.HoldAnswer {
	t.Helper()
	got, err := h.book.Hold(t.Context(), group)
	require.NoError(t, err)
	require.Len(t, got, len(group))
	return got
}

func (h *house) settle(t testing.TB, batch ...ledger.Ended) []ledger.Booking {
	t.Helper()
	got, err := h.book.Settle(t.Context(), batch)
	require.NoError(t, err)
	require.Len(t, got, len(batch))
	return got
}

func codes(answers []bus.HoldAnswer) []fault.Code {
	var cs []fault.Code
	for _, a := range answers {
		cs = append(cs, a.Code)
	}
	return cs
}

func TestAHoldIsTakenAndSettledOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	require.Equal(t, []bus.HoldAnswer{{Micro: 400}}, h.hold(t, hold(1, 0, 400)))
	require.Equal(t, ledger.Balance{Micro: 1000, Held: 400, OpenHolds: 1}, h.balance(t, "a0"))
	require.Equal(t, []bus.HoldAnswer{{Micro: 400}}, h.hold(t, hold(1, 0, 400)), "asked again, answered again")

	got := h.settle(t, ended(1, 0, 300))
	require.Equal(t, []ledger.Booking{{Job: job(1), Charged: 300, Held: 400}}, got)
	require.Equal(t, ledger.Balance{Micro: 700}, h.balance(t, "a0"))

	require.Equal(t, ledger.Repeated, h.settle(t, ended(1, 0, 300))[0].Verdict)
	require.Equal(t, ledger.Contradicted, h.settle(t, ended(1, 0, 301))[0].Verdict)
	require.Equal(t, ledger.Balance{Micro: 700}, h.balance(t, "a0"))
	again := h.hold(t, hold(2, 0, 100), hold(1, 0, 400))
	require.Equal(t, []fault.Code{"", fault.Invalid}, codes(again), "a settled job is not held again")
	require.True(t, again[1].Settled)
	require.Equal(t, money.Micro(300), again[1].Micro, "but told what it cost")
	h.adds(t, t)
}

func TestHoldsOfAGroupAreDecidedInOrder(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 250, 100)
	got := h.hold(t, hold(1, 0, 100), hold(2, 1, 100), hold(3, 0, 200), hold(4, 0, 100), hold(5, 1, 1), hold(6, 0, 50))
	require.Equal(t, []fault.Code{"", "", fault.NoFunds, "", fault.NoFunds, ""}, codes(got))
	require.EqualValues(t, 250, h.balance(t, "a0").Held)
	h.adds(t, t)
}

// Who is refused is told whether something may come back.
func TestARefusalTellsOfOpenHolds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100, 100, 100)
	h.exec(t, "update keys set concurrent_max = 1 where id = 'k2'")
	got := h.hold(t, hold(1, 0, 90), hold(2, 0, 20), hold(3, 1, 200), hold(4, 2, 1), hold(5, 2, 1))
	require.Equal(t, []fault.Code{"", fault.NoFunds, fault.NoFunds, "", fault.Busy}, codes(got))
	for i, open := range []bool{false, true, false, false, true} {
		require.Equal(t, open, got[i].Open, i)
	}
	h.settle(t, ended(1, 0, 90))
	require.False(t, h.hold(t, hold(2, 0, 20))[0].Open)
}

func TestAHoldMayBeLoweredToItsFloor(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100)
	low := hold(1, 0, 500)
	low.FloorMicro = 101
	require.Equal(t, []fault.Code{fault.NoFunds}, codes(h.hold(t, low)))
	low.FloorMicro = 100
	require.Equal(t, []bus.HoldAnswer{{Micro: 100}}, h.hold(t, low))
	none := hold(2, 0, 500)
	none.FloorMicro = 0
	require.Equal(t, []fault.Code{fault.NoFunds}, codes(h.hold(t, none)), "nothing is not a hold of something")
	require.Equal(t, []bus.HoldAnswer{{}}, h.hold(t, hold(3, 0, 0)), "what costs nothing may run")
	h.adds(t, t)
}

func TestAnOpenHoldIsRaised(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100)
	h.hold(t, hold(1, 0, 40))
	more := hold(1, 0, 90)
	more.Raise = true
	require.Equal(t, []bus.HoldAnswer{{Micro: 90}}, h.hold(t, more))
	require.Equal(t, ledger.Balance{Micro: 100, Held: 90, OpenHolds: 1}, h.balance(t, "a0"))
	more.Micro, more.FloorMicro = 101, 101
	got := h.hold(t, more)
	require.Equal(t, []fault.Code{fault.NoFunds}, codes(got))
	require.EqualValues(t, 90, got[0].Micro, "what was held stays held")
	more.FloorMicro = 95
	require.EqualValues(t, 100, h.hold(t, more)[0].Micro)
	h.settle(t, ended(1, 0, 100))
	require.Equal(t, ledger.Balance{}, h.balance(t, "a0"))
	h.adds(t, t)
}

func TestLimitsOfKeysAndAccounts(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10_000, 10_000, 10_000, 10_000)
	h.exec(t, "update keys set spend_max_micro = 250 where id = 'k0'")
	h.exec(t, "update keys set concurrent_max = 2 where id = 'k1'")
	h.exec(t, "update balances set concurrent_max = 2 where account_id = 'a2'")
	h.exec(t, "update keys set revoked_at = now() where id = 'k3'")

	got := h.hold(t, hold(1, 0, 200), hold(2, 0, 100), hold(3, 0, 50))
	require.Equal(t, []fault.Code{"", fault.NoFunds, ""}, codes(got))
	h.settle(t, ended(1, 0, 150), ended(3, 0, 50))
	require.Equal(t, []fault.Code{fault.NoFunds, ""}, codes(h.hold(t, hold(4, 0, 51), hold(5, 0, 50))), "what was spent counts")

	require.Equal(t, []fault.Code{"", "", fault.Busy}, codes(h.hold(t, hold(10, 1, 1), hold(11, 1, 1), hold(12, 1, 1))))
	h.settle(t, ended(10, 1, 1))
	require.Equal(t, []fault.Code{"", fault.Busy}, codes(h.hold(t, hold(12, 1, 1), hold(13, 1, 1))))

	require.Equal(t, []fault.Code{"", "", fault.Busy}, codes(h.hold(t, hold(20, 2, 1), hold(21, 2, 1), hold(22, 2, 1))))

	stranger := hold(31, 2, 1)
	stranger.Account = "a1"
	nobody := hold(32, 0, 1)
	nobody.Account = "nobody"
	require.Equal(t, []fault.Code{fault.Unauthorized, fault.Unauthorized, fault.Unauthorized},
		codes(h.hold(t, hold(30, 3, 1), stranger, nobody)))
	h.adds(t, t)
}

func TestClosingAnAccountEndsItsKeys(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100)
	_, err := h.role.Exec(t.Context(), "update accounts set closed_at = now() where id = 'a0'")
	require.NoError(t, err)
	require.Equal(t, []fault.Code{fault.Unauthorized}, codes(h.hold(t, hold(1, 0, 1))))
}

func TestNonsenseIsRefusedAndHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	negative := hold(1, 0, 1)
	negative.Micro, negative.FloorMicro = -5, -5
	badJob := hold(2, 0, 1)
	badJob.Job = "../x"
	zero := hold(3, 0, 1)
	zero.Model = "m\x00"
	require.Equal(t, []fault.Code{fault.Invalid, fault.Invalid, fault.Invalid, ""},
		codes(h.hold(t, negative, badJob, zero, hold(4, 0, 1))))

	huge := ended(5, 0, 1)
	huge.Usage.Tokens.Prompt = 1 << 62
	minus := ended(6, 0, 1)
	minus.Usage.ChargedMicro = -1
	stranger := ended(7, 0, 1)
	stranger.Usage.Account = "nobody"
	got := h.settle(t, huge, minus, stranger, ended(4, 0, 1))
	require.Equal(t, ledger.Unbookable, got[0].Verdict)
	require.Equal(t, ledger.Unbookable, got[1].Verdict)
	require.Equal(t, ledger.UnknownAccount, got[2].Verdict)
	require.Equal(t, ledger.Booked, got[3].Verdict)
	require.Equal(t, ledger.Balance{Micro: 999}, h.balance(t, "a0"))
	h.adds(t, t)
}

func TestTheChargeIsComputedAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10_000)
	h.hold(t, hold(1, 0, 400), hold(2, 0, 100), hold(3, 0, 100), hold(4, 0, 50), hold(5, 0, 500))

	// 4 fresh and 2,450 cached prompt tokens, 23 of output: 4 + 245 + 92.
	mixed := ended(1, 0, 0)
	mixed.Usage.Tokens = llm.Usage{Prompt: 2454, Cached: 2450, Completion: 23}
	mixed.Usage.ChargedMicro = 341
	more := ended(2, 0, 60)
	more.Usage.ChargedMicro = 70
	less := ended(3, 0, 60)
	less.Usage.ChargedMicro = 50
	capped := ended(4, 0, 60)
	capped.Usage.ChargedMicro = 50
	cached := ended(5, 0, 10)
	cached.Usage.Tokens.Cached = 20
	cached.Usage.ChargedMicro = 1

	got := h.settle(t, mixed, more, less, capped, cached)
	require.EqualValues(t, 341, got[0].Charged)
	require.Empty(t, got[0].Doubt)
	require.EqualValues(t, 60, got[1].Charged, "never above the price")
	require.NotEmpty(t, got[1].Doubt)
	require.EqualValues(t, 50, got[2].Charged, "never above what the caller was told")
	require.NotEmpty(t, got[2].Doubt)
	require.EqualValues(t, 50, got[3].Charged)
	require.Empty(t, got[3].Doubt, "an edge may stop at the hold")
	require.EqualValues(t, 1, got[4].Charged, "cached is at most the prompt")
	require.NotEmpty(t, got[4].Doubt)
	h.adds(t, t)
}

func TestFailedAndRefusedWorkIsFree(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	for i, o := range []pricing.Outcome{pricing.Failed, pricing.Refused} {
		h.hold(t, hold(i, 0, 100))
		e := ended(i, 0, 30)
		e.Usage.Outcome, e.Usage.ChargedMicro = o, 0
		require.Equal(t, []ledger.Booking{{Job: job(i), Held: 100}}, h.settle(t, e))
	}
	require.Equal(t, ledger.Balance{Micro: 1000}, h.balance(t, "a0"))
	r := h.adds(t, t)
	require.EqualValues(t, 2, r.Settlements, "what is free leaves a row too")
}

func TestAChargeAboveTheHoldTakesWhatIsFreeAndNoMore(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100, 30)
	h.hold(t, hold(1, 0, 10), hold(2, 0, 80))
	require.Equal(t, []ledger.Booking{{Job: job(1), Charged: 20, Shortfall: 30, Held: 10}}, h.settle(t, ended(1, 0, 50)))
	require.Equal(t, ledger.Balance{Micro: 80, Held: 80, OpenHolds: 1}, h.balance(t, "a0"), "the other hold is untouched")

	got := h.settle(t, ended(3, 1, 20), ended(4, 1, 20))
	require.EqualValues(t, 20, got[0].Charged, "an end without a hold is paid from what is free")
	require.Equal(t, ledger.Booking{Job: job(4), Charged: 10, Shortfall: 10}, got[1])
	require.Equal(t, ledger.Balance{}, h.balance(t, "a1"))
	require.Equal(t, []fault.Code{fault.Invalid}, codes(h.hold(t, hold(3, 1, 1))), "its hold came too late")
	h.adds(t, t)
}

func TestAHoldOfAnotherAccountIsNotTouched(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 100, 100)
	h.hold(t, hold(1, 0, 50))
	require.Equal(t, ledger.ForeignHold, h.settle(t, ended(1, 1, 20))[0].Verdict)
	require.Equal(t, []fault.Code{fault.Invalid}, codes(h.hold(t, hold(1, 1, 50))))
	require.Equal(t, ledger.Balance{Micro: 100, Held: 50, OpenHolds: 1}, h.balance(t, "a0"))
	require.Equal(t, ledger.Balance{Micro: 100}, h.balance(t, "a1"))
	h.adds(t, t)
}

func TestACreditIsBookedOnceByItsCause(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0, 0)
	c := ledger.Credit{Account: "a0", Micro: 5 * money.USD, Cause: "invoice-7"}
	var booked sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			b, err := h.desk.Credit(t.Context(), c)
			if err == nil && b {
				booked.Store(i, true)
			}
		})
	}
	wg.Wait()
	n := 0
	booked.Range(func(any, any) bool { n++; return true })
	require.Equal(t, 1, n)
	require.EqualValues(t, 5*money.USD, h.balance(t, "a0").Micro)
	c.Micro++
	_, err := h.desk.Credit(t.Context(), c)
	require.True(t, fault.Is(err, fault.Invalid), err)
	c.Account, c.Micro = "a1", 5*money.USD
	_, err = h.desk.Credit(t.Context(), c)
	require.True(t, fault.Is(err, fault.Invalid), err)
	_, err = h.desk.Credit(t.Context(), ledger.Credit{Account: "nobody", Micro: 1, Cause: "x"})
	require.Error(t, err)
	h.adds(t, t)
}

func TestAClosedAccountTakesNoMoney(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	paid := ledger.Credit{Account: "a0", Micro: 7, Cause: "invoice-1"}
	_, err := h.desk.Credit(t.Context(), paid)
	require.NoError(t, err)

	// A payment that comes while the account is being closed waits for that.
	closing, err := h.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = closing.Exec(t.Context(), "update accounts set closed_at = now() where id = 'a0'")
	require.NoError(t, err)
	refused := make(chan error, 1)
	go func() {
		_, err := h.desk.Credit(context.Background(), ledger.Credit{Account: "a0", Micro: 5, Cause: "invoice-2"})
		refused <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, closing.QueryRow(t.Context(), `select exists (
			select from pg_locks where not granted and pid in (select pid from pg_stat_activity where datname = current_database()))`).Scan(&waits))
		return waits || len(refused) > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, closing.Commit(t.Context()))
	err = <-refused
	require.True(t, fault.Is(err, fault.Invalid), err)
	require.ErrorContains(t, err, "closed")

	// What was paid in before is no news, and nothing else is booked.
	booked, err := h.desk.Credit(t.Context(), paid)
	require.NoError(t, err)
	require.False(t, booked)
	require.Equal(t, money.Micro(7), h.balance(t, "a0").Micro)
	h.adds(t, t)
}
