// Package pgtest gives a test a migrated database of its own. The first test of
// a process that asks starts one private cluster (or uses TEST_DATABASE_URL);
// each schema is migrated once into a template, and every test gets a clone,
// which takes milliseconds. Tests may run in parallel.
//
// The invariant: nothing stays behind. A clone goes with its test, the cluster
// with the process, even when that panics or is killed; only a server that was
// given keeps the templates, for the next run. A missing PostgreSQL fails the
// test and says what to type; nothing is ever skipped.
//
// Only tests may import this package. A new kind of set-up is a function
// beside Pool.
package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pglocal"
	"github.com/engy-ai/engy/sql"
)

const (
	setUpWait  = 3 * time.Minute
	serverWait = 2 * time.Minute
)

// process is the one cluster of a test process. It is the package's only
// state: a cluster per test would cost a second each.
var process cluster

type cluster struct {
	once   sync.Once
	server *pglocal.Server
	dir    string
	guard  io.Closer
	base   string // a DSN; database names are put into it
	err    error

	mu        sync.Mutex
	templates map[string]string // hash of the schema → database
}

// Main runs a package's tests and ends the cluster they used. It is a
// convenience: without it the cluster ends with the process all the same.
func Main(m interface{ Run() int }) {
	code := m.Run()
	process.stop()
	os.Exit(code)
}

// DSN gives a database with the schema applied, gone when the test ends.
func DSN(t testing.TB, m sql.Migrations) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setUpWait)
	defer cancel()
	c := &process
	c.once.Do(func() { c.err = c.start(ctx) })
	require.NoError(t, c.err, "PostgreSQL for tests")
	template, err := c.template(ctx, m)
	require.NoError(t, err, "template of %s", m.Owner)
	name := "t_" + random()
	require.NoError(t, c.exec(ctx, fmt.Sprintf("create database %s template %s", name, template)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setUpWait)
		defer cancel()
		require.NoError(t, c.exec(ctx, fmt.Sprintf("drop database %s with (force)", name)))
	})
	return in(c.base, name)
}

// Pool gives a pool on such a database, as the owner of the schema.
func Pool(t testing.TB, m sql.Migrations) *pgxpool.Pool {
	t.Helper()
	return Open(t, pg.Config{DSN: DSN(t, m), Name: "test"})
}

// Open opens a pool that is closed when the test ends.
func Open(t testing.TB, cfg pg.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (c *cluster) start(ctx context.Context) error {
	c.templates = make(map[string]string)
	if given := os.Getenv("TEST_DATABASE_URL"); given != "" {
		c.base = given
		return nil
	}
	dir, err := os.MkdirTemp("", "engy-pgtest-")
	if err != nil {
		return err
	}
	c.dir = dir
	// The process's first test may end long before the cluster does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverWait)
	defer cancel()
	if c.server, err = pglocal.Start(ctx, pglocal.Config{Dir: dir, Volatile: true}); err != nil {
		os.RemoveAll(dir)
		return err
	}
	c.base = c.server.DSN("postgres")
	c.guard, err = guard(dir)
	return err
}

func (c *cluster) stop() {
	if c.server == nil {
		return
	}
	if err := c.server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	c.guard.Close()
}

// template migrates a schema once per process, and once per server when
// several processes share one.
func (c *cluster) template(ctx context.Context, m sql.Migrations) (string, error) {
	sum, err := fingerprint(m)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if name, ok := c.templates[sum]; ok {
		return name, nil
	}
	name := "tmpl_" + m.Owner + "_" + sum[:16]
	if err := c.build(ctx, name, m); err != nil {
		return "", err
	}
	c.templates[sum] = name
	return name, nil
}

func (c *cluster) build(ctx context.Context, name string, m sql.Migrations) error {
	conn, err := pgx.Connect(ctx, c.base)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext($1))", name); err != nil {
		return err
	}
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&there); err != nil || there {
		return err
	}
	// The name appears only when the schema is whole.
	half := name + "_" + random()
	if _, err := conn.Exec(ctx, "create database "+half); err != nil {
		return err
	}
	if err := pg.Migrate(ctx, in(c.base, half), m); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("alter database %s rename to %s", half, name))
	return err
}

func (c *cluster) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, c.base)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

func fingerprint(m sql.Migrations) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(m.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(m.Files, path)
		if err == nil {
			_, err = fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		}
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// in puts another database name into a DSN in URL form.
func in(dsn, database string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn
	}
	u.Path = "/" + database
	return u.String()
}

func random() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}
