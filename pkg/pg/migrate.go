package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/sql"
)

const (
	migrateLock        = 0x656e6779 // "engy", the same for all owners
	migrateRetrySecond = 1
	migrateRetries     = 120
)

// Migrate brings one owner's schema to its newest version. Services that start
// together wait for each other; a version that is there is left alone.
func Migrate(ctx context.Context, dsn string, m sql.Migrations) error {
	cc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fault.New(fault.Invalid, "database address cannot be read")
	}
	cc.ConnectTimeout = connectWait
	db := stdlib.OpenDB(*cc)
	defer db.Close()
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(migrateLock),
		lock.WithLockTimeout(migrateRetrySecond, migrateRetries),
	)
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", m.Owner, err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, m.Files,
		goose.WithTableName(m.Owner+"_migrations"),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", m.Owner, err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrations of %s on %s: %w", m.Owner, Redact(dsn), Translate(err))
	}
	return nil
}
