package ledger

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/ledger/dbsqlc"
)

const (
	funding    = "funding"
	creditKind = "credit"
)

// Desk is where operators move and look at money. It shares the ledger's rules
// and not its connections.
type Desk struct{ pool *pgxpool.Pool }

// NewDesk works on a pool whose connections have taken on Role.
func NewDesk(pool *pgxpool.Pool) *Desk { return &Desk{pool: pool} }

// Credit pays money into an account. The cause names the payment: crediting it
// again with the same amount changes nothing and tells booked false; with
// another amount or account it is refused, and so is a new payment into a
// closed account: its money could never be spent.
func (d *Desk) Credit(ctx context.Context, c Credit) (booked bool, err error) {
	if err := c.check(); err != nil {
		return false, err
	}
	err = pg.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		id, err := q.CreateTransaction(ctx, creditKind, c.Cause, c.Note)
		if errors.Is(err, pgx.ErrNoRows) {
			return c.same(ctx, q)
		}
		if err != nil {
			return err
		}
		booked = true
		closed, err := q.LockCustomer(ctx, c.Account)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fault.New(fault.NotFound, "no such account")
		case err != nil:
			return err
		case closed != nil:
			return fault.New(fault.Invalid, "the account is closed, and closed accounts take no money")
		}
		return q.CreateEntryPair(ctx, dbsqlc.CreateEntryPairParams{
			TransactionID: id, AccountID: c.Account, AmountMicro: int64(c.Micro), OtherAccountID: funding,
		})
	})
	if err != nil {
		return false, fmt.Errorf("credit %s: %w", c.Cause, err)
	}
	return booked, nil
}

// Credit is a payment into an account.
type Credit struct {
	Account string
	Micro   money.Micro
	// Cause names the payment for good, for example an invoice number.
	Cause string
	Note  string
}

func (c Credit) check() error {
	switch {
	case c.Micro <= 0:
		return fault.At("micro", "credit must be more than zero")
	case !regexp.MustCompile(`^[A-Za-z0-9._:@/-]{1,180}$`).MatchString(c.Cause):
		return fault.At("cause", "cause must be 1 to 180 letters, digits or . _ : @ / -")
	case len(c.Note) > noteBytesMax || !utf8.ValidString(c.Note) || strings.ContainsRune(c.Note, 0) || !isName(c.Account):
		return fault.At("note", "note or account is too long or not text")
	case c.Account == funding || c.Account == "revenue":
		return fault.At("account", "system accounts are not credited")
	}
	return nil
}

func (c Credit) same(ctx context.Context, q *dbsqlc.Queries) error {
	was, err := q.GetEntry(ctx, creditKind, c.Cause, c.Account)
	if err == nil && was == int64(c.Micro) {
		return nil
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return fault.At("cause", "this cause was credited with another amount or account")
}

// Balance is an account's money.
type Balance struct {
	Micro     money.Micro // what it owns, held money included
	Held      money.Micro
	OpenHolds int64
}

// Balance reads an account's money.
func (d *Desk) Balance(ctx context.Context, account string) (Balance, error) {
	r, err := dbsqlc.New(d.pool).GetBalance(ctx, account)
	if err != nil {
		return Balance{}, fmt.Errorf("balance of %s: %w", account, pg.Translate(err))
	}
	return Balance{Micro: money.Micro(r.BalanceMicro), Held: money.Micro(r.HeldMicro), OpenHolds: r.OpenHolds}, nil
}

// Report is what Reconcile found. Findings is empty when everything adds up.
type Report struct {
	Entries     int64
	Settlements int64
	OpenHolds   int64
	Findings    []string
}

// Reconcile proves the ledger against itself, on one consistent picture of it:
// entries sum to zero by transaction and in all; balances are the sums of their
// entries; what a transaction took from an account is what its settlements
// charged; what is held is what holds hold; and no hold ran out before the given
// time. Usage events are compared by Match.
func (d *Desk) Reconcile(ctx context.Context, overdue time.Time) (Report, error) {
	var r Report
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return r, fmt.Errorf("reconcile: %w", pg.Translate(err))
	}
	// Nothing was written: there is nothing to lose in a rollback.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	q := dbsqlc.New(tx)
	for _, check := range []func(context.Context, *dbsqlc.Queries) error{
		r.sums, r.balances, r.transactions, r.charges, r.held, r.keys,
		func(ctx context.Context, q *dbsqlc.Queries) error { return r.overdue(ctx, q, overdue) },
	} {
		if err := check(ctx, q); err != nil {
			return r, fmt.Errorf("reconcile: %w", pg.Translate(err))
		}
	}
	return r, nil
}

func (r *Report) find(format string, args ...any) {
	r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
}

func (r *Report) sums(ctx context.Context, q *dbsqlc.Queries) error {
	c, err := q.CountJournal(ctx)
	if err != nil {
		return err
	}
	r.Entries, r.Settlements, r.OpenHolds = c.Entries, c.Settlements, c.Holds
	if c.SumMicro != 0 {
		r.find("all entries together sum to %d, not zero", c.SumMicro)
	}
	return nil
}

func (r *Report) balances(ctx context.Context, q *dbsqlc.Queries) error {
	rows, err := q.ListWrongBalances(ctx, findingsMax)
	for _, w := range rows {
		r.find("account %s: balance %d, entries sum to %d", w.AccountID, w.BalanceMicro, w.EntriesMicro)
	}
	return err
}

func (r *Report) transactions(ctx context.Context, q *dbsqlc.Queries) error {
	rows, err := q.ListWrongTransactions(ctx, findingsMax)
	for _, w := range rows {
		r.find("transaction %d (%s %s): %d entries sum to %d", w.ID, w.Kind, w.Cause, w.Lines, w.SumMicro)
	}
	return err
}

func (r *Report) charges(ctx context.Context, q *dbsqlc.Queries) error {
	rows, err := q.ListWrongCharges(ctx, findingsMax)
	for _, w := range rows {
		r.find("transaction %d, account %q: settlements sum to %d, booked %d", w.TransactionID, w.AccountID, w.SettledMicro, w.BookedMicro)
	}
	return err
}

func (r *Report) held(ctx context.Context, q *dbsqlc.Queries) error {
	rows, err := q.ListWrongHeld(ctx, findingsMax)
	for _, w := range rows {
		r.find("account %s: %d held by %d holds, holds say %d by %d", w.AccountID, w.HeldMicro, w.OpenHolds, w.HoldsMicro, w.Holds)
	}
	return err
}

func (r *Report) keys(ctx context.Context, q *dbsqlc.Queries) error {
	rows, err := q.ListWrongKeys(ctx, findingsMax)
	for _, w := range rows {
		r.find("key %s: held %d, holds say %d; spent %d, settlements say %d", w.ID, w.HeldMicro, w.HoldsMicro, w.SpentMicro, w.SettledMicro)
	}
	return err
}

func (r *Report) overdue(ctx context.Context, q *dbsqlc.Queries, before time.Time) error {
	rows, err := q.ListOverdueHolds(ctx, before, findingsMax)
	for _, w := range rows {
		r.find("hold %s of account %s: ran out at %s", w.Job, w.AccountID, w.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return err
}

// Match compares usage events with the books: each is booked once, with its
// charge. Events of the last moments may still be on their way and are not
// asked for.
func (d *Desk) Match(ctx context.Context, events []bus.UsageEvent) (findings []string, err error) {
	jobs := make([]string, 0, len(events))
	for _, e := range events {
		if !isJob(e.Data.Job) {
			findings = append(findings, "usage event of no job: "+strconv.Quote(e.ID))
			continue
		}
		jobs = append(jobs, e.Data.Job)
	}
	booked, err := booked(ctx, d.pool, jobs)
	if err != nil {
		return nil, fmt.Errorf("match usage: %w", err)
	}
	for _, e := range events {
		got, ok := booked[e.Data.Job]
		switch {
		case !isJob(e.Data.Job):
		case !ok:
			findings = append(findings, "usage event "+e.Data.Job+" is not booked")
		case got != e.Data.ChargedMicro:
			findings = append(findings, fmt.Sprintf("usage event %s says %d micro-USD, booked are %d", e.Data.Job, e.Data.ChargedMicro, got))
		}
	}
	return findings, nil
}

// booked gives what the jobs that are settled cost.
func booked(ctx context.Context, pool *pgxpool.Pool, jobs []string) (map[string]money.Micro, error) {
	rows, err := dbsqlc.New(pool).ListBooked(ctx, jobs)
	if err != nil {
		return nil, pg.Translate(err)
	}
	charged := make(map[string]money.Micro, len(rows))
	for _, r := range rows {
		charged[r.Job] = money.Micro(r.ChargedMicro)
	}
	return charged, nil
}

// BookedByUsage counts the settlements that usage events of a time decided.
func (d *Desk) BookedByUsage(ctx context.Context, first, last time.Time) (int64, error) {
	n, err := dbsqlc.New(d.pool).CountBookedByUsage(ctx, first, last)
	if err != nil {
		return 0, fmt.Errorf("count usage: %w", pg.Translate(err))
	}
	return n, nil
}
