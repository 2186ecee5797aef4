package billing_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/bus/natsembed"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/sql"
)

func TestMain(m *testing.M) { pgtest.Main(wrap{m}) }

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

const (
	soon  = time.Minute
	check = 5 * time.Millisecond
)

// place is a running billing with its bus, its database and one account.
type place struct {
	dsn     string
	bus     *bus.Bus
	admin   *billing.Admin
	account string
	key     string
	hash    string
	board   *board
	server  *natsembed.Server
	// benched are the accounts of a benchmark, each with its key.
	benched [][2]string
}

func newPlace(t *testing.T, credit money.Micro) *place {
	t.Helper()
	p := &place{dsn: pgtest.DSN(t, sql.Billing()), server: bustest.Server(t)}
	p.bus = bustest.Connect(t, p.server, bus.Config{})
	var err error
	p.admin, err = billing.OpenAdmin(t.Context(), p.dsn)
	require.NoError(t, err)
	t.Cleanup(p.admin.Close)
	a, err := p.admin.CreateAccount(t.Context(), "customer")
	require.NoError(t, err)
	p.account = a.ID
	if credit > 0 {
		_, err = p.admin.Credit(t.Context(), billing.Credit{Account: a.ID, Micro: credit, Cause: "first"})
		require.NoError(t, err)
	}
	var secret string
	p.key, secret, err = p.admin.CreateKey(t.Context(), a.ID, billing.KeyOptions{Models: []string{"m"}})
	require.NoError(t, err)
	p.hash = hashOf(secret)
	p.board = watch(t, p.bus)
	return p
}

// run starts one billing and waits until it has published the key, which is
// when it is up.
func (p *place) run(t *testing.T, cfg billing.Config, clock func() time.Time) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg.DatabaseURL = p.dsn
	go func() {
		done <- billing.Run(ctx, cfg, billing.Deps{Bus: p.bus, Log: slog.New(slog.DiscardHandler), Clock: clock})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return p.board.key(p.hash) != nil }, soon, check)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// An impossible hold: somebody answers, and nothing is held.
		a, err := p.bus.Hold(ctx, bus.Hold{Job: "none"})
		return err == nil && a.Code == fault.Invalid
	}, soon, check)
	return stop
}

// board is what an edge sees.
type board struct {
	mu    sync.Mutex
	keys  map[string]bus.Principal
	funds map[string]bool
}

func watch(t *testing.T, b *bus.Bus) *board {
	t.Helper()
	w := &board{keys: map[string]bus.Principal{}, funds: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		_ = b.WatchPrincipals(ctx, func() {}, func(hash string, p *bus.Principal) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if p == nil {
				delete(w.keys, hash)
				return
			}
			w.keys[hash] = *p
		})
	})
	wg.Go(func() {
		_ = b.WatchFunds(ctx, func() {}, func(f bus.Funds) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.funds[f.Account] = f.Empty
		})
	})
	return w
}

func (w *board) key(hash string) *bus.Principal {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.keys[hash]; ok {
		return &p
	}
	return nil
}

func (w *board) empty(account string) (empty, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	empty, known = w.funds[account]
	return empty, known
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// job is one of edge-1's.
func job(n int) string {
	id := hashOf(fmt.Sprintf("job %d", n))
	return id[:12] + hashOf("edge-1")[:20] + id[32:]
}

func rates() pricing.Rates {
	return pricing.Rates{Version: "test", Input: 1_000_000, CachedInput: 100_000, Output: 4_000_000}
}

func (p *place) hold(n int, micro money.Micro) bus.Hold {
	return bus.Hold{
		Job: job(n), Account: p.account, Key: p.key, Model: "m", Micro: micro, FloorMicro: micro,
		Rates: rates(), Expires: time.Now().Add(time.Hour),
	}
}

func (p *place) usage(n int, tokens int64) bus.Usage {
	return bus.Usage{
		Job: job(n), Account: p.account, Key: p.key, Model: "m", Region: "eu", Route: "chat",
		Outcome: pricing.Finished, Tokens: llm.Usage{Prompt: tokens}, Rates: rates(), ChargedMicro: money.Micro(tokens),
	}
}

// answered asks for a hold until billing has had the time to decide; to ask again
// changes nothing.
func (p *place) answered(ctx context.Context, h bus.Hold) (a bus.HoldAnswer, err error) {
	for begun := time.Now(); time.Since(begun) < soon; {
		a, err = p.bus.Hold(ctx, h)
		if !fault.Is(err, fault.Timeout) && a.Code != fault.Busy {
			break
		}
	}
	return a, err
}

func (p *place) ask(t *testing.T, h bus.Hold) bus.HoldAnswer {
	t.Helper()
	a, err := p.answered(t.Context(), h)
	require.NoError(t, err)
	return a
}

// settled waits until the account has this much and nothing is held.
func (p *place) settled(t *testing.T, micro money.Micro) {
	t.Helper()
	var last billing.Balance
	require.Eventually(t, func() bool {
		b, err := p.admin.Balance(t.Context(), p.account)
		last = b
		return err == nil && b == billing.Balance{Micro: micro}
	}, soon, check, "want %d, last %+v", micro, &last)
	r, err := p.admin.Reconcile(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Findings)
}

func TestAJobIsHeldAndBooked(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1000)
	stop := p.run(t, billing.Config{}, nil)
	require.Equal(t, bus.HoldAnswer{Micro: 400}, p.ask(t, p.hold(1, 400)))
	require.NoError(t, p.bus.RecordUsage(p.usage(1, 300)))
	p.settled(t, 700)
	stop()
	// Nothing is lost while nobody serves.
	require.NoError(t, p.bus.RecordUsage(p.usage(2, 100)))
	p.run(t, billing.Config{}, nil)
	p.settled(t, 600)
}

func TestTwoReplicasAdmitExactlyWhatIsCovered(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1000)
	p.run(t, billing.Config{}, nil)
	p.run(t, billing.Config{}, nil)
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			switch a, err := p.answered(t.Context(), p.hold(n, 100)); {
			case err != nil:
				t.Error(err)
			case a.Code == "":
				admitted.Add(1)
				if err := p.bus.RecordUsage(p.usage(n, 100)); err != nil {
					t.Error(err)
				}
			case a.Code == fault.NoFunds:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 10, admitted.Load())
	require.EqualValues(t, 40, refused.Load())
	p.settled(t, 0)
}

func TestEdgesHearOfKeysAndFunds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 0)
	require.NoError(t, p.bus.PutPrincipal(t.Context(), hashOf("gone"), bus.Principal{Account: "x", Key: "y"}))
	p.run(t, billing.Config{}, nil)
	require.Equal(t, &bus.Principal{Account: p.account, Key: p.key, Models: []string{"m"}}, p.board.key(p.hash))
	require.Eventually(t, func() bool { return p.board.key(hashOf("gone")) == nil }, soon, check, "a stale key is taken off")
	isEmpty := func(want bool) func() bool {
		return func() bool {
			empty, known := p.board.empty(p.account)
			return known && empty == want
		}
	}
	require.Eventually(t, isEmpty(true), soon, check)
	_, err := p.admin.Credit(t.Context(), billing.Credit{Account: p.account, Micro: 100, Cause: "c"})
	require.NoError(t, err)
	require.Eventually(t, isEmpty(false), soon, check)
	p.ask(t, p.hold(1, 100))
	require.NoError(t, p.bus.RecordUsage(p.usage(1, 100)))
	require.Eventually(t, isEmpty(true), soon, check)
	_, err = p.admin.Credit(t.Context(), billing.Credit{Account: p.account, Micro: 60, Cause: "c2"})
	require.NoError(t, err)
	require.Eventually(t, isEmpty(false), soon, check)
	p.ask(t, p.hold(2, 60))
	require.Never(t, isEmpty(true), 100*time.Millisecond, check, "what is held is there")

	_, secret, err := p.admin.CreateKey(t.Context(), p.account, billing.KeyOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.board.key(hashOf(secret)) != nil }, soon, check)
	require.NoError(t, p.admin.RevokeKey(t.Context(), p.key))
	require.Eventually(t, func() bool { return p.board.key(p.hash) == nil }, soon, check)
	require.Equal(t, fault.Unauthorized, p.ask(t, p.hold(3, 1)).Code)
	require.NoError(t, p.admin.CloseAccount(t.Context(), p.account))
	require.Eventually(t, func() bool { return p.board.key(hashOf(secret)) == nil }, soon, check)
}

func TestTheProjectionSurvivesLostConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1000)
	p.run(t, billing.Config{}, nil)
	p.cut(t)
	require.NoError(t, p.admin.RevokeKey(t.Context(), p.key))
	require.Eventually(t, func() bool { return p.board.key(p.hash) == nil }, soon, check)
}

func TestLostConnectionsBookNothingTwiceAndLoseNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 100_000)
	p.run(t, billing.Config{}, nil)
	const jobs = 200
	var wg sync.WaitGroup
	for n := range jobs {
		wg.Go(func() {
			// A hold that is not answered in time may stand or not; the usage
			// event ends it either way.
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			_, _ = p.bus.Hold(ctx, p.hold(n, 200))
			if err := p.bus.RecordUsage(p.usage(n, 100)); err != nil {
				t.Error(err)
			}
		})
		if n%40 == 20 {
			p.cut(t)
		}
	}
	wg.Wait()
	p.settled(t, 100_000-jobs*100)
}

// cut ends every connection of the service to the database.
func (p *place) cut(t *testing.T) {
	t.Helper()
	pool := pgtest.Open(t, pg.Config{DSN: p.dsn, Name: "cutter", Conns: 1})
	_, err := pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name in ('billing holds', 'billing books', 'billing accounts')")
	require.NoError(t, err)
}

func TestAReportSettlesTheJobOfADeadEdge(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1000)
	p.run(t, billing.Config{}, nil)
	p.ask(t, p.hold(1, 400))
	require.NoError(t, p.bus.WriteReport(bus.Report{
		Job: job(1), Attempt: 1, Worker: "w", Owner: "edge-1", Model: "m", Outcome: pricing.Left,
		Tokens: llm.Usage{Prompt: 10, Completion: 5}, Time: time.Now(),
	}))
	p.settled(t, 970)
}

// edge is one that has no jobs and tells when it is asked whether it lives.
type edge struct{ asked chan string }

func (edge) Grant(bus.Claim) (bus.Grant, []byte)               { return bus.Grant{Verdict: bus.Gone}, nil }
func (edge) Declined(_, _ string, _ int, _ bool)               {}
func (edge) Body(bus.Claim) []byte                             { return nil }
func (edge) Take(string, bus.Frame, func()) bool               { return false }
func (e edge) Alive(who string, _ []bus.Running) []bus.Running { e.asked <- who; return nil }

// A worker may take an edge for dead that is only cut off from it: two would book
// the same job then, and the client has been told what the edge books.
func TestALivingEdgeBooksItsJobsItself(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1000)
	p.run(t, billing.Config{}, nil)
	e := edge{asked: make(chan string, 10)}
	ready := make(chan struct{})
	die := bustest.Run(t, func(ctx context.Context) error { return p.bus.Own(ctx, "edge-1", e, func() { close(ready) }) })
	<-ready
	report := bus.Report{
		Attempt: 1, Worker: "w", Owner: "edge-1", Model: "m", Outcome: pricing.Finished,
		Tokens: llm.Usage{Prompt: 10, Completion: 5}, Time: time.Now(),
	}
	for n := range 2 {
		p.ask(t, p.hold(n, 400))
		report.Job = job(n)
		require.NoError(t, p.bus.WriteReport(report))
		require.Equal(t, "-", <-e.asked)
	}
	require.NoError(t, p.bus.RecordUsage(p.usage(0, 7)))
	require.Eventually(t, func() bool {
		b, err := p.admin.Balance(t.Context(), p.account)
		return err == nil && b.Micro == 993 && b.OpenHolds == 1
	}, soon, check)
	// A worker cannot end a job by naming an edge that is not there, or none.
	p.ask(t, p.hold(3, 100))
	for i, owner := range []string{"", "edge-9"} {
		foreign := report
		foreign.Job, foreign.Owner, foreign.Attempt = job(3), owner, i+1
		require.NoError(t, p.bus.WriteReport(foreign))
	}
	// The other job's edge dies without a word.
	die()
	p.ask(t, p.hold(2, 400))
	report.Job = job(2)
	require.NoError(t, p.bus.WriteReport(report))
	require.Eventually(t, func() bool {
		b, err := p.admin.Balance(t.Context(), p.account)
		return err == nil && b.Micro == 963 && b.OpenHolds == 2
	}, soon, check)
}

func TestHoldsThatRanOutAreSettledByReportOrGivenBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1000)
	var late atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	p.run(t, billing.Config{SweepEvery: 20 * time.Millisecond, SweepAfter: time.Millisecond}, clock)
	p.run(t, billing.Config{SweepEvery: 20 * time.Millisecond, SweepAfter: time.Millisecond}, clock)
	for n := range 4 {
		require.Empty(t, p.ask(t, p.hold(n, 100)).Code)
	}
	for n, o := range []pricing.Outcome{pricing.Finished, pricing.Left, pricing.Failed} {
		require.NoError(t, p.bus.WriteReport(bus.Report{
			Job: job(n), Attempt: 1, Worker: "w", Owner: "edge-1", Model: "m", Outcome: o, Tokens: llm.Usage{Prompt: 10}, Time: time.Now(),
		}))
	}
	require.Eventually(t, func() bool {
		r, err := p.bus.ReportOf(t.Context(), job(2))
		return err == nil && r != nil
	}, soon, check)
	late.Store(int64(2 * time.Hour))
	p.settled(t, 980)
	// Too late: the job has ended.
	require.NoError(t, p.bus.RecordUsage(p.usage(3, 50)))
	require.NoError(t, p.bus.RecordUsage(p.usage(9, 30)))
	p.settled(t, 950)
}

func TestMoreHoldsThanMayWaitAreAnsweredBusy(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1_000_000)
	p.run(t, billing.Config{}, nil)
	owner := pgtest.Open(t, pg.Config{DSN: p.dsn, Name: "owner", Conns: 1})
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	// Also when the test fails: a pool does not close while it is used.
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), "select from balances where account_id = $1 for update", p.account)
	require.NoError(t, err)
	var full, stuck atomic.Int64
	var wg sync.WaitGroup
	// Each asker has at most two messages unanswered, so it takes several.
	var askers []*bus.Bus
	for range 8 {
		askers = append(askers, bustest.Connect(t, p.server, bus.Config{}))
	}
	for n := range 4000 {
		wg.Go(func() {
			a, err := askers[n%len(askers)].Hold(t.Context(), p.hold(n, 1))
			switch {
			case fault.Is(err, fault.Timeout):
				stuck.Add(1)
			case err != nil:
				t.Error(err)
			case strings.Contains(a.Message, "wait for their hold"):
				full.Add(1)
			case a.Code == fault.Busy:
				stuck.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return full.Load() >= 100 && stuck.Load() >= 1 }, soon, check)
	require.NoError(t, tx.Rollback(t.Context()))
	wg.Wait()
	require.Empty(t, p.ask(t, p.hold(9999, 1)).Code, "and it goes on")
}

func TestNoPasswordIsTold(t *testing.T) {
	t.Parallel()
	err := billing.Run(t.Context(), billing.Config{DatabaseURL: "postgres://me:hunter2@127.0.0.1:1/x?connect_timeout=1"}, billing.Deps{Log: slog.New(slog.DiscardHandler)})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	err = billing.Run(t.Context(), billing.Config{DatabaseURL: "postgres://me:hunter2@[bad"}, billing.Deps{Log: slog.New(slog.DiscardHandler)})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	for _, size := range []int{-1, 1001} {
		require.ErrorContains(t, billing.Config{DatabaseURL: "x", UsageBatch: size}.Validate(), "BILLING_USAGE_BATCH")
	}
	require.NoError(t, billing.Config{DatabaseURL: "x", UsageBatch: 1000}.Validate())
	require.Error(t, billing.Run(t.Context(), billing.Config{SweepEvery: -1, SweepAfter: time.Millisecond}, billing.Deps{}))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, billing.Run(stopped, billing.Config{DatabaseURL: pgtest.DSN(t, sql.Billing())}, billing.Deps{}),
		"a stop while it starts is no failure")
}
