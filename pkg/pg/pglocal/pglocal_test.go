package pglocal_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pg/pglocal"
)

// childDir makes the test binary a process that starts a server and waits to
// be killed.
const childDir = "ENGY_TEST_PGLOCAL_CHILD"

func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := pglocal.Start(context.Background(), pglocal.Config{Dir: dir, Volatile: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("ready", s.DSN(pglocal.Database))
	// Live until the parent lets go of standard input, and then leave without
	// Close, as a crash does.
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(3)
}

func start(t *testing.T, dir string) *pglocal.Server {
	t.Helper()
	s, err := pglocal.Start(t.Context(), pglocal.Config{Dir: dir, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func exec1(t *testing.T, dsn, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	var s string
	require.NoError(t, conn.QueryRow(t.Context(), statement).Scan(&s))
	return s
}

func TestStateSurvivesARestartAndFindFollowsTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := pglocal.Find(dir)
	require.Error(t, err)
	s := start(t, dir)
	exec1(t, s.DSN(pglocal.Database), "with t as (select 1) select set_config('x.y', 'z', false) from t")
	conn, err := pgx.Connect(t.Context(), s.DSN(pglocal.Database))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create table kept as select 'here' as what")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	found, err := pglocal.Find(dir)
	require.NoError(t, err)
	require.Equal(t, s.DSN(pglocal.Database), found)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "a second time is fine")
	_, err = pglocal.Find(dir)
	require.ErrorContains(t, err, "not running")

	s = start(t, dir)
	require.Equal(t, "here", exec1(t, s.DSN(pglocal.Database), "select what from kept"))
}

func TestTheServerHasNoNetworkPortAndKeepsItsDataPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir)
	require.Empty(t, exec1(t, s.DSN(pglocal.Database), "show listen_addresses"))
	require.Equal(t, "none", exec1(t, s.DSN(pglocal.Database), "show log_statement"))
	for _, f := range []string{"data", "run"} {
		st, err := os.Stat(filepath.Join(dir, f))
		if os.IsNotExist(err) {
			continue // a long path: the socket is elsewhere
		}
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), st.Mode().Perm(), f)
	}
}

func TestADirectoryUnderClosedFoldersAndWithALongPathWorks(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	dir := filepath.Join(closed, strings.Repeat("long-", 30))
	s := start(t, dir)
	require.Equal(t, "1", exec1(t, s.DSN(pglocal.Database), "select '1'"))
	require.Less(t, len(exec1(t, s.DSN(pglocal.Database), "show unix_socket_directories")), 100)
	if os.Geteuid() == 0 {
		conn, err := pgx.Connect(t.Context(), s.DSN(pglocal.Database))
		require.NoError(t, err)
		defer conn.Close(t.Context())
		st, err := os.Stat(fmt.Sprintf("/proc/%d", conn.PgConn().PID()))
		require.NoError(t, err)
		require.NotZero(t, st.Sys().(*syscall.Stat_t).Uid, "the server must not be root")
	}
}

func TestTwoProcessesCannotShareADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir)
	_, err := pglocal.Start(t.Context(), pglocal.Config{Dir: dir, Volatile: true})
	require.ErrorContains(t, err, "in use by process "+strconv.Itoa(os.Getpid()))
}

func TestAClosedServerLeavesItsDirectoryFreeWhileAChildIsForked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir)
	// Between fork and exec a child has every open file of ours, this one too.
	child := duplicate(t, filepath.Join(dir, "lock"))
	require.NoError(t, s.Close())
	start(t, dir)
	require.NoError(t, syscall.Close(child))
}

// duplicate opens a second descriptor of a file that this process has open, as
// a fork does.
func duplicate(t *testing.T, path string) int {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	require.NoError(t, err)
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range open {
		if at, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); err != nil || at != path {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		require.NoError(t, err)
		child, err := syscall.Dup(fd)
		require.NoError(t, err)
		return child
	}
	require.FailNow(t, "not open", path)
	return -1
}

func TestALeftoverProcessIDIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir)
	file := filepath.Join(dir, "data", "postmaster.pid")
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	// As after a power cut, with the id taken by somebody else since: us.
	_, rest, _ := strings.Cut(string(was), "\n")
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600))
	start(t, dir)
}

func TestAMissingPostgreSQLSaysWhatToType(t *testing.T) {
	t.Parallel()
	_, err := pglocal.Start(t.Context(), pglocal.Config{Dir: t.TempDir(), BinDir: t.TempDir()})
	require.ErrorContains(t, err, "install")
}

func TestTheServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"killed":           func(c *exec.Cmd, _ io.Closer) error { return c.Process.Kill() },
		"ended on its own": func(_ *exec.Cmd, in io.Closer) error { return in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			child, in, dsn := spawn(t, dir)
			require.Equal(t, "1", exec1(t, dsn, "select '1'"))
			pid := serverPID(t, dir)
			require.NoError(t, end(child, in))
			_ = child.Wait() // it was killed, or left with a code of its own
			require.Eventually(t, func() bool { return gone(pid) }, 30*time.Second, 10*time.Millisecond)
			// The next start is not held up, even at once.
			start(t, dir)
		})
	}
}

func TestANewStartRightAfterAKillWaitsForTheOldServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child, _, _ := spawn(t, dir)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	start(t, dir)
}

func spawn(t *testing.T, dir string) (*exec.Cmd, io.Closer, string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	word, dsn, _ := strings.Cut(strings.TrimSpace(line), " ")
	require.Equal(t, "ready", word, line)
	return child, in, dsn
}

func serverPID(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	return pid
}

func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }
