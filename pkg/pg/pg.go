// Package pg is how services reach PostgreSQL: it opens pools, runs
// transactions, applies migrations and turns driver errors into the product's
// codes, once. Queries and schemas do not live here (sql/ and the rooms that
// own them), nor does a server (pglocal).
//
// The invariant: a connection string never appears in an error or a log line
// with its password, and a driver error leaves a room only through Translate.
//
// A new setting for connections is a field of Config; a new cause that callers
// must tell apart is a case in Translate.
package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/engy-ai/engy/pkg/fault"
)

const (
	connectWait     = 5 * time.Second
	healthEvery     = 15 * time.Second
	connsMaxDefault = 4
	// idleWait is how long a transaction may stand between two statements, in
	// PostgreSQL's notation: a process that hangs must not keep its locks.
	idleWait = "10s"
)

// Config says how to open a pool.
type Config struct {
	// DSN is a PostgreSQL URL or key=value string.
	DSN string
	// Role is taken on by every connection; empty keeps the login's own.
	Role string
	// Conns is the most connections; 0 means 4.
	Conns int32
	// Settings are session settings of every connection, such as
	// plan_cache_mode.
	Settings map[string]string
	// Name is shown in pg_stat_activity.
	Name string
}

// Pool is a pool of connections. Front doors hand it on without knowing the
// driver.
type Pool = pgxpool.Pool

// Open makes a pool and proves it with one connection. The caller closes it.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		// The parser's error may quote the string, password included.
		return nil, fault.New(fault.Invalid, "database address cannot be read")
	}
	pc.MaxConns = connsMaxDefault
	if cfg.Conns > 0 {
		pc.MaxConns = cfg.Conns
	}
	pc.HealthCheckPeriod = healthEvery
	pc.ConnConfig.ConnectTimeout = connectWait
	pc.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = idleWait
	maps.Copy(pc.ConnConfig.RuntimeParams, cfg.Settings)
	pc.ConnConfig.RuntimeParams["application_name"] = cfg.Name
	if cfg.Role != "" {
		// As a start-up setting it is also what RESET ROLE goes back to.
		pc.ConnConfig.RuntimeParams["role"] = cfg.Role
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", Redact(cfg.DSN), Translate(err))
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("database %s: %w", Redact(cfg.DSN), Translate(err))
	}
	return pool, nil
}

// Redact names the place a DSN leads to without user, password or options.
func Redact(dsn string) string {
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return "(unreadable address)"
	}
	u := url.URL{Scheme: "postgres", Host: fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), Path: "/" + cfg.Database}
	if len(cfg.Host) > 0 && cfg.Host[0] == '/' {
		u.Host, u.RawQuery = "", "host="+cfg.Host
	}
	return u.String()
}

// Beginner is a pool or a connection.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// InTx runs fn in one transaction and commits it, or rolls back when fn fails.
// It does not try again: what is safe to repeat is the caller's knowledge.
func InTx(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	if err := pgx.BeginFunc(ctx, db, fn); err != nil {
		return Translate(err)
	}
	return nil
}

// Translate gives a driver error its code where the cause is known; anything
// else stays as it is, which means internal. A coded error stays too.
func Translate(err error) error {
	var coded *fault.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return translateState(pe, err)
	}
	var ce *pgconn.ConnectError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.Wrap(fault.NotFound, "no such row", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "database did not answer in time", err)
	case errors.As(err, &ce):
		// The driver's text holds user and host; its cause alone is enough.
		return fault.Wrap(fault.Unavailable, "database cannot be reached", ce.Unwrap())
	case pgconn.Timeout(err), pgconn.SafeToRetry(err), isConnLost(err):
		return fault.Wrap(fault.Unavailable, "database connection lost", err)
	}
	return err
}

func translateState(pe *pgconn.PgError, err error) error {
	switch {
	case pe.Code == "23505": // unique_violation
		return fault.Wrap(fault.Invalid, "exists already", err)
	case pe.Code == "23503": // foreign_key_violation
		return fault.Wrap(fault.NotFound, "refers to something that does not exist", err)
	case pe.Code == "22003": // numeric_value_out_of_range
		return fault.Wrap(fault.Invalid, "amount out of range", err)
	case pe.Code == "40001", pe.Code == "40P01", pe.Code == "55P03": // serialization, deadlock, lock
		return fault.Wrap(fault.Busy, "database is contended", err)
	case pe.Code == "57014": // query_canceled
		return fault.Wrap(fault.Timeout, "database did not answer in time", err)
	case pe.Code == "25P03": // idle_in_transaction_session_timeout
		return fault.Wrap(fault.Unavailable, "transaction stood still for too long", err)
	case pe.Code[:2] == "08", pe.Code[:2] == "53", pe.Code[:3] == "57P":
		return fault.Wrap(fault.Unavailable, "database cannot be reached", err)
	}
	return err
}

// Unmigrated tells whether err is of a database without our schema, or with an
// older one.
func Unmigrated(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	switch pe.Code {
	case "42P01", "42703", "42883": // undefined table, column, function
		return true
	case "22023": // the role to take on does not exist, which is told at the start
		return pe.Severity == "FATAL"
	}
	return false
}

// Violates tells whether err broke the named constraint.
func Violates(err error, constraint string) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code[:2] == "23" && pe.ConstraintName == constraint
}
