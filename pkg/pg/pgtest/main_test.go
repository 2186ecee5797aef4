package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/sql"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEveryTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("a clone", func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, sql.Billing())
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from accounts").Scan(&n))
			require.Equal(t, 2, n, "the system accounts and nothing of another test")
			_, err := pool.Exec(t.Context(), "insert into accounts (id, name, kind) values ('a', 'a', 'customer')")
			require.NoError(t, err)
		})
	}
}

func TestMigratingTwiceAndTogetherIsFine(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, sql.Billing())
	done := make(chan error, 3)
	for range cap(done) {
		go func() { done <- pg.Migrate(t.Context(), dsn, sql.Billing()) }()
	}
	for range cap(done) {
		require.NoError(t, <-done)
	}
}
