package pg_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/sql"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestErrorsGetTheirCodeOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, sql.Billing())
	for statement, code := range map[string]fault.Code{
		"insert into accounts (id, name, kind) values ('x', 'revenue: what customers used', 'system')": fault.Invalid,
		"insert into keys (id, account_id, hash, prefix) values ('x', 'nobody', sha256('x'), 'x')":     fault.NotFound,
		"insert into balances (account_id, balance_micro) values ('x', -1)":                            fault.Internal,
		"do $$ begin raise exception using errcode = 'serialization_failure'; end $$":                  fault.Busy,
		"do $$ begin raise exception using errcode = 'deadlock_detected'; end $$":                      fault.Busy,
		"set statement_timeout = 10; select pg_sleep(5)":                                               fault.Timeout,
		"do $$ begin raise exception using errcode = 'admin_shutdown'; end $$":                         fault.Unavailable,
		"select pg_terminate_backend(pg_backend_pid())":                                                fault.Unavailable,
		"select * from nowhere": fault.Internal,
	} {
		_, err := pool.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		require.Error(t, err, statement)
		got := pg.Translate(err)
		require.Equal(t, code, fault.Of(got).Code, "%s: %v", statement, err)
		require.Equal(t, got, pg.Translate(got), "a second time changes nothing")
	}
	require.NoError(t, pg.Translate(nil))
	require.True(t, fault.Is(pg.Translate(pgx.ErrNoRows), fault.NotFound))
	require.True(t, fault.Is(pg.Translate(context.DeadlineExceeded), fault.Timeout))
	require.True(t, fault.Is(pg.Translate(io.ErrUnexpectedEOF), fault.Unavailable))
	_, err := pool.Exec(t.Context(), "insert into balances (account_id, balance_micro) values ('x', -1)")
	require.True(t, pg.Violates(err, "balance_covers_held"))
	require.False(t, pg.Violates(err, "another"))
}

func TestADatabaseWithoutSchemaIsToldFromOthers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, sql.Billing())
	pool := pgtest.Open(t, pg.Config{DSN: dsn, Name: "owner"})
	for statement, want := range map[string]bool{
		"select * from nowhere":             true,
		"select nothing from accounts":      true,
		"select nothing()":                  true,
		"set statement_timeout = 'nothing'": false,
		"select 1 / 0":                      false,
	} {
		_, err := pool.Exec(t.Context(), statement)
		require.Error(t, err)
		require.Equal(t, want, pg.Unmigrated(pg.Translate(err)), statement)
	}
	_, err := pg.Open(t.Context(), pg.Config{DSN: dsn, Role: "engy_nobody"})
	require.True(t, pg.Unmigrated(err), err)
}

func TestATransactionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, sql.Billing())
	boom := errors.New("boom")
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "insert into accounts (id, name, kind) values ('x', 'x', 'customer')")
		return err
	}
	require.ErrorIs(t, pg.InTx(t.Context(), pool, func(tx pgx.Tx) error { return errors.Join(insert(tx), boom) }), boom)
	require.NoError(t, pg.InTx(t.Context(), pool, insert))
	require.True(t, fault.Is(pg.InTx(t.Context(), pool, insert), fault.Invalid))
}

// Who hangs within a transaction must not keep others waiting for its locks.
func TestATransactionThatStandsStillEnds(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, sql.Billing())
	pool := pgtest.Open(t, pg.Config{DSN: dsn, Name: "others"})
	var usual string
	require.NoError(t, pool.QueryRow(t.Context(), "show idle_in_transaction_session_timeout").Scan(&usual))
	require.Equal(t, "10s", usual)
	hangs := pgtest.Open(t, pg.Config{DSN: dsn, Name: "hangs", Settings: map[string]string{"idle_in_transaction_session_timeout": "10ms"}})
	const insert = "insert into accounts (id, name, kind) values ('x', 'x', 'customer')"
	err := pg.InTx(t.Context(), hangs, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), insert)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), insert) // waits for the other's
		require.NoError(t, err)
		return nil
	})
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
}

func TestAPasswordIsNeverTold(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://me:hunter2@127.0.0.1:1/x?connect_timeout=1",
		"host=127.0.0.1 port=1 user=me password=hunter2 dbname=x connect_timeout=1",
		"postgres://me:hunter2@[bad/x",
		"postgres://me:hunter2@127.0.0.1:port/x",
		"host=127.0.0.1 port=1 password=hunter2 sslmode=what",
	} {
		_, err := pg.Open(t.Context(), pg.Config{DSN: dsn})
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, pg.Redact(dsn), "hunter2")
		err = pg.Migrate(t.Context(), dsn, sql.Billing())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.Equal(t, "postgres://db:5432/x", pg.Redact("postgres://me:hunter2@db/x"))
	require.Equal(t, "postgres:///x?host=/run/pg", pg.Redact("postgres://me@/x?host=/run/pg"))
}
