package billing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/account"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// What operators see of accounts, keys and money.
type (
	// Account is a customer and its money.
	Account = account.Account
	// Key is an inference key without its secret.
	Key = account.Key
	// KeyOptions are what a new key may do.
	KeyOptions = account.KeyOptions
	// Credit is a payment into an account; its cause makes it count once.
	Credit = ledger.Credit
	// Balance is an account's money.
	Balance = ledger.Balance
	// Report is what Reconcile found.
	Report = ledger.Report
)

// ErrKeyRevoked is why ImportKey refuses the secret of a key that was revoked.
var ErrKeyRevoked = account.ErrRevoked // read-only

// Admin is billing for operators: what the command line does. It works on the
// database, not through a running service; services hear of changes from the
// database.
type Admin struct {
	pool  *pg.Pool
	store *account.Store
	desk  *ledger.Desk
}

// OpenAdmin connects to the ledger's database, whose schema must be there.
func OpenAdmin(ctx context.Context, dsn string) (*Admin, error) {
	pool, err := pg.Open(ctx, pg.Config{DSN: dsn, Role: ledger.Role, Name: "billing admin"})
	if err != nil {
		return nil, fmt.Errorf("billing admin: %w", err)
	}
	return &Admin{pool: pool, store: account.NewStore(pool), desk: ledger.NewDesk(pool)}, nil
}

// Close closes the connections.
func (a *Admin) Close() { a.pool.Close() }

// CreateAccount makes an account without money; the name must be new.
func (a *Admin) CreateAccount(ctx context.Context, name string) (Account, error) {
	return a.store.CreateAccount(ctx, name, nil)
}

// CreateLimitedAccount makes an account that may have so many jobs under way.
func (a *Admin) CreateLimitedAccount(ctx context.Context, name string, concurrentMax int64) (Account, error) {
	return a.store.CreateAccount(ctx, name, &concurrentMax)
}

// Account finds an account by id or name; a coded NotFound when there is none.
func (a *Admin) Account(ctx context.Context, idOrName string) (Account, error) {
	return a.store.Account(ctx, idOrName)
}

// ListAccounts lists all accounts with their money.
func (a *Admin) ListAccounts(ctx context.Context) ([]Account, error) { return a.store.Accounts(ctx) }

// CloseAccount revokes an account's keys and takes no new ones.
func (a *Admin) CloseAccount(ctx context.Context, id string) error {
	return a.store.CloseAccount(ctx, id)
}

// SetRetain says whether the prompts and answers of an account may be kept.
func (a *Admin) SetRetain(ctx context.Context, id string, retain bool) error {
	return a.store.SetRetain(ctx, id, retain)
}

// Credit pays money into an open account. The same cause again changes nothing and
// tells booked false; with another amount it is refused.
func (a *Admin) Credit(ctx context.Context, c Credit) (booked bool, err error) {
	return a.desk.Credit(ctx, c)
}

// Balance reads an account's money.
func (a *Admin) Balance(ctx context.Context, account string) (Balance, error) {
	return a.desk.Balance(ctx, account)
}

// CreateKey makes a key and gives its secret, which is nowhere afterwards.
func (a *Admin) CreateKey(ctx context.Context, account string, o KeyOptions) (id, secret string, err error) {
	return a.store.CreateKey(ctx, account, o)
}

// ImportKey files a key whose secret is fixed; again, it gives the same key, or
// ErrKeyRevoked.
func (a *Admin) ImportKey(ctx context.Context, account, secret string, o KeyOptions) (id string, err error) {
	return a.store.ImportKey(ctx, account, secret, o)
}

// ListKeys lists the keys of an account, revoked ones too.
func (a *Admin) ListKeys(ctx context.Context, account string) ([]Key, error) {
	return a.store.Keys(ctx, account)
}

// RevokeKey ends a key; edges hear of it at once.
func (a *Admin) RevokeKey(ctx context.Context, id string) error { return a.store.RevokeKey(ctx, id) }

// Reconcile proves the ledger against itself; what does not add up is in the
// findings.
func (a *Admin) Reconcile(ctx context.Context) (Report, error) {
	return a.desk.Reconcile(ctx, time.Now().Add(-holdOverdue))
}

// MatchUsage compares all usage events on the bus with the books, both ways:
// each event is booked once with its charge, and no more is booked by usage than
// there are events. It gives how many events it compared.
func (a *Admin) MatchUsage(ctx context.Context, b *bus.Bus) (compared int64, findings []string, err error) {
	settled := time.Now().Add(-usageOnItsWay)
	var first, last time.Time
	err = b.EachUsage(ctx, usageBatchMax, func(events []bus.UsageEvent) error {
		events = slices.DeleteFunc(events, func(e bus.UsageEvent) bool { return e.Time.After(settled) })
		for _, e := range events {
			if first.IsZero() || e.Time.Before(first) {
				first = e.Time
			}
			if e.Time.After(last) {
				last = e.Time
			}
		}
		compared += int64(len(events))
		found, err := a.desk.Match(ctx, events)
		findings = append(findings, found...)
		return err
	})
	if err != nil || compared == 0 {
		return compared, findings, err
	}
	booked, err := a.desk.BookedByUsage(ctx, first, last)
	if booked > compared {
		findings = append(findings, fmt.Sprintf("%d settlements by usage, %d usage events", booked, compared))
	}
	return compared, findings, err
}
