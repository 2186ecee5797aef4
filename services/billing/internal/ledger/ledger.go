// Package ledger owns money: it takes holds, books what jobs cost, credits
// accounts and proves that everything adds up. It is the only writer of
// entries. Keys and accounts are package account's, and the bus, batching and
// timers are the front door's.
//
// The invariants, each kept by the database and tried by this package's tests:
//
//   - The entries of a transaction sum to zero; the journal is append-only.
//   - What a job cost stands in its settlement, which names the transaction that
//     moved the money. Jobs that are settled together share one: its entries are
//     what each account pays for all of them, and the revenue.
//   - A balance moves only with entries and is never below what is held.
//   - A job is settled once. The first message about its end decides, whatever
//     comes later and however often changes nothing; a hold that ran out
//     without one is such an end too, at no charge.
//   - A hold and its settlement are one state change: never both open, never
//     neither.
//
// What is charged. The price is pricing.Charge of the outcome, the tokens and
// the rates frozen when the job was admitted, computed here again and not
// believed. Booked is the smaller of that price and the amount the edge told
// the caller, so nobody pays more than the rates say or than they were told; a
// difference between the two is an alarm, except that an edge may stop at the
// hold. Of that amount, what the hold does not cover is taken from what the
// account has free; what that does not cover either is a shortfall, recorded
// and reported, and never a negative balance.
//
// To add a kind of movement, add its name to the check of the transactions in
// a new migration and a method beside Credit that writes its entries in one
// statement.
package ledger

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing/internal/ledger/dbsqlc"
)

// Role is what connections to the ledger work as.
const Role = "engy_billing"

// Ledger takes holds and books ends. It is safe for concurrent use, by several
// processes on one database too.
type Ledger struct {
	holds *pgxpool.Pool
	books *pgxpool.Pool
}

// Open connects to the ledger's database. Close it when done.
func Open(ctx context.Context, dsn string) (*Ledger, error) {
	holds := planned()
	// A crash of the database may lose the holds of its last instant: an
	// account may then overspend by what was under way. Never a booking.
	holds["synchronous_commit"] = "off"
	h, err := pg.Open(ctx, pg.Config{DSN: dsn, Role: Role, Conns: holdConns, Settings: holds, Name: "billing holds"})
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	b, err := pg.Open(ctx, pg.Config{DSN: dsn, Role: Role, Conns: bookConns, Settings: planned(), Name: "billing books"})
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Ledger{holds: h, books: b}, nil
}

// Close closes the connections.
func (l *Ledger) Close() {
	l.holds.Close()
	l.books.Close()
}

// planned are the settings under which the two large functions run. Their
// statements are planned once per connection, perhaps while the tables are
// empty, and must not come out as a walk over a table that will be large.
func planned() map[string]string {
	return map[string]string{
		"plan_cache_mode":   "force_generic_plan",
		"enable_seqscan":    "off",
		"enable_hashjoin":   "off",
		"enable_mergejoin":  "off",
		"enable_bitmapscan": "off",
		"jit":               "off",
		"statement_timeout": statementWait,
	}
}

// OpenHold is an open hold of a job, as the database has it.
type OpenHold struct {
	Job     string
	Account string
	Key     string
	Model   string
	Micro   money.Micro
	Rates   pricing.Rates
	Expires time.Time
}

// HoldOf finds the open hold of a job; a coded NotFound when there is none.
func (l *Ledger) HoldOf(ctx context.Context, job string) (OpenHold, error) {
	r, err := dbsqlc.New(l.books).GetHold(ctx, toDBJob(job))
	if err != nil {
		return OpenHold{}, fmt.Errorf("hold of %s: %w", job, pg.Translate(err))
	}
	return OpenHold{
		Job: r.Job, Account: r.AccountID, Key: r.KeyID, Model: r.Model, Micro: money.Micro(r.Micro),
		Rates: rates(r.RateVersion, r.RateInput, r.RateOutput, r.RateCached), Expires: r.ExpiresAt,
	}, nil
}

// Expired takes up holds that ran out before now, at most batch of them, oldest
// first. Nobody else gets the same ones for the time of the lease; what is not
// settled by then comes again.
func (l *Ledger) Expired(ctx context.Context, now time.Time, lease time.Duration, batch int) ([]OpenHold, error) {
	rows, err := dbsqlc.New(l.books).ClaimExpiredHolds(ctx, now, now.Add(-lease), int32(batch))
	if err != nil {
		return nil, fmt.Errorf("expired holds: %w", pg.Translate(err))
	}
	holds := make([]OpenHold, 0, len(rows))
	for _, r := range rows {
		holds = append(holds, OpenHold{
			Job: r.Job, Account: r.AccountID, Key: r.KeyID, Model: r.Model, Micro: money.Micro(r.Micro),
			Rates: rates(r.RateVersion, r.RateInput, r.RateOutput, r.RateCached), Expires: r.ExpiresAt,
		})
	}
	return holds, nil
}

func rates(version string, in, out, cached int64) pricing.Rates {
	return pricing.Rates{
		Version: version, Input: money.Rate(in), Output: money.Rate(out), CachedInput: money.Rate(cached),
	}
}

// Renew moves the end of the jobs' holds, and tells how many are open. An id
// that is no job's is passed over.
func (l *Ledger) Renew(ctx context.Context, jobs []string, expires time.Time) (int64, error) {
	n, err := dbsqlc.New(l.books).RenewHolds(ctx, expires, slices.DeleteFunc(slices.Clone(jobs), func(j string) bool { return !isJob(j) }))
	if err != nil {
		return 0, fmt.Errorf("renew %d holds: %w", len(jobs), pg.Translate(err))
	}
	return n, nil
}

// isJob tells whether s is a job id: 64 lower-case hex digits.
func isJob(s string) bool {
	if len(s) != jobBytes {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// toDBJob gives a job id's bytes; what is no job id is none in the database.
func toDBJob(job string) []byte {
	raw, err := hex.DecodeString(job)
	if err != nil {
		return nil
	}
	return raw
}

// isName tells whether the database can store s: one bad string would fail the
// whole group it travels in.
func isName(s string) bool {
	return len(s) <= nameBytesMax && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

func areRates(r pricing.Rates) bool {
	return r.Input >= 0 && r.Output >= 0 && r.CachedInput >= 0 && isName(r.Version)
}

// places numbers what is named several times, counted from one as SQL does.
type places[K comparable] map[K]int32

// sortedPlaces places names in their order, each once. Accounts are placed so:
// it is the order in which they are locked.
func sortedPlaces(names []string) (sorted []string, p places[string]) {
	slices.Sort(names)
	names = slices.Compact(names)
	p = make(places[string], len(names))
	for _, n := range names {
		p.of(n)
	}
	return names, p
}

func (p places[K]) of(name K) (place int32, isNew bool) {
	if at, ok := p[name]; ok {
		return at, false
	}
	at := int32(len(p) + 1)
	p[name] = at
	return at, true
}
