// Package account owns customers and their keys, and tells edges of them: the
// key projection on the bus is written here and nowhere else. Money is package
// ledger's.
//
// The invariant: a key's secret exists in the answer of CreateKey and in the
// customer's hands; the database has its SHA-256 and a short prefix, the bus
// the hash. What the bus says follows the database within moments, whoever
// changed it, and is made equal to it at every start.
//
// To add a property of keys that edges must know, add the column in a
// migration, the field in bus.Principal, and the column to the key_changed
// trigger so that its change is heard.
package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/account/dbsqlc"
)

// SecretPrefix begins every inference key.
const SecretPrefix = "sk-engy-"

// ErrRevoked is why ImportKey refuses the secret of a key that was revoked: it
// does not come back, whoever asks.
var ErrRevoked = fault.New(fault.Invalid, "this key was revoked") // read-only

// Store reads and writes accounts and keys.
type Store struct{ pool *pgxpool.Pool }

// NewStore works on a pool whose connections have taken on the service's role.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// Account is a customer.
type Account struct {
	ID        string
	Name      string
	Retain    bool
	CreatedAt time.Time
	// ClosedAt is nil while the account is open.
	ClosedAt *time.Time
	// Micro is what the account owns; Held of it is set aside by OpenHolds jobs.
	Micro     money.Micro
	Held      money.Micro
	OpenHolds int64
	// ConcurrentMax limits the jobs under way; nil means no limit.
	ConcurrentMax *int64
}

// Key is an inference key without its secret.
type Key struct {
	ID      string
	Account string
	// Shown is the beginning of the secret, for people to tell keys apart.
	Shown  string
	Name   string
	Models []string
	// SpendMax limits what the key may spend in all, ConcurrentMax the jobs
	// under way; nil means no limit.
	SpendMax      *money.Micro
	ConcurrentMax *int64
	Spent         money.Micro
	Held          money.Micro
	OpenHolds     int64
	CreatedAt     time.Time
	// RevokedAt is nil while the key is good.
	RevokedAt *time.Time
}

// KeyOptions are what a new key may do.
type KeyOptions struct {
	Name          string
	Models        []string
	SpendMax      *money.Micro
	ConcurrentMax *int64
}

// CreateAccount makes an account without money. The name must be new.
func (s *Store) CreateAccount(ctx context.Context, name string, concurrentMax *int64) (Account, error) {
	if name == "" || len(name) > nameBytesMax || !isText(name) {
		return Account{}, fault.At("name", fmt.Sprintf("name must have 1 to %d bytes", nameBytesMax))
	}
	var a Account
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		row, err := q.CreateAccount(ctx, newID("acct"), name)
		if err != nil {
			return err
		}
		a = Account{ID: row.ID, Name: row.Name, Retain: row.Retain, CreatedAt: row.CreatedAt, ConcurrentMax: concurrentMax}
		return q.CreateBalance(ctx, row.ID, concurrentMax)
	})
	if pg.Violates(err, "accounts_name_key") {
		err = fault.New(fault.Invalid, "an account of this name exists already")
	}
	if err != nil {
		return Account{}, fmt.Errorf("account %q: %w", name, err)
	}
	return a, nil
}

// Account finds an account by id or name; a coded NotFound when there is none.
func (s *Store) Account(ctx context.Context, idOrName string) (Account, error) {
	if !isText(idOrName) {
		return Account{}, fault.New(fault.NotFound, "no such account")
	}
	r, err := dbsqlc.New(s.pool).GetAccount(ctx, idOrName)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fault.New(fault.NotFound, "no such account")
	}
	if err != nil {
		return Account{}, fmt.Errorf("account %q: %w", idOrName, pg.Translate(err))
	}
	return fromDBAccount(dbsqlc.ListAccountsRow(r)), nil
}

// Accounts lists all accounts, ordered by id.
func (s *Store) Accounts(ctx context.Context) ([]Account, error) {
	var all []Account
	after := ""
	for {
		rows, err := dbsqlc.New(s.pool).ListAccounts(ctx, after, pageRows)
		if err != nil {
			return nil, fmt.Errorf("accounts: %w", pg.Translate(err))
		}
		for _, r := range rows {
			all = append(all, fromDBAccount(r))
			after = r.ID
		}
		if len(rows) < pageRows {
			return all, nil
		}
	}
}

// CloseAccount revokes all keys of an account and takes no new ones. Money and
// history stay. Closing twice is fine.
func (s *Store) CloseAccount(ctx context.Context, id string) error {
	if _, err := s.Account(ctx, id); err != nil {
		return err
	}
	if _, err := dbsqlc.New(s.pool).CloseAccount(ctx, id); err != nil {
		return fmt.Errorf("account %s: %w", id, pg.Translate(err))
	}
	return nil
}

// SetRetain says whether the prompts and answers of an account may be kept, which
// edges hear of at once. One that is closed keeps what was said.
func (s *Store) SetRetain(ctx context.Context, id string, retain bool) error {
	n, err := dbsqlc.New(s.pool).SetRetain(ctx, retain, id)
	if err != nil {
		return fmt.Errorf("account %s: %w", id, pg.Translate(err))
	}
	if n == 0 {
		return s.notOpen(ctx, id)
	}
	return nil
}

// notOpen says why an account that is not open is not.
func (s *Store) notOpen(ctx context.Context, id string) error {
	if _, err := s.Account(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("account %s: %w", id, fault.New(fault.Invalid, "it is closed, and closed accounts stay closed"))
}

// CreateKey makes a key and gives its secret, this once.
func (s *Store) CreateKey(ctx context.Context, account string, o KeyOptions) (id, secret string, err error) {
	raw := make([]byte, secretBytes)
	rand.Read(raw)
	secret = SecretPrefix + base64.RawURLEncoding.EncodeToString(raw)
	id, err = s.ImportKey(ctx, account, secret, o)
	if err != nil {
		return "", "", err
	}
	return id, secret, nil
}

// ImportKey files a key whose secret is known already. The same secret for the
// same account again gives the same key, unless that was revoked: ErrRevoked.
func (s *Store) ImportKey(ctx context.Context, account, secret string, o KeyOptions) (id string, err error) {
	if err := o.check(secret); err != nil {
		return "", err
	}
	hash := HashOf(secret)
	models := o.Models
	if models == nil {
		models = []string{}
	}
	var spendMax *int64
	if o.SpendMax != nil {
		m := int64(*o.SpendMax)
		spendMax = &m
	}
	id, err = dbsqlc.New(s.pool).CreateKey(ctx, dbsqlc.CreateKeyParams{
		ID: newID("key"), AccountID: account, Hash: hash[:], Prefix: secret[:shownChars], Name: o.Name,
		Models: models, SpendMaxMicro: spendMax, ConcurrentMax: o.ConcurrentMax,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", s.notOpen(ctx, account)
	case pg.Violates(err, "keys_hash_key"):
		id, err = s.sameKey(ctx, account, hash[:])
	}
	if err != nil {
		return "", fmt.Errorf("key of %s: %w", account, pg.Translate(err))
	}
	return id, nil
}

// sameKey gives the live key of an account whose hash is filed already.
func (s *Store) sameKey(ctx context.Context, account string, hash []byte) (id string, err error) {
	row, err := dbsqlc.New(s.pool).GetKeyByHash(ctx, hash)
	switch {
	case err != nil:
		return "", err
	case row.RevokedAt != nil:
		return "", ErrRevoked
	case row.AccountID != account:
		return "", fault.New(fault.Invalid, "this key is another account's")
	}
	return row.ID, nil
}

func (o KeyOptions) check(secret string) error {
	switch {
	case !regexp.MustCompile(`^` + SecretPrefix + `[A-Za-z0-9_-]{8,200}$`).MatchString(secret):
		return fault.At("secret", fmt.Sprintf("secret must be %s and at least %d letters, digits, - or _", SecretPrefix, secretCharsMin-len(SecretPrefix)))
	case len(o.Name) > nameBytesMax || !isText(o.Name):
		return fault.At("name", "name is too long or not text")
	case len(o.Models) > modelsMax:
		return fault.At("models", "too many models")
	case o.SpendMax != nil && *o.SpendMax < 0:
		return fault.At("spend_max", "spending limit is negative")
	case o.ConcurrentMax != nil && *o.ConcurrentMax < 1:
		return fault.At("concurrent_max", "concurrency limit is less than one")
	}
	for _, m := range o.Models {
		if m == "" || len(m) > modelBytesMax || !isText(m) {
			return fault.At("models", "a model id is empty, too long or not text")
		}
	}
	return nil
}

// Keys lists the keys of an account, revoked ones too.
func (s *Store) Keys(ctx context.Context, account string) ([]Key, error) {
	rows, err := dbsqlc.New(s.pool).ListKeys(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("keys of %s: %w", account, pg.Translate(err))
	}
	keys := make([]Key, 0, len(rows))
	for _, r := range rows {
		keys = append(keys, fromDBKey(r))
	}
	return keys, nil
}

// RevokeKey ends a key. Edges hear of it at once. Revoking twice is a coded
// NotFound.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	if !isText(id) {
		return fault.New(fault.NotFound, "no such key")
	}
	_, err := dbsqlc.New(s.pool).RevokeKey(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fault.New(fault.NotFound, "no such key, or it is revoked already")
	}
	if err != nil {
		return fmt.Errorf("key %s: %w", id, pg.Translate(err))
	}
	return nil
}

// isText tells whether the database can hold s, or look for it.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// HashOf is what a secret is filed and compared by.
func HashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

func newID(kind string) string {
	b := make([]byte, idBytes)
	rand.Read(b)
	return kind + "-" + hex.EncodeToString(b)
}

func fromDBAccount(r dbsqlc.ListAccountsRow) Account {
	return Account{
		ID: r.ID, Name: r.Name, Retain: r.Retain, CreatedAt: r.CreatedAt, ClosedAt: r.ClosedAt,
		Micro: money.Micro(r.BalanceMicro), Held: money.Micro(r.HeldMicro), OpenHolds: r.OpenHolds, ConcurrentMax: r.ConcurrentMax,
	}
}

func fromDBKey(r dbsqlc.ListKeysRow) Key {
	k := Key{
		ID: r.ID, Account: r.AccountID, Shown: r.Prefix, Name: r.Name, Models: r.Models, ConcurrentMax: r.ConcurrentMax,
		Spent: money.Micro(r.SpentMicro), Held: money.Micro(r.HeldMicro), OpenHolds: r.OpenHolds,
		CreatedAt: r.CreatedAt, RevokedAt: r.RevokedAt,
	}
	if r.SpendMaxMicro != nil {
		m := money.Micro(*r.SpendMaxMicro)
		k.SpendMax = &m
	}
	return k
}
