package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg/pglocal"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing"
)

const (
	// clientsEnv turns the tests with installed clients on. In the second
	// process, the one without a network, its value is clientsAlone.
	clientsEnv   = "CLIENTS"
	clientsAlone = "alone"
	// clientPatience bounds one run of a client, clientsPatience all of them.
	clientPatience  = 2 * time.Minute
	clientsPatience = 8 * time.Minute
)

// alone runs the test once more in a process whose network is a loopback
// interface and nothing else, so that whatever a client reaches is ours. It
// tells whether it has done so; when not, the caller is in that process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(clientsEnv) == clientsAlone {
		loopbackUp(t)
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), clientsPatience)
	defer cancel()
	// Of what this process was told to run, only the choice of clients is meant.
	_, chosen, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	again := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$/"+chosen, "-test.timeout="+clientsPatience.String())
	// The parent has built everything; there is nobody to ask for modules.
	again.Env = append(os.Environ(), clientsEnv+"="+clientsAlone, "GOPROXY=off", "GOFLAGS=-mod=readonly")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	var out lockedBuffer
	again.Stdout, again.Stderr = &out, &out
	err := again.Run()
	if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
		t.Log("no right to make a network of its own: the clients run in the open, where nothing proves whom they reach")
		return false
	}
	t.Log(out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "--- PASS: "+t.Name()+"/", "it ran no client")
	return true
}

// loopbackUp switches the loopback interface on, and makes sure that it is the
// only one.
func loopbackUp(t *testing.T) {
	t.Helper()
	all, err := net.Interfaces()
	require.NoError(t, err)
	loopback := ""
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			loopback = i.Name
			continue
		}
		require.Zero(t, i.Flags&net.FlagUp, "%s leads out", i.Name)
	}
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(s)) }()
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(request.name[:], loopback)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(s), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	require.Zero(t, errno)
}

// upWithSimulator runs `engy up` over a simulator in a process of its own, so
// that tests can ask the simulator what it saw.
func upWithSimulator(t *testing.T) *cluster {
	t.Helper()
	sim := spawn(t, "sim", []string{
		"SIM_LISTEN=127.0.0.1:0",
		// Of these kimi-k3 sees. The last is too short for what a coding client sends
		// by itself.
		"SIM_MODELS=glm-5.2=262144,kimi-k3=1048576+image,qwen3.8-27b=1001536,short=8192",
	}, "sim")
	data := t.TempDir()
	url := sim.address()
	_, c := startUp(t, data, "--engine", url)
	c.sim = url
	dsn, err := pglocal.Find(filepath.Join(data, "pg"))
	require.NoError(t, err)
	c.admin, err = billing.OpenAdmin(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(c.admin.Close)
	return c
}

// guest is a client: an account of its own, a home of its own, and nothing of
// this machine's settings.
type guest struct {
	*cluster
	home, poorKey string
	before        billing.Balance
}

// invite gives a client its account and its home. The account's name is the
// test's, so that each client's money can be told from the others'.
func invite(t *testing.T, host *cluster) *guest {
	t.Helper()
	// A copy fails the right test; customer waits until keys are known only
	// where there is an edge to ask.
	c := *host
	c.t = t
	g := &guest{cluster: &c, home: t.TempDir()}
	c.account, c.key = c.customer(t.Name(), "20", billing.KeyOptions{})
	_, g.poorKey = c.customer(t.Name()+" without money", "0", billing.KeyOptions{})
	c.eventually("the edge knows the keys", func() bool { return c.known(c.key) && c.known(g.poorKey) })
	g.before = c.balance()
	return g
}

// ran is how a run of a client ended.
type ran struct {
	stdout, stderr string
	code           int
}

// run runs a shell script in the client's home with the client's programs in
// its path. It ends with the test at the latest, and so does what it started.
func (g *guest) run(script string, env ...string) ran {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), clientPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", script)
	cmd.Dir = g.home
	cmd.Env = append([]string{
		"HOME=" + g.home, "TMPDIR=" + g.home, "XDG_RUNTIME_DIR=" + g.home, "LANG=C.UTF-8", "TERM=dumb",
		"PATH=" + absolute(g.t, "clients/node_modules/.bin") + ":/usr/local/bin:/usr/bin:/bin",
		"ENGY_URL=" + g.api, "ENGY_API_KEY=" + g.key, "ENGY_POOR_KEY=" + g.poorKey,
	}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := ran{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Logf("--- %s\nexit %d, %v\n%s\n%s", script, r.code, err, r.stdout, r.stderr)
		}
	})
	require.NoError(g.t, ctx.Err(), "it did not end by itself")
	return r
}

// spent is one line of what a script reports, in tokens.
type spent struct {
	Model  string `json:"model"`
	Input  int64  `json:"input"`
	Cached int64  `json:"cached"`
	Output int64  `json:"output"`
}

// price is what an answer of that usage costs by the public list.
func (s spent) price(t *testing.T) money.Micro {
	t.Helper()
	list, err := pricing.Default()
	require.NoError(t, err)
	rates, ok := list.Of(s.Model)
	require.True(t, ok, s.Model)
	micro, err := pricing.Charge(rates, pricing.Finished, llm.Usage{Prompt: s.Input, Cached: s.Cached, Completion: s.Output})
	require.NoError(t, err)
	return micro
}

// script runs one of the scripts of the folder clients, which must succeed, and
// holds what it reports against the ledger.
func (g *guest) script(name string, answers int) {
	g.t.Helper()
	r := g.run("exec node " + absolute(g.t, filepath.Join("clients", name)))
	require.Zero(g.t, r.code)
	var sum money.Micro
	n := 0
	for line := range strings.Lines(r.stdout) {
		var s spent
		require.NoError(g.t, json.Unmarshal([]byte(line), &s), "%s", line)
		sum += s.price(g.t)
		n++
	}
	require.Equal(g.t, answers, n, "answers that were paid for")
	require.Equal(g.t, sum, g.settled(g.before), "what the client saw and what the ledger booked")
}
