// Package pglocal runs a private PostgreSQL from the machine's own binaries:
// it makes the cluster in a directory of ours, starts the server as a child on
// a unix socket, and ends it with us. It never downloads or installs anything,
// never opens a network port, and knows nothing of schemas: migrations are
// package pg's. A server that somebody else runs is not its business either.
//
// The invariant: a server started here never outlives the process that started
// it, however that process ends, and what it committed is there at the next
// start. A lock file keeps two processes out of one directory.
//
// A new setting is one line in settings; a new place to look for binaries is
// one line in binaries.go.
package pglocal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// Database is the database that every cluster here has.
	Database = "engy"

	superuser     = "engy"
	port          = 5432 // names the socket file; nothing listens on it
	startWait     = 30 * time.Second
	orphanWait    = 15 * time.Second
	stopWait      = 15 * time.Second
	quitWait      = 5 * time.Second
	pollEvery     = 10 * time.Millisecond
	logBytesMax   = 16 << 20
	logTailBytes  = 2 << 10
	socketPathMax = 100 // bytes; the kernel's limit is 108 with the zero
)

// Config says where a private server lives.
type Config struct {
	// Dir holds everything: data, socket, log and lock. It is made when
	// missing.
	Dir string
	// BinDir is the folder of postgres and initdb; empty means look for them.
	BinDir string
	// Volatile trades durability for speed: for tests only.
	Volatile bool
}

// Server is a running private PostgreSQL.
type Server struct {
	dir     string
	sockets string
	cmd     *exec.Cmd
	lock    *os.File
	exited  chan struct{}
	exitErr error // written before exited is closed
	close   sync.Once
}

// Start brings the server of cfg.Dir up and returns once it takes connections
// and has the database engy. ctx bounds the start only; Close ends the server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	dir, err := realDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s, err := start(ctx, cfg, dir)
	if err != nil {
		return nil, fmt.Errorf("postgres in %s: %w", dir, err)
	}
	return s, nil
}

func start(ctx context.Context, cfg Config, dir string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	lock, err := takeLock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, lock: lock, exited: make(chan struct{})}
	if err := s.bringUp(ctx, cfg); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) bringUp(ctx context.Context, cfg Config) error {
	data := filepath.Join(s.dir, "data")
	bin, err := findBinaries(cfg.BinDir, data)
	if err != nil {
		return err
	}
	u, err := chooseUser(s.dir)
	if err != nil {
		return err
	}
	if err := initCluster(ctx, bin, u, data, cfg.Volatile); err != nil {
		return err
	}
	if err := clearStale(ctx, data); err != nil {
		return err
	}
	if s.sockets, err = socketDir(s.dir, u); err != nil {
		return err
	}
	if err := s.launch(bin, u, data, cfg.Volatile); err != nil {
		return err
	}
	if err := s.await(ctx, data); err != nil {
		return err
	}
	return s.ensureDatabase(ctx)
}

// DSN is how to reach a database of this server. The database need not exist,
// except for the one named Database.
func (s *Server) DSN(database string) string { return dsn(s.sockets, database) }

// Exited is closed when the server process has ended, wanted or not.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Close ends the server: open transactions are rolled back, everything
// committed is written out. It returns when the process is gone and may be
// called more than once.
func (s *Server) Close() error {
	var err error
	s.close.Do(func() {
		if s.cmd != nil {
			err = s.stop()
		}
		if s.sockets != "" && filepath.Dir(s.sockets) != s.dir {
			// Under the temporary folder; a server that was killed leaves it.
			_ = os.Remove(s.sockets)
		}
		// The lock goes last: whoever gets it finds no server.
		err = errors.Join(err, dropLock(s.lock))
	})
	return err
}

func (s *Server) stop() error {
	for _, step := range []struct {
		sig  os.Signal
		wait time.Duration
	}{{sigFast, stopWait}, {sigImmediate, quitWait}, {os.Kill, quitWait}} {
		// A process that is gone already is what we want.
		_ = s.cmd.Process.Signal(step.sig)
		t := time.NewTimer(step.wait)
		select {
		case <-s.exited:
			t.Stop()
			return nil
		case <-t.C:
		}
	}
	return fmt.Errorf("postgres process %d: does not end", s.cmd.Process.Pid)
}

// Find tells how to reach the running server of dir from another process that
// is allowed to. It fails when none runs.
func Find(dir string) (string, error) {
	abs, err := realDir(dir)
	if err != nil {
		return "", fmt.Errorf("postgres: not running: %w", err)
	}
	p, err := readPIDFile(filepath.Join(abs, "data", pidFile))
	if err != nil {
		return "", fmt.Errorf("postgres in %s: not running: %w", abs, err)
	}
	if !p.ready || !alive(p.pid, filepath.Join(abs, "data")) {
		return "", fmt.Errorf("postgres in %s: not running", abs)
	}
	return dsn(p.sockets, Database), nil
}

// realDir is the absolute path without links: the server names itself by it.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func dsn(sockets, database string) string {
	q := url.Values{"host": {sockets}, "port": {strconv.Itoa(port)}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// launch forks the server from a thread that lives exactly as long as it does:
// the kernel's parent-death signal is tied to the forking thread, not to the
// process.
func (s *Server) launch(bin binaries, u user, data string, volatile bool) error {
	logFile, err := openLog(filepath.Join(s.dir, "postgres.log"))
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := exec.Command(bin.postgres, append([]string{"-D", data}, settings(s.sockets, volatile)...)...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.SysProcAttr = u.attr(true)
	started := make(chan error, 1)
	go s.tend(cmd, started)
	if err := <-started; err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

func (s *Server) tend(cmd *exec.Cmd, started chan<- error) {
	defer holdThread()()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	s.exitErr = cmd.Wait()
	close(s.exited)
}

// await polls the server's own status line rather than connecting: a refused
// connection would be one more line in the log.
func (s *Server) await(ctx context.Context, data string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		p, err := readPIDFile(filepath.Join(data, pidFile))
		if err == nil && p.pid == s.cmd.Process.Pid && p.ready {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("server ended while starting: %w\n%s", s.exitErr, s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("server not ready: %w\n%s", context.Cause(ctx), s.logTail())
		}
	}
}

func (s *Server) ensureDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("database %s: %w", Database, err)
	}
	defer conn.Close(ctx)
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", Database).Scan(&there); err != nil {
		return fmt.Errorf("database %s: %w", Database, err)
	}
	if there {
		return nil
	}
	if _, err := conn.Exec(ctx, "create database "+Database); err != nil {
		return fmt.Errorf("database %s: %w", Database, err)
	}
	return nil
}

func (s *Server) logTail() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "postgres.log"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-logTailBytes):]))
}

// openLog appends, and begins anew once the file is large: the server is
// quiet, so one file and one predecessor are enough.
func openLog(path string) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > logBytesMax {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// settings are given on the command line, so that they hold for a cluster of
// any age and no file needs editing.
func settings(sockets string, volatile bool) []string {
	set := []string{
		"listen_addresses=",
		"port=" + strconv.Itoa(port),
		"unix_socket_directories=" + sockets,
		"unix_socket_permissions=0700",
		"shared_buffers=128MB",
		"max_connections=50",
		"synchronous_commit=on",
		// Short statements only: compiling them costs more than it saves.
		"jit=off",
		// One server, no replicas: the log needs to hold a crash's worth.
		"wal_level=minimal",
		"max_wal_senders=0",
		// Statements carry hashes of keys and accounts: none of it is logged.
		"logging_collector=off",
		"log_statement=none",
		"log_min_duration_statement=-1",
		"log_min_error_statement=panic",
		"log_parameter_max_length=0",
		"log_parameter_max_length_on_error=0",
		"log_error_verbosity=terse",
		"log_checkpoints=off",
	}
	if volatile {
		set = append(set, "fsync=off", "full_page_writes=off", "shared_buffers=64MB", "max_connections=200")
	}
	args := make([]string, 0, 2*len(set))
	for _, s := range set {
		args = append(args, "-c", s)
	}
	return args
}
