package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pglocal"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/sql"
)

const (
	// model is priced, takes long prompts and thinks only when asked.
	model = "deepseek-v4-flash-0731"
	// engineWindow is larger than any prompt here, however it is counted.
	engineWindow = 1 << 24
	// seeing takes images, too.
	seeing      = "kimi-k3"
	accounts    = 100
	creditMicro = money.Micro(100_000_000_000)
	slots       = 4000

	readyWait = 60 * time.Second
	askWait   = time.Second
	calmWait  = 30 * time.Second
	pollEvery = 20 * time.Millisecond
)

// The processes that are measured, in the order in which they start.
const (
	engineName   = "sim"
	busName      = "nats"
	billingName  = "billing"
	workerName   = "worker"
	edgeName     = "edge"
	postgresName = "postgres"
	// The bare prototype shares engine and bus with the product.
	bareWorkerName = "bare-worker"
	bareEdgeName   = "bare-edge"
	// strangers are all processes that are not of this run.
	strangers = "strangers"
)

// rig is the whole product in processes of its own.
type rig struct {
	opt  Options
	dir  string
	fail context.CancelCauseFunc

	pg      *pglocal.Server
	pgPID   int
	procs   map[string]*process
	running []string // in the order of their start

	engine, natsURL, edge string
	bare                  string
	admin                 *billing.Admin
	bus                   *bus.Bus
	secrets               []string
}

// openRig starts everything and waits until every key is served. What it gives
// beside an error must be closed all the same.
func openRig(ctx context.Context, o Options, fail context.CancelCauseFunc) (*rig, error) {
	if runtime.GOOS != "linux" {
		return nil, fault.New(fault.Invalid, "the bench reads Linux's /proc and runs on Linux only")
	}
	dir, err := os.MkdirTemp("", "engy-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench directory: %w", err)
	}
	r := &rig{opt: o, dir: dir, fail: fail, procs: map[string]*process{}}
	// PostgreSQL may run as somebody else, who must be able to pass.
	if err := os.Chmod(dir, 0o711); err != nil {
		return r, fmt.Errorf("bench directory: %w", err)
	}
	for _, step := range []func(context.Context) error{r.startEngine, r.startLedger, r.startProduct, r.startBare} {
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *rig) startEngine(ctx context.Context) (err error) {
	r.engine, err = r.start(ctx, engineName, true, []string{
		"SIM_LISTEN=127.0.0.1:0", fmt.Sprintf("SIM_MODELS=%s=%d,%s=%d+image", model, engineWindow, seeing, engineWindow), "SIM_NO_CACHE=true", "SIM_DRAIN=0s",
	})
	r.engine = strings.TrimPrefix(r.engine, "http://")
	return err
}

// startLedger brings up the database with accounts, money and keys.
func (r *rig) startLedger(ctx context.Context) (err error) {
	dir := filepath.Join(r.dir, "pg")
	if r.pg, err = pglocal.Start(ctx, pglocal.Config{Dir: dir}); err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return fmt.Errorf("process of postgres: %w", err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	if r.pgPID, err = strconv.Atoi(first); err != nil {
		return fmt.Errorf("process of postgres: %w", err)
	}
	dsn := r.pg.DSN(pglocal.Database)
	if err := pg.Migrate(ctx, dsn, sql.Billing()); err != nil {
		return err
	}
	if r.admin, err = billing.OpenAdmin(ctx, dsn); err != nil {
		return err
	}
	for i := range accounts {
		_, _, secret, err := r.customer(ctx, fmt.Sprintf("load-%d", i))
		if err != nil {
			return err
		}
		r.secrets = append(r.secrets, secret)
	}
	return nil
}

// customer makes an account with money and a key.
func (r *rig) customer(ctx context.Context, name string) (account, key, secret string, err error) {
	a, err := r.admin.CreateAccount(ctx, name)
	if err != nil {
		return "", "", "", err
	}
	if _, err := r.admin.Credit(ctx, billing.Credit{Account: a.ID, Micro: creditMicro, Cause: "bench/" + a.ID}); err != nil {
		return "", "", "", err
	}
	key, secret, err = r.admin.CreateKey(ctx, a.ID, billing.KeyOptions{Name: name})
	return a.ID, key, secret, err
}

// startProduct starts bus, billing, worker and edge, and waits until they serve.
func (r *rig) startProduct(ctx context.Context) (err error) {
	listen := "127.0.0.1:0"
	if r.natsURL != "" {
		// A bus that is started again is looked for where it was.
		listen = strings.TrimPrefix(r.natsURL, "nats://")
	}
	if r.natsURL, err = r.start(ctx, busName, true, nil, "--listen", listen, "--data", filepath.Join(r.dir, "nats")); err != nil {
		return err
	}
	nats := "NATS_URL=" + r.natsURL
	if err := r.startBilling(ctx); err != nil {
		return err
	}
	if _, err := r.start(ctx, workerName, false, []string{
		nats, "WORKER_ENGINE=http://" + r.engine, "WORKER_MODELS=" + model + "," + seeing, fmt.Sprintf("WORKER_SLOTS=%d", slots),
		"WORKER_NAME=bench", "WORKER_REGION=us", "WORKER_ZDR=true", "WORKER_GRACE=1s",
	}); err != nil {
		return err
	}
	url, err := r.start(ctx, edgeName, true, []string{nats, "EDGE_LISTEN=127.0.0.1:0", "EDGE_REGION=us", "EDGE_GRACE=1s"})
	if err != nil {
		return err
	}
	r.edge = strings.TrimPrefix(url, "http://")
	if r.bus == nil {
		if r.bus, err = bus.Connect(ctx, bus.Config{URL: r.natsURL, Name: "bench"}); err != nil {
			return err
		}
	}
	return r.serves(ctx)
}

func (r *rig) startBilling(ctx context.Context, env ...string) error {
	_, err := r.start(ctx, billingName, false, append([]string{
		"NATS_URL=" + r.natsURL, "DATABASE_URL=" + r.pg.DSN(pglocal.Database), "BILLING_SKIP_MIGRATIONS=true",
	}, env...))
	return err
}

// rebill starts billing anew, with settings of its own.
func (r *rig) rebill(ctx context.Context, env ...string) error {
	p := r.procs[billingName]
	delete(r.procs, billingName)
	r.running = slices.DeleteFunc(r.running, func(name string) bool { return name == billingName })
	if err := p.stop(); err != nil {
		return err
	}
	if err := r.startBilling(ctx, env...); err != nil {
		return err
	}
	return r.serves(ctx)
}

// startBare starts the prototype that the product is held against.
func (r *rig) startBare(ctx context.Context) error {
	if _, err := r.start(ctx, bareWorkerName, false, nil, r.natsURL, "--engine", r.engine, "--slots", strconv.Itoa(slots)); err != nil {
		return err
	}
	url, err := r.start(ctx, bareEdgeName, true, nil, r.natsURL)
	r.bare = strings.TrimPrefix(url, "http://")
	return err
}

// restart gives every process of the product a new life, so that its memory is
// that of a process which has served nothing yet. The edge's address changes.
func (r *rig) restart(ctx context.Context) error {
	for _, name := range []string{bareEdgeName, bareWorkerName, edgeName, workerName, billingName, busName} {
		p := r.procs[name]
		delete(r.procs, name)
		if err := p.stop(); err != nil {
			return err
		}
	}
	r.running = []string{engineName}
	if err := r.startProduct(ctx); err != nil {
		return err
	}
	return r.startBare(ctx)
}

// start launches a service and, when it tells where it serves, waits for that.
func (r *rig) start(ctx context.Context, name string, tells bool, env []string, args ...string) (string, error) {
	p, err := launch(name, r.opt.Program, r.dir, append(r.inherited(), env...), args...)
	if err != nil {
		return "", err
	}
	r.procs[name], r.running = p, append(r.running, name)
	go func() {
		<-p.exited
		if !p.wanted.Load() {
			r.fail(p.death())
		}
	}()
	if !tells {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	select {
	case url := <-p.ready:
		return url, nil
	case <-p.exited:
		return "", p.death()
	case <-ctx.Done():
		return "", fmt.Errorf("%s is not ready: %w", name, context.Cause(ctx))
	}
}

// inherited is the part of our environment that services get: what the machine
// says, and the runtime's switches; none of the product's settings.
func (r *rig) inherited() []string {
	env := []string{"LOG_LEVEL=" + r.opt.LogLevel}
	for _, e := range r.opt.Environ {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG":
			env = append(env, e)
		}
	}
	return env
}

// serves waits until the edge lists the model and knows every key, and billing
// answers holds: each of them may be up before the other.
func (r *rig) serves(ctx context.Context) error {
	return r.until(ctx, "the edge serves every key", readyWait, func() (bool, error) {
		var list struct {
			Data []struct{ ID string }
		}
		if err := getJSON(ctx, "http://"+r.edge+"/v1/models", &list); err != nil || len(list.Data) == 0 {
			return false, nil
		}
		// Billing that is there refuses a hold of no job.
		ask, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		if a, err := r.bus.Hold(ask, bus.Hold{Job: "none"}); err != nil || a.Code != fault.Invalid {
			return false, nil
		}
		for _, secret := range r.secrets {
			if !known(ctx, r.edge, secret) {
				return false, nil
			}
		}
		return true, nil
	})
}

// known tells whether the edge has heard of a key: an empty request is refused
// as such, not for its key.
func known(ctx context.Context, edge, secret string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+edge+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusBadRequest
}

// engineRunning is how many requests the engine works on.
func (r *rig) engineRunning(ctx context.Context) (int, error) {
	var counts struct{ Running int }
	err := getJSON(ctx, "http://"+r.engine+"/sim/requests", &counts)
	return counts.Running, err
}

func getJSON(ctx context.Context, url string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	return nil
}

// calm waits until no hold is open: everything that ran is settled.
func (r *rig) calm(ctx context.Context) error {
	return r.until(ctx, "every hold is settled", calmWait, func() (bool, error) {
		list, err := r.admin.ListAccounts(ctx)
		if err != nil {
			return false, err
		}
		for _, a := range list {
			if a.OpenHolds > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

// until asks again and again, for a bounded time.
func (r *rig) until(ctx context.Context, what string, wait time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fault.New(fault.Timeout, "not within "+wait.String()+": "+what))
	defer cancel()
	every := time.NewTicker(pollEvery)
	defer every.Stop()
	for {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cpuTimes are what the processes have taken so far.
type cpuTimes map[string]time.Duration

func (r *rig) cpu() (cpuTimes, error) {
	times := cpuTimes{}
	for name, p := range r.procs {
		s, err := statOf(p.pid())
		if err != nil {
			return nil, err
		}
		times[name] = s.cpu
	}
	own, err := statOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	if times[postgresName], err = treeCPU(r.pgPID); err != nil {
		return nil, err
	}
	if times[strangers], err = busyCPU(); err != nil {
		return nil, err
	}
	ours := own.cpu
	for name, t := range times {
		if name != strangers {
			ours += t
		}
	}
	times[strangers] -= ours
	return times, nil
}

// resident sums the memory of the product's processes, the database left out.
func (r *rig) resident() (int64, error) {
	var sum int64
	for _, name := range []string{busName, billingName, workerName, edgeName} {
		n, err := residentBytes(r.procs[name].pid())
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// close ends everything, the last started first. After a failure the logs stay,
// and their place is told.
func (r *rig) close(failed bool) error {
	var errs []error
	if r.bus != nil {
		r.bus.Close()
	}
	for i := len(r.running) - 1; i >= 0; i-- {
		name := r.running[i]
		p := r.procs[name]
		delete(r.procs, name)
		errs = append(errs, p.stop())
	}
	if r.admin != nil {
		r.admin.Close()
	}
	if r.pg != nil {
		errs = append(errs, r.pg.Close())
	}
	if failed {
		r.opt.say("the services' logs are in %s\n", r.dir)
	} else {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}
