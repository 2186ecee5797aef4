package pglocal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const pidFile = "postmaster.pid"

// initCluster makes the data directory once. It is built beside its place and
// moved there whole, so that a start that was cut off leaves nothing half done.
func initCluster(ctx context.Context, bin binaries, u user, data string, volatile bool) error {
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		return nil
	}
	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := u.mkdir(fresh); err != nil {
		return err
	}
	args := []string{
		"-D", fresh, "-U", superuser, "--encoding=UTF8", "--no-locale",
		// The socket's folder is ours alone; nothing else can reach the server.
		"--auth-local=trust", "--auth-host=reject", "--no-instructions",
	}
	if volatile {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, bin.initdb, args...)
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.SysProcAttr = u.attr(false)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(fresh, data); err != nil {
		return err
	}
	return nil
}

// environment is what the server's programs are given: nothing of ours, so
// that no PGDATA, locale or secret leaks into them.
func environment() []string {
	return []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

// pidInfo is what a server says of itself in its data directory.
type pidInfo struct {
	pid     int
	sockets string
	ready   bool
}

func readPIDFile(path string) (pidInfo, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return pidInfo{}, err
	}
	// pid, data directory, start time, port, socket directory, address, shared
	// memory, status: one a line, the last ones added as the start goes on.
	lines := strings.Split(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid == 0 {
		return pidInfo{}, fmt.Errorf("%s: no process id", path)
	}
	if pid < 0 {
		pid = -pid // a single-user backend
	}
	p := pidInfo{pid: pid}
	if len(lines) > 4 {
		p.sockets, _, _ = strings.Cut(strings.TrimSpace(lines[4]), ",")
	}
	if len(lines) > 7 {
		p.ready = strings.TrimSpace(lines[7]) == "ready"
	}
	return p, nil
}

// clearStale deals with what an earlier server left. We hold the lock, so no
// live process of ours owns the directory: a server found here is on its way
// out after its parent died, and is waited for. A process id that now belongs
// to something else is a leftover that PostgreSQL alone might take for a
// server (ids repeat quickly in containers), and is removed.
func clearStale(ctx context.Context, data string) error {
	path := filepath.Join(data, pidFile)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	deadline := time.NewTimer(orphanWait)
	defer deadline.Stop()
	for {
		p, err := readPIDFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || !alive(p.pid, data) {
			return os.Remove(path)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("another PostgreSQL runs on %s as process %d; stop it with: kill -INT %d", data, p.pid, p.pid)
		}
	}
}

// socketDir makes the folder of the socket: beside the data, or under the
// system's temporary folder when that path would be too long for a socket.
func socketDir(dir string, u user) (string, error) {
	name := fmt.Sprintf(".s.PGSQL.%d.lock", port)
	run := filepath.Join(dir, "run")
	if len(filepath.Join(run, name)) < socketPathMax && !strings.ContainsAny(run, ",\"") {
		return run, u.claim(run)
	}
	sum := sha256.Sum256([]byte(dir))
	for _, tmp := range []string{os.TempDir(), "/tmp"} {
		run = filepath.Join(tmp, "engy-pg-"+hex.EncodeToString(sum[:6]))
		if len(filepath.Join(run, name)) < socketPathMax {
			return run, u.claim(run)
		}
	}
	return "", fmt.Errorf("temporary folder %s: path too long for a socket", os.TempDir())
}
