package account_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/services/billing/internal/account"
	"github.com/engy-ai/engy/sql"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds every wait; a good run needs a fraction of it.
const patience = 30 * time.Second

func store(t *testing.T) (*account.Store, *pg.Pool) {
	t.Helper()
	dsn := pgtest.DSN(t, sql.Billing())
	pool := pgtest.Open(t, pg.Config{DSN: dsn, Role: "engy_billing", Name: "accounts"})
	return account.NewStore(pool), pgtest.Open(t, pg.Config{DSN: dsn, Name: "owner"})
}

func TestASecretIsShownOnceAndKeptNowhere(t *testing.T) {
	t.Parallel()
	s, owner := store(t)
	a, err := s.CreateAccount(t.Context(), "customer", nil)
	require.NoError(t, err)
	id, secret, err := s.CreateKey(t.Context(), a.ID, account.KeyOptions{Name: "laptop"})
	require.NoError(t, err)
	require.Regexp(t, `^sk-engy-[A-Za-z0-9_-]{43}$`, secret)
	keys, err := s.Keys(t.Context(), a.ID)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, id, keys[0].ID)
	require.Equal(t, secret[:12], keys[0].Shown)
	require.NotContains(t, fmt.Sprintf("%+v", keys), secret)

	var row string
	require.NoError(t, owner.QueryRow(t.Context(), "select string_agg(k::text, ' ') from keys k").Scan(&row))
	require.NotContains(t, row, secret[13:])
	hash := account.HashOf(secret)
	require.Contains(t, row, hex.EncodeToString(hash[:]))
}

func TestAFixedKeyIsImportedOnce(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	a, err := s.CreateAccount(t.Context(), "one", nil)
	require.NoError(t, err)
	b, err := s.CreateAccount(t.Context(), "two", nil)
	require.NoError(t, err)
	const secret = "sk-engy-demo-demo-demo"
	first, err := s.ImportKey(t.Context(), a.ID, secret, account.KeyOptions{})
	require.NoError(t, err)
	again, err := s.ImportKey(t.Context(), a.ID, secret, account.KeyOptions{})
	require.NoError(t, err)
	require.Equal(t, first, again)
	_, err = s.ImportKey(t.Context(), b.ID, secret, account.KeyOptions{})
	require.True(t, fault.Is(err, fault.Invalid), err)
	require.NotErrorIs(t, err, account.ErrRevoked)
	require.NotContains(t, err.Error(), secret)
	require.NoError(t, s.RevokeKey(t.Context(), first))
	require.True(t, fault.Is(s.RevokeKey(t.Context(), first), fault.NotFound))
	for _, id := range []string{a.ID, b.ID} {
		_, err = s.ImportKey(t.Context(), id, secret, account.KeyOptions{})
		require.ErrorIs(t, err, account.ErrRevoked, "a revoked secret does not come back")
	}
}

func TestWhatIsNotAllowedIsRefusedByName(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	a, err := s.CreateAccount(t.Context(), "customer", nil)
	require.NoError(t, err)
	_, err = s.CreateAccount(t.Context(), "customer", nil)
	require.True(t, fault.Is(err, fault.Invalid), err)
	for _, name := range []string{"", strings.Repeat("x", 201), "a\x00b"} {
		_, err = s.CreateAccount(t.Context(), name, nil)
		require.Equal(t, "name", fault.Of(err).Field)
	}
	for _, secret := range []string{"", "sk-engy-", "sk-other-0123456789", "sk-engy-0123 4567", "sk-engy-0123\r\n4567", strings.Repeat("s", 5000)} {
		_, err := s.ImportKey(t.Context(), a.ID, secret, account.KeyOptions{})
		require.Equal(t, "secret", fault.Of(err).Field, secret)
	}
	minus, none := money.Micro(-1), int64(0)
	for field, o := range map[string]account.KeyOptions{
		"spend_max":      {SpendMax: &minus},
		"concurrent_max": {ConcurrentMax: &none},
		"models":         {Models: []string{""}},
		"name":           {Name: strings.Repeat("x", 201)},
	} {
		_, _, err := s.CreateKey(t.Context(), a.ID, o)
		require.Equal(t, field, fault.Of(err).Field)
	}
	for _, id := range []string{"nobody", "revenue", "funding"} {
		_, _, err = s.CreateKey(t.Context(), id, account.KeyOptions{})
		require.True(t, fault.Is(err, fault.NotFound), err)
	}
}

// What the database says of it is for nobody who asks for something impossible.
func TestRefusalsAreInOurOwnWords(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	a, err := s.CreateAccount(t.Context(), "customer", nil)
	require.NoError(t, err)
	_, twice := s.CreateAccount(t.Context(), "customer", nil)
	_, nobody := s.Account(t.Context(), "nobody")
	_, noText := s.Account(t.Context(), "\xff")
	for err, say := range map[error]string{
		twice:                                "an account of this name exists already",
		nobody:                               "no such account",
		noText:                               "no such account",
		s.RevokeKey(t.Context(), "key-none"): "no such key, or it is revoked already",
		s.RevokeKey(t.Context(), "\xff"):     "no such key",
		s.SetRetain(t.Context(), "acct-none", true): "no such account",
		s.SetRetain(t.Context(), "revenue", true):   "no such account",
		s.CloseAccount(t.Context(), "acct-none"):    "no such account",
	} {
		require.ErrorContains(t, err, say)
		require.NotContains(t, err.Error(), "SQLSTATE")
		require.NotContains(t, err.Error(), "no rows")
	}
	require.NoError(t, s.SetRetain(t.Context(), a.ID, true))
}

func TestAClosedAccountStaysAsItWas(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	a, err := s.CreateAccount(t.Context(), "customer", nil)
	require.NoError(t, err)
	require.NoError(t, s.CloseAccount(t.Context(), a.ID))
	require.NoError(t, s.CloseAccount(t.Context(), a.ID))
	_, _, err = s.CreateKey(t.Context(), a.ID, account.KeyOptions{})
	require.ErrorContains(t, err, "closed")
	require.True(t, fault.Is(err, fault.Invalid), err)
	err = s.SetRetain(t.Context(), a.ID, true)
	require.ErrorContains(t, err, "closed")
	a, err = s.Account(t.Context(), "customer")
	require.NoError(t, err)
	require.NotNil(t, a.ClosedAt)
	require.False(t, a.Retain)
}

// flaky is a board that loses every third write.
type flaky struct {
	mu    sync.Mutex
	n     int
	keys  map[string]bus.Principal
	funds map[string]bool
}

var errLost = errors.New("board lost it")

func (f *flaky) try() error {
	if f.n++; f.n%3 == 0 {
		return errLost
	}
	return nil
}

func (f *flaky) PutPrincipal(_ context.Context, hash string, p bus.Principal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.try(); err != nil {
		return err
	}
	f.keys[hash] = p
	return nil
}

func (f *flaky) DeletePrincipal(_ context.Context, hash string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.try(); err != nil {
		return err
	}
	delete(f.keys, hash)
	return nil
}

func (f *flaky) Principals(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hashes []string
	for h := range f.keys {
		hashes = append(hashes, h)
	}
	return hashes, nil
}

func (f *flaky) PutFunds(_ context.Context, fu bus.Funds) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.funds[fu.Account] = fu.Empty
	return nil
}

func TestTheBoardIsMadeEqualHoweverOftenItFails(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	a, err := s.CreateAccount(t.Context(), "customer", nil)
	require.NoError(t, err)
	want := map[string]bus.Principal{}
	key := func() string {
		id, secret, err := s.CreateKey(t.Context(), a.ID, account.KeyOptions{Models: []string{"m"}})
		require.NoError(t, err)
		h := account.HashOf(secret)
		want[hex.EncodeToString(h[:])] = bus.Principal{Account: a.ID, Key: id, Models: []string{"m"}}
		return id
	}
	key()
	stale := strings.Repeat("00", 32)
	f := &flaky{keys: map[string]bus.Principal{stale: {}}, funds: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Publish(ctx, f, slog.New(slog.DiscardHandler)) })
	defer wg.Wait()
	defer cancel()
	equal := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.keys) != len(want) || !f.funds[a.ID] {
			return false
		}
		for h, p := range want {
			if got, ok := f.keys[h]; !ok || got.Key != p.Key {
				return false
			}
		}
		return true
	}
	require.Eventually(t, equal, patience, 5*time.Millisecond)
	// Made later: heard of by notification, the board failing all the while.
	id := key()
	require.Eventually(t, equal, patience, 5*time.Millisecond)
	require.NoError(t, s.RevokeKey(t.Context(), id))
	for h, p := range want {
		if p.Key == id {
			delete(want, h)
		}
	}
	require.Eventually(t, equal, patience, 5*time.Millisecond)
}

// slow is a board that takes its time, and tells of its first key.
type slow struct {
	flaky
	begun chan struct{}
	once  sync.Once
	order map[string]int // how many keys there were when each came
}

func (w *slow) PutPrincipal(_ context.Context, hash string, p bus.Principal) error {
	t := time.NewTimer(time.Millisecond)
	<-t.C
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order[hash] = len(w.keys)
	w.keys[hash] = p
	w.once.Do(func() { close(w.begun) })
	return nil
}

func TestANewKeyDoesNotWaitForTheFirstCopy(t *testing.T) {
	t.Parallel()
	s, owner := store(t)
	a, err := s.CreateAccount(t.Context(), "customer", nil)
	require.NoError(t, err)
	const old = 5000
	_, err = owner.Exec(t.Context(), `insert into keys (id, account_id, hash, prefix)
		select 'key-' || n, $1, sha256(n::text::bytea), 'sk-engy-' from generate_series(1, $2::int) n`, a.ID, old)
	require.NoError(t, err)
	w := &slow{flaky: flaky{keys: map[string]bus.Principal{}, funds: map[string]bool{}}, begun: make(chan struct{}), order: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Publish(ctx, w, slog.New(slog.DiscardHandler)) })
	defer wg.Wait()
	defer cancel()
	<-w.begun
	_, secret, err := s.CreateKey(t.Context(), a.ID, account.KeyOptions{})
	require.NoError(t, err)
	h := account.HashOf(secret)
	there := func() (int, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n, ok := w.order[hex.EncodeToString(h[:])]
		return n, ok
	}
	require.Eventually(t, func() bool { _, ok := there(); return ok }, patience, time.Millisecond)
	n, _ := there()
	require.Less(t, n, old, "the copy was not over")
}
