package main_test

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/sql"
)

const demoKey = "sk-engy-demo-0123456789"

// startUp runs `engy up` as a person would.
func startUp(t *testing.T, data string, args ...string) (*process, *cluster) {
	t.Helper()
	p := spawn(t, "up", []string{"DATABASE_URL=", "NATS_URL="}, append([]string{
		"up", "--listen", "127.0.0.1:0", "--data", data, "--key", demoKey,
	}, args...)...)
	// One that is killed leaves a database that is still on its way down while the
	// test's folder is removed.
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience):
		}
	})
	return p, &cluster{t: t, api: p.address(), key: demoKey}
}

// verb runs an operator's verb and gives what it prints.
func verb(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestUpIsAWholePlatformThatKeepsItsState(t *testing.T) {
	t.Parallel()
	// A folder that the database's user could not enter by itself.
	data := filepath.Join(t.TempDir(), "closed", "data")
	require.NoError(t, os.Mkdir(filepath.Dir(data), 0o700))
	p, c := startUp(t, data, "--credit-usd", "2.5")
	r := c.fold(c.chat(demoKey, hello("hello", true)))
	require.True(t, strings.HasPrefix(r.Text, "Simulated"), "the simulator says what it is: %s", r.Text)
	require.Contains(t, p.log.String(), "curl -N "+c.api)

	out, err := verb(t, nil, "account", "list", "--data", data)
	require.NoError(t, err, out)
	require.Contains(t, out, "demo")
	out, err = verb(t, nil, "reconcile", "--data", data)
	require.NoError(t, err, out)
	require.Contains(t, out, "the ledger adds up")
	require.Contains(t, out, "usage events compared")
	require.Zero(t, p.stop())

	// The same amount is not paid in again, and what was spent stays spent.
	p, c = startUp(t, data, "--credit-usd", "2.5")
	c.fold(c.chat(demoKey, hello("hello", false)))
	out, err = verb(t, nil, "account", "list", "--data", data)
	require.NoError(t, err, out)
	require.Contains(t, out, "2.49")

	// It comes back after the hard way down, too, and leaves no server behind.
	p.kill()
	_, c = startUp(t, data, "--credit-usd", "2.5")
	require.Equal(t, "stop", c.fold(c.chat(demoKey, hello("hello", true))).Finish)
}

// Engines name their models by whose they are or where they lie.
func TestUpServesAnEngineUnderItsOwnNames(t *testing.T) {
	t.Parallel()
	engine := spawn(t, "sim", []string{"SIM_LISTEN=127.0.0.1:0", "SIM_MODELS=Qwen/Qwen3-8B,/models/a.gguf,hf.co/x/Y-GGUF:Q4,a b,z/a.gguf"}, "sim")
	p, c := startUp(t, filepath.Join(t.TempDir(), "data"), "--credit-usd", "0", "--engine", engine.address())
	list := c.body(c.do("GET", "/v1/models", "", nil))
	for _, id := range []string{"Qwen3-8B", "a.gguf", "Y-GGUF:Q4"} {
		require.Contains(t, list, `"id":"`+id+`"`)
	}
	require.Equal(t, 3, strings.Count(list, `"id":`))
	require.Equal(t, 2, strings.Count(p.log.String(), "model not served"))
	// They cost nothing, so nothing is needed to use them.
	for _, spelling := range []string{"Qwen/Qwen3-8B", "Qwen3-8B"} {
		for _, stream := range []bool{false, true} {
			a := hello("hi [[sim tokens=3]]", stream)
			a.Model = spelling
			r := c.fold(c.chat(demoKey, a))
			require.Nil(t, r.Error)
			require.Equal(t, int64(3), r.Usage.Completion)
			require.Zero(t, r.Engy.ChargedMicro)
		}
	}
}

func TestKeysAndAccountsByVerbs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	env := []string{"DATABASE_URL=" + c.dsn, "NATS_URL=" + c.bus}
	out, err := verb(t, env, "account", "create", "bob")
	require.NoError(t, err, out)
	for _, wrong := range [][]string{
		{"key", "create", "bob", "--concurrent", "-3"},
		{"account", "create", "eve", "--concurrent", "-3"},
		{"account", "credit", "bob", "99999999999999"},
	} {
		out, err = verb(t, env, wrong...)
		require.Error(t, err, wrong)
		require.NotContains(t, out, "SQLSTATE")
	}
	for _, cause := range []string{"invoice-1", "invoice-1"} {
		out, err = verb(t, env, "account", "credit", "bob", "12.5", "--cause", cause)
		require.NoError(t, err, out)
		require.Contains(t, out, "balance 12.500000 USD")
	}
	out, err = verb(t, env, "key", "create", "bob", "--name", "laptop")
	require.NoError(t, err, out)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	secret, id := lines[1], strings.TrimPrefix(lines[0], "key ")
	require.True(t, strings.HasPrefix(secret, "sk-engy-"))
	c.eventually("the edge knows the key", func() bool { return c.known(secret) })
	c.body(c.chat(secret, hello("[[sim tokens=3]]", false)))

	out, err = verb(t, env, "key", "list", "bob")
	require.NoError(t, err, out)
	require.Contains(t, out, "laptop")
	require.NotContains(t, out, secret, "a key is shown once")
	out, err = verb(t, env, "key", "revoke", id)
	require.NoError(t, err, out)
	c.eventually("the key is dead", func() bool {
		resp := c.chat(secret, hello("hi", false))
		c.body(resp)
		return resp.StatusCode == http.StatusUnauthorized
	})
	out, err = verb(t, env, "account", "close", "bob")
	require.NoError(t, err, out)
	out, err = verb(t, env, "key", "create", "bob")
	require.Error(t, err, out)
	out, err = verb(t, env, "migrate")
	require.NoError(t, err, out)
	out, err = verb(t, env, "reconcile")
	require.NoError(t, err, out)
	require.Contains(t, out, "the ledger adds up")
}

// What is revoked or closed stays so, and does not keep the platform from starting.
func TestUpStartsWithoutItsKeyOrItsAccount(t *testing.T) {
	t.Parallel()
	data, env := filepath.Join(t.TempDir(), "data"), []string{"DATABASE_URL=" + pgtest.DSN(t, sql.Billing()), "NATS_URL="}
	args := []string{"up", "--listen", "127.0.0.1:0", "--data", data, "--credit-usd", "2.5"}
	seen := map[string]bool{}
	run := func() string {
		p := spawn(t, "up", env, args...)
		c := &cluster{t: t, api: p.address()}
		raw, err := os.ReadFile(filepath.Join(data, "demo-key"))
		require.NoError(t, err)
		key := strings.TrimSpace(string(raw))
		require.Contains(t, p.log.String(), "Bearer "+key, "the key is printed")
		require.Equal(t, "stop", c.fold(c.chat(key, hello("[[sim tokens=3]]", true))).Finish)
		require.NotContains(t, p.log.String(), "request refused", "nobody asked for what is refused")
		require.Zero(t, p.stop())
		seen[key] = true
		return key
	}
	first := run()
	require.Equal(t, first, run(), "a key is kept")
	out, err := verb(t, env, "key", "list", "demo")
	require.NoError(t, err, out)
	out, err = verb(t, env, "key", "revoke", regexp.MustCompile("key-[0-9a-f]+").FindString(out))
	require.NoError(t, err, out)
	second := run()
	require.Equal(t, second, run())

	out, err = verb(t, env, "account", "close", "demo")
	require.NoError(t, err, out)
	third := run()
	require.Equal(t, third, run())
	require.Len(t, seen, 3)
	out, err = verb(t, env, "account", "list")
	require.NoError(t, err, out)
	require.Regexp(t, `demo +2\.49.* closed 20`, out)
	require.Regexp(t, `demo-2 +2\.49.* open`, out)

	out, err = verb(t, env, append(args, "--key", first)...)
	require.Error(t, err)
	require.Equal(t, "invalid: the key of --key was revoked, which is for good: choose another, or leave --key out\n", out)
	out, err = verb(t, env, "reconcile")
	require.NoError(t, err, out)
}

func TestVerbsSayWhatIsRefusedAndWhatKeysMayDo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, sql.Billing())
	env := []string{"DATABASE_URL=" + dsn, "NATS_URL="}
	for _, args := range [][]string{
		{"account", "create", "bob"},
		{"account", "create", "eve"},
		{"account", "credit", "bob", "9000000000000"},
		{"account", "close", "eve"},
		{"key", "create", "bob"},
		{"key", "create", "bob", "--spend-usd", "1.5", "--concurrent", "7", "--model", "glm-5.2"},
	} {
		out, err := verb(t, env, args...)
		require.NoError(t, err, out)
		require.NotContains(t, out, "warning")
	}
	for _, x := range []struct{ args, ends string }{
		{"account create bob", "an account of this name exists already"},
		{"account credit nobody 1", "no such account"},
		{"account credit bob 9000000000000", "amount out of range"},
		{"account credit eve 1", "the account is closed, and closed accounts take no money"},
		{"account retain eve on", "it is closed, and closed accounts stay closed"},
		{"key create eve", "it is closed, and closed accounts stay closed"},
		{"key create nobody", "no such account"},
		{"key list nobody", "no such account"},
		{"key revoke key-none", "no such key, or it is revoked already"},
	} {
		out, err := verb(t, env, strings.Fields(x.args)...)
		require.Error(t, err, x.args)
		require.True(t, strings.HasSuffix(out, ": "+x.ends+"\n"), "%s: %s", x.args, out)
		require.Equal(t, 1, strings.Count(out, "\n"), "%s: %s", x.args, out)
	}

	blank, err := url.Parse(dsn)
	require.NoError(t, err)
	blank.Path = "/postgres" // a database that nobody has migrated
	out, err := verb(t, []string{"DATABASE_URL=" + blank.String()}, "account", "list")
	require.Error(t, err)
	require.Contains(t, out, "run `engy migrate`\n")
	require.NotContains(t, out, "SQLSTATE")

	// Scripts read the key; what is odd of it stands beside.
	c := exec.Command(program, "key", "create", "bob", "--model", "nonsense")
	c.Env = append(os.Environ(), env...)
	var warnings bytes.Buffer
	c.Stderr = &warnings
	made, err := c.Output()
	require.NoError(t, err)
	require.Regexp(t, `^key key-\w+\nsk-engy-\S+\n$`, string(made))
	require.Contains(t, warnings.String(), `no model "nonsense"`)

	out, err = verb(t, env, "key", "list", "bob")
	require.NoError(t, err, out)
	require.Regexp(t, `SPENT USD +LIMIT USD +CONCURRENT +MODELS +STATE`, out)
	require.Regexp(t, `0\.000000 +none +any +all +active`, out)
	require.Regexp(t, `0\.000000 +1\.500000 +7 +glm-5\.2 +active`, out)
}

func TestAWrongCommandSaysWhyInOneLine(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	for _, args := range [][]string{
		{"up", "--slots", "0"},
		{"up", "--listen", "nonsense"},
		{"up", "--listen", "127.0.0.1:99999"},
		{"up", "--listen", taken.Addr().String()},
		{"up", "--region", "mars"},
		{"up", "--credit-usd", "abc"},
		{"up", "--model", "a=b"},
		{"up", "--engine", "ftp://x"},
		{"up", "--engine", "http://user:secretpw@127.0.0.1:9/"},
		{"account", "create", "bob", "--concurrent", "-1", "--data", t.TempDir()},
		{"account", "credit", "bob", "1.0000001", "--data", t.TempDir()},
		{"account", "list", "--data", t.TempDir()},
		{"nonsense"},
	} {
		c := exec.Command(program, args...)
		c.Dir = t.TempDir()
		c.Env = append(os.Environ(), "DATABASE_URL=", "NATS_URL=")
		out, err := c.CombinedOutput()
		require.Error(t, err, "%v", args)
		require.Equal(t, 1, c.ProcessState.ExitCode(), "%v", args)
		require.Equal(t, 1, strings.Count(strings.TrimSpace(string(out)), "\n")+1, "%v: %s", args, out)
		require.NotContains(t, string(out), "panic")
		require.NotContains(t, string(out), "secretpw")
	}
}
