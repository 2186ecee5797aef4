package ledger_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// refused tries a statement and expects the database to say no.
func refused(t *testing.T, pool *pg.Pool, statement string) *pgconn.PgError {
	t.Helper()
	_, err := pool.Exec(t.Context(), statement)
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe, statement)
	return pe
}

func TestTheJournalCannotBeChangedByAnybody(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	h.hold(t, hold(1, 0, 100))
	h.settle(t, ended(1, 0, 50))
	before := h.adds(t, t)
	for _, who := range []struct {
		name string
		pool *pg.Pool
	}{{"service", h.role}, {"owner", h.owner}} {
		t.Run("the "+who.name, func(t *testing.T) {
			for _, statement := range []string{
				"update entries set amount_micro = 2 * amount_micro",
				"update entries set amount_micro = 1 where false",
				"delete from entries",
				"truncate entries",
				"update transactions set note = 'x'",
				"delete from transactions",
				"truncate transactions",
				"update settlements set charged_micro = 0",
				"delete from settlements",
				"truncate settlements",
			} {
				require.Equal(t, "42501", refused(t, who.pool, statement).Code, statement)
			}
		})
	}
	require.Equal(t, before, h.adds(t, t))
}

func TestAReplicaSessionDoesNotGetAroundTheRules(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	_ = refused(t, h.owner, "do $$ begin set local session_replication_role = replica; delete from entries; end $$")
	_ = refused(t, h.owner, `do $$ begin set local session_replication_role = replica;
		insert into transactions (kind, cause) values ('credit', 'x');
		insert into entries select id, 'a0', 5 from transactions where cause = 'x'; end $$`)
	h.adds(t, t)
}

func TestEntriesThatDoNotBalanceAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	with := func(values string) string {
		return `with t as (insert into transactions (kind, cause) values ('credit', 'x') returning id)
			insert into entries (transaction_id, account_id, amount_micro)
			select t.id, v.account_id, v.amount_micro from t, (values ` + values + `) v (account_id, amount_micro)`
	}
	const first = "(select id from transactions where cause = 'first-a0')"
	for _, who := range []*pg.Pool{h.role, h.owner} {
		for name, statement := range map[string]string{
			"one side":             with(`('a0', 5)`),
			"another sum":          with(`('a0', 5), ('funding', -4)`),
			"zero":                 with(`('a0', 0), ('funding', 0)`),
			"no transaction":       `insert into entries values (999, 'a0', 5), (999, 'funding', -5)`,
			"no such account":      with(`('nobody', 5), ('funding', -5)`),
			"added later":          `insert into entries values (` + first + `, 'revenue', 5), (` + first + `, 'nobody', -5)`,
			"twice the account":    with(`('a0', 5), ('a0', -5)`),
			"more than there is":   with(`('a0', -1001), ('funding', 1001)`),
			"a charge's own cause": `insert into transactions (kind, cause) values ('charge', 'x')`,
			"a credit by nothing":  `insert into transactions (kind) values ('credit')`,
			"a cause again":        `insert into transactions (kind, cause) values ('credit', 'first-a0')`,
			"an unknown kind":      `insert into transactions (kind, cause) values ('gift', 'x')`,
		} {
			pe := refused(t, who, statement)
			require.Equal(t, "23", pe.Code[:2], "%s: %s", name, pe.Message)
		}
	}
	// Later, and in balance by itself: still refused.
	h.exec(t, "insert into accounts (id, name, kind) values ('late', 'late', 'customer')")
	_ = refused(t, h.owner, `insert into entries values (`+first+`, 'revenue', 5), (`+first+`, 'late', -5)`)
	h.adds(t, t)
}

func TestTheServiceMovesBalancesByEntriesOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000)
	require.Equal(t, "42501", refused(t, h.role, "update balances set balance_micro = 5").Code)
	require.Equal(t, "42501", refused(t, h.role, "insert into balances (account_id, balance_micro) values ('x', 5)").Code)
	require.Equal(t, "42501", refused(t, h.role, "delete from balances").Code)
	require.Equal(t, "42501", refused(t, h.role, "drop trigger entries_posted on entries").Code)
	require.Equal(t, "42501", refused(t, h.role, "alter table entries disable trigger all").Code)
	require.Equal(t, "23514", refused(t, h.role, "update balances set held_micro = 1001").Code)
	conn, err := h.role.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "reset role")
	require.NoError(t, err)
	var role string
	require.NoError(t, conn.QueryRow(t.Context(), "select current_user").Scan(&role))
	require.Equal(t, ledger.Role, role)
}

func TestAnOwnersMistakeIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1000, 1000)
	h.hold(t, hold(1, 0, 100), hold(2, 0, 100))
	h.settle(t, ended(2, 0, 50))
	h.adds(t, t)
	for _, wrong := range []struct{ name, do, undo string }{
		{"a balance", "update balances set balance_micro = 5 where account_id = 'a1'", "update balances set balance_micro = 1000 where account_id = 'a1'"},
		{"what is held", "update balances set held_micro = 5 where account_id = 'a0'", "update balances set held_micro = 100 where account_id = 'a0'"},
		{"what a key spent", "update keys set spent_micro = 7 where id = 'k0'", "update keys set spent_micro = 50 where id = 'k0'"},
		{"an old hold", "update holds set expires_at = '1969-01-01'", "update holds set expires_at = now() + interval '1h'"},
	} {
		h.exec(t, wrong.do)
		r, err := h.desk.Reconcile(t.Context(), epoch())
		require.NoError(t, err)
		require.NotEmpty(t, r.Findings, wrong.name)
		h.exec(t, wrong.undo)
		h.adds(t, t)
	}
	h.exec(t, "insert into transactions (kind, cause) values ('credit', 'none')")
	h.exec(t, "insert into transactions (kind) values ('charge')")
	r, err := h.desk.Reconcile(t.Context(), epoch())
	require.NoError(t, err)
	require.Len(t, r.Findings, 3, "two without entries, one of them without a settlement: %v", r.Findings)
}
