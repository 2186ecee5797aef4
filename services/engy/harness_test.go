package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/sql"
)

// patience bounds every wait of the suite; a good run needs a fraction of it.
const patience = time.Minute

// program is the built binary, the same for every test. It is set before the
// first test and read only after.
var program string // read-only

func TestMain(m *testing.M) { pgtest.Main(suite{m}) }

// suite builds the program once and takes it away at the end.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "engy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "engy")
	build := exec.Command("go", "build", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	// Tests mostly wait, so more of them than there are processors run at once.
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
	return s.m.Run()
}

// process is one running program of ours.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	ready chan string
	done  chan struct{}
	err   error // how it ended; read after done
	log   lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// spawn starts a program. It is killed when the test ends, and also when the
// test's own process dies.
func spawn(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, ready: make(chan string, 1), done: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			_, _ = p.log.Write(append(lines.Bytes(), '\n'))
			if addr, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				p.ready <- addr
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("--- %s\n%s", name, p.log.String())
		}
	})
	return p
}

// address waits for the line that says where the program serves.
func (p *process) address() string {
	p.t.Helper()
	select {
	case a := <-p.ready:
		return a
	case <-p.done:
		require.FailNow(p.t, p.name+" ended before it was ready", p.log.String())
	case <-time.After(patience):
		require.FailNow(p.t, p.name+" is not ready", p.log.String())
	}
	return ""
}

// kill ends the program the hard way and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends the program the soft way and gives its exit code.
func (p *process) stop() int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(patience):
		require.FailNow(p.t, p.name+" does not stop", p.log.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// cluster is the whole platform as separate programs.
type cluster struct {
	t       *testing.T
	bus     string
	dsn     string
	data    string
	admin   *billing.Admin
	nats    *process
	books   *process // billing
	account billing.Account
	key     string
	edge    *process
	api     string
	sim     string
	workers []*process
	logs    []*process
}

type shape struct {
	workers   int
	credit    string
	edgeEnv   []string
	simEnv    []string
	workerEnv []string
}

func newCluster(t *testing.T, s shape) *cluster {
	t.Helper()
	c := &cluster{t: t, data: t.TempDir(), dsn: pgtest.DSN(t, sql.Billing())}
	var err error
	c.admin, err = billing.OpenAdmin(t.Context(), c.dsn)
	require.NoError(t, err)
	t.Cleanup(c.admin.Close)
	if s.credit == "" {
		s.credit = "100"
	}
	c.account, c.key = c.customer("customer", s.credit, billing.KeyOptions{})
	// A test may start its bus anew: nobody else gets the port on an address of its own.
	c.startBus(fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(200), rand.IntN(256), 1+rand.IntN(250)))
	c.startBilling()
	c.sim = c.engine("sim", s.simEnv...)
	for range max(1, s.workers) {
		c.addWorker(s.workerEnv...)
	}
	c.addEdge(s.edgeEnv...)
	return c
}

func (c *cluster) startBus(listen string) {
	c.t.Helper()
	c.nats = c.spawn("nats", nil, "nats", "--listen", listen, "--data", filepath.Join(c.data, "nats"))
	c.bus = c.nats.address()
}

func (c *cluster) startBilling() {
	c.t.Helper()
	c.books = c.spawn("billing", []string{"DATABASE_URL=" + c.dsn, "BILLING_SWEEP_EVERY=200ms", "BILLING_SWEEP_AFTER=1s"}, "billing")
}

func (c *cluster) spawn(name string, env []string, args ...string) *process {
	c.t.Helper()
	p := spawn(c.t, name, append([]string{"NATS_URL=" + c.bus, "LOG_LEVEL=debug"}, env...), args...)
	c.logs = append(c.logs, p)
	return p
}

// engine starts a simulator and gives its address.
func (c *cluster) engine(name string, env ...string) string {
	c.t.Helper()
	env = append([]string{"SIM_LISTEN=127.0.0.1:0", "SIM_MODELS=glm-5.2=1048576,qwen3.8-27b,kimi-k3=2000000", "SIM_ALLOW_DIE=true"}, env...)
	return c.spawn(name, env, "sim").address()
}

func (c *cluster) addWorker(env ...string) *process {
	c.t.Helper()
	name := fmt.Sprintf("worker-%d", len(c.workers)+1)
	w := c.spawn(name, append([]string{"WORKER_ENGINE=" + c.sim, "WORKER_NAME=" + name}, env...), "worker")
	c.workers = append(c.workers, w)
	return w
}

// addEdge starts an edge and waits until it would serve a request.
func (c *cluster) addEdge(env ...string) {
	c.t.Helper()
	// A worker that is slow because the machine is must not make a request too much.
	c.edge = c.spawn("edge", append([]string{"EDGE_LISTEN=127.0.0.1:0", "EDGE_CLAIM_WAIT=30s"}, env...), "edge")
	c.api = c.edge.address()
	c.eventually("the edge serves", func() bool {
		resp := c.do("GET", "/v1/models", "", nil)
		list := c.body(resp)
		ready := c.do("GET", "/readyz", "", nil)
		c.body(ready)
		return ready.StatusCode == 200 && strings.Contains(list, "glm-5.2") && c.known(c.key)
	})
	c.eventually("all workers have joined", func() bool {
		for _, w := range c.workers {
			if !strings.Contains(w.log.String(), "joining the fleet") {
				return false
			}
		}
		return true
	})
}

func (c *cluster) customer(name, credit string, o billing.KeyOptions) (billing.Account, string) {
	c.t.Helper()
	a, err := c.admin.CreateAccount(c.t.Context(), name)
	require.NoError(c.t, err)
	amount, err := money.ParseUSD(credit)
	require.NoError(c.t, err)
	if amount > 0 {
		_, err = c.admin.Credit(c.t.Context(), billing.Credit{Account: a.ID, Micro: amount, Cause: "test/" + name})
		require.NoError(c.t, err)
	}
	_, secret, err := c.admin.CreateKey(c.t.Context(), a.ID, o)
	require.NoError(c.t, err)
	if c.edge != nil {
		c.eventually("the edge knows the key", func() bool { return c.known(secret) })
	}
	return a, secret
}

// known tells whether the edge knows a key: an empty request is refused as such.
func (c *cluster) known(key string) bool {
	c.t.Helper()
	resp := c.do("POST", "/v1/chat/completions", key, strings.NewReader("{}"))
	c.body(resp)
	return resp.StatusCode == 400
}

func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	require.Eventually(c.t, ok, patience, 20*time.Millisecond, what)
}

func (c *cluster) do(method, path, key string, body io.Reader) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.api+path, body)
	require.NoError(c.t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	return resp
}

func (c *cluster) body(resp *http.Response) string {
	c.t.Helper()
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.NoError(c.t, err)
	return string(raw)
}

// ask is a chat request.
type ask struct {
	Model     string           `json:"model"`
	Messages  []map[string]any `json:"messages"`
	Stream    bool             `json:"stream,omitempty"`
	MaxTokens int              `json:"max_tokens,omitempty"`
	Provider  map[string]any   `json:"provider,omitempty"`
}

func hello(text string, stream bool) ask {
	return ask{Model: "glm-5.2", Stream: stream, MaxTokens: 1000, Messages: []map[string]any{{"role": "user", "content": text}}}
}

func (c *cluster) chat(key string, a ask) *http.Response {
	c.t.Helper()
	raw, err := json.Marshal(a)
	require.NoError(c.t, err)
	return c.do("POST", "/v1/chat/completions", key, bytes.NewReader(raw))
}

// reply is what tests read of an answer, whole or folded from a stream.
type reply struct {
	ID     string
	Text   string
	Usage  usage
	Engy   engy
	Finish string
	Chunks int
	Error  *apiError
	Done   bool
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type engy struct {
	RequestID    string `json:"request_id"`
	Worker       string `json:"worker"`
	ChargedMicro int64  `json:"charged_micro"`
}

type apiError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    int    `json:"code"`
}

type wire struct {
	ID      string `json:"id"`
	Choices []struct {
		Message      struct{ Content string } `json:"message"`
		Delta        struct{ Content string } `json:"delta"`
		FinishReason string                   `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage    `json:"usage"`
	Engy  *engy     `json:"x_engy"`
	Error *apiError `json:"error"`
}

func (r *reply) add(t *testing.T, raw []byte) {
	t.Helper()
	var w wire
	require.NoError(t, json.Unmarshal(raw, &w), "%s", raw)
	if w.ID != "" {
		r.ID = w.ID
	}
	for _, ch := range w.Choices {
		r.Text += ch.Message.Content + ch.Delta.Content
		if ch.Delta.Content != "" {
			r.Chunks++
		}
		if ch.FinishReason != "" {
			r.Finish = ch.FinishReason
		}
	}
	if w.Usage != nil {
		r.Usage = *w.Usage
	}
	if w.Engy != nil {
		r.Engy = *w.Engy
	}
	if w.Error != nil {
		r.Error = w.Error
	}
}

// fold reads an answer of either form to its end.
func (c *cluster) fold(resp *http.Response) reply {
	c.t.Helper()
	defer func() { _ = resp.Body.Close() }()
	var r reply
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		r.add(c.t, []byte(c.body(resp)))
		return r
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			r.Done = true
		default:
			r.add(c.t, []byte(data))
		}
	}
	require.NoError(c.t, lines.Err())
	return r
}

// counters are the simulator's.
type counters struct {
	Running  int64 `json:"running"`
	Total    int64 `json:"total"`
	Finished int64 `json:"finished"`
	Aborted  int64 `json:"aborted"`
}

func (c *cluster) counters() counters {
	c.t.Helper()
	resp, err := http.Get(c.sim + "/sim/requests")
	require.NoError(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	var n counters
	require.NoError(c.t, json.NewDecoder(resp.Body).Decode(&n))
	return n
}

func (c *cluster) balance() billing.Balance {
	c.t.Helper()
	b, err := c.admin.Balance(c.t.Context(), c.account.ID)
	require.NoError(c.t, err)
	return b
}

// settled waits until nothing is held, proves the ledger, and gives what has
// been spent since the given balance.
func (c *cluster) settled(before billing.Balance) money.Micro {
	c.t.Helper()
	c.eventually("every hold ends", func() bool { return c.balance().OpenHolds == 0 })
	r, err := c.admin.Reconcile(context.WithoutCancel(c.t.Context()))
	require.NoError(c.t, err)
	require.Empty(c.t, r.Findings)
	return before.Micro - c.balance().Micro
}
