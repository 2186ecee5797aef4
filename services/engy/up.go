package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/natsembed"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pglocal"
	"github.com/engy-ai/engy/pkg/telemetry"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/services/edge"
	"github.com/engy-ai/engy/services/engy/internal/ops"
	"github.com/engy-ai/engy/services/worker"
	"github.com/engy-ai/engy/sql"
)

// upFlags are what scripts rely on.
type upFlags struct {
	listen, data, key, credit string
	bus                       string
	engines, models           []string
	region                    string
	slots                     int
}

// upEnv lets a real database and bus take the place of the private ones.
type upEnv struct {
	telemetry.Config
	DatabaseURL string `env:"DATABASE_URL"`
	NATSURL     string `env:"NATS_URL"`
}

func upCommand() *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run the whole platform in this process",
		Long: "Run the whole platform in this process: a message bus, a private PostgreSQL,\n" +
			"billing, an edge, and a worker for each engine found on this machine. Without\n" +
			"an engine the simulator answers. DATABASE_URL and NATS_URL name a database and\n" +
			"a bus to be used instead of private ones.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return up(c.Context(), f) },
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the API; port 0 picks a free one")
	c.Flags().StringVar(&f.data, "data", ".engy", "directory that keeps the state")
	c.Flags().StringVar(&f.key, "key", "", "the demo account's key (sk-engy-…); one is made and kept when empty")
	c.Flags().StringVar(&f.credit, "credit-usd", "10", "the demo account's credit in US dollars, paid in once for each amount")
	c.Flags().StringArrayVar(&f.engines, "engine", nil, "base URL of an engine to serve; may be repeated")
	c.Flags().StringArrayVar(&f.models, "model", nil, "serve the engine's model NAME as ID, written ID=NAME; may be repeated")
	c.Flags().StringVar(&f.bus, "bus", "127.0.0.1:0", "address of the private bus; other programs find it in the data directory")
	c.Flags().StringVar(&f.region, "region", "us", "region of the edge and the workers")
	c.Flags().IntVar(&f.slots, "slots", 256, "jobs that each worker runs at once")
	return c
}

// platform is what `engy up` has started, in order.
type platform struct {
	flags  upFlags
	env    upEnv
	log    *slog.Logger
	server *natsembed.Server
	closes []func()
	failed chan error
	stages []stage
}

// stage is a running front door.
type stage struct {
	name string
	stop context.CancelFunc
	done chan struct{}
}

func up(ctx context.Context, f upFlags) (err error) {
	defer boot.Ballast()()
	env, err := boot.Parse[upEnv]("")
	if err != nil {
		return err
	}
	credit, err := money.ParseUSD(f.credit)
	if err != nil {
		return err
	}
	if err := checked(f); err != nil {
		return err
	}
	p := &platform{flags: f, env: env, log: telemetry.Logger(env.Config, "engy", os.Stderr), failed: make(chan error, 8)}
	flush, err := telemetry.Start(ctx, env.Config, "engy")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flush()) }()
	defer p.close()
	if err := os.MkdirAll(f.data, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	dsn, err := p.database(ctx)
	if err != nil {
		return err
	}
	if err := pg.Migrate(ctx, dsn, sql.Billing()); err != nil {
		return err
	}
	key, err := p.demo(ctx, dsn, credit)
	if err != nil {
		return err
	}
	if err := p.startBus(); err != nil {
		return err
	}
	addr, model, err := p.serve(ctx, dsn, key)
	if err == nil {
		p.greet(addr, key, model)
		select {
		case <-ctx.Done():
		case err = <-p.failed:
		}
	}
	p.drain()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// worker is the configuration of the worker of an engine.
func (f upFlags) worker(engine string) worker.Config {
	return worker.Config{
		Region: f.region, Engine: engine, Models: f.models, Slots: f.slots,
		ZDR: true, Idle: 5 * time.Minute, Grace: 30 * time.Second,
		// Nobody else would take its jobs over.
		LostAfter: time.Minute,
	}
}

// checked looks at the flags before anything is started.
func checked(f upFlags) error {
	if len(f.models) > 0 && len(f.engines) == 0 {
		return fault.New(fault.Invalid, "--model needs --engine")
	}
	for _, engine := range append([]string{"http://127.0.0.1"}, f.engines...) {
		if err := f.worker(engine).Validate(); err != nil {
			return err
		}
	}
	if host, _, err := net.SplitHostPort(f.listen); err != nil {
		return fault.Wrap(fault.Invalid, "--listen must be HOST:PORT, with an empty host for all addresses", err)
	} else if ip := net.ParseIP(host); host != "" && host != "localhost" && ip == nil {
		return fault.New(fault.Invalid, "--listen names no address: "+host)
	}
	// Somebody else may have it: that is better known before a database is made.
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fault.Wrap(fault.Invalid, "--listen cannot be used", err)
	}
	return l.Close()
}

// close gives back what drain leaves: connections, then servers.
func (p *platform) close() {
	for i := len(p.closes) - 1; i >= 0; i-- {
		p.closes[i]()
	}
}

func (p *platform) database(ctx context.Context) (string, error) {
	if p.env.DatabaseURL != "" {
		return p.env.DatabaseURL, nil
	}
	s, err := pglocal.Start(ctx, pglocal.Config{Dir: filepath.Join(p.flags.data, "pg")})
	if err != nil {
		return "", err
	}
	p.closes = append(p.closes, func() {
		if err := s.Close(); err != nil {
			p.log.Error("database not stopped", "error", err)
		}
	})
	go func() {
		<-s.Exited()
		p.fail(fault.New(fault.Unavailable, "the private database stopped"))
	}()
	return s.DSN(pglocal.Database), nil
}

func (p *platform) startBus() error {
	if p.env.NATSURL != "" {
		return nil
	}
	// Other programs of the same owner may join: the address and its token are
	// kept where only the owner can read them.
	token := rand.Text()
	s, err := natsembed.Start(natsembed.Config{
		Dir: filepath.Join(p.flags.data, "nats"), Listen: p.flags.bus, Token: token, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.server = s
	path := filepath.Join(p.flags.data, ops.BusFile)
	p.closes = append(p.closes, func() {
		s.Close()
		if err := os.Remove(path); err != nil {
			p.log.Warn("bus address not removed", "error", err)
		}
	})
	if err := os.WriteFile(path, []byte(s.URL()+"\n"), 0o600); err != nil {
		return fmt.Errorf("bus address: %w", err)
	}
	return nil
}

// connect gives a service a connection of its own, as separate programs have.
func (p *platform) connect(ctx context.Context, name string) (*bus.Bus, error) {
	cfg := bus.Config{URL: p.env.NATSURL, Name: name, Log: p.log.With("service", name)}
	if p.server != nil {
		cfg.InProcess, cfg.URL = p.server.InProcess(), p.server.URL()
	}
	b, err := bus.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p.closes = append(p.closes, b.Close)
	return b, nil
}

func (p *platform) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

// start runs a front door until drain reaches it.
func (p *platform) start(ctx context.Context, name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := stage{name: name, stop: stop, done: make(chan struct{})}
	p.stages = append(p.stages, s)
	go func() {
		defer close(s.done)
		if err := run(ctx); err != nil {
			p.fail(fmt.Errorf("%s: %w", name, err))
		} else if ctx.Err() == nil {
			p.fail(fault.New(fault.Internal, name+" ended by itself"))
		}
	}()
}

// drain stops the front doors in the reverse of their order: the edge while its
// workers still answer, billing after the last charge.
func (p *platform) drain() {
	for i := len(p.stages) - 1; i >= 0; i-- {
		p.log.Info("stopping", "part", p.stages[i].name)
		p.stages[i].stop()
		<-p.stages[i].done
	}
}

// serve starts everything, and gives the address and a model that answers.
func (p *platform) serve(ctx context.Context, dsn, key string) (addr, model string, err error) {
	models, rates, err := lists()
	if err != nil {
		return "", "", err
	}
	b, err := p.connect(ctx, "billing")
	if err != nil {
		return "", "", err
	}
	p.start(ctx, "billing", func(ctx context.Context) error {
		return billing.Run(ctx, billing.Config{DatabaseURL: dsn, SkipMigrations: true}, billing.Deps{Bus: b, Log: p.logger("billing")})
	})
	engines, err := p.engines(ctx, models)
	if err != nil {
		return "", "", err
	}
	if models, rates, err = priced(models, rates, engines); err != nil {
		return "", "", err
	}
	for i, e := range engines {
		name := fmt.Sprintf("%s-%d", e.kind, i+1)
		wb, err := p.connect(ctx, name)
		if err != nil {
			return "", "", err
		}
		p.start(ctx, name, func(ctx context.Context) error {
			cfg := p.flags.worker(e.url)
			cfg.Name, cfg.Models = name, e.models
			return worker.Run(ctx, cfg, worker.Deps{Bus: wb, Log: p.logger("worker")})
		})
	}
	eb, err := p.connect(ctx, "edge")
	if err != nil {
		return "", "", err
	}
	ready := make(chan net.Addr, 1)
	p.start(ctx, "edge", func(ctx context.Context) error {
		cfg, err := boot.Parse[edge.Config]("EDGE_")
		if err != nil {
			return err
		}
		cfg.Listen, cfg.Region = p.flags.listen, p.flags.region
		if err := p.retention(&cfg.Retain); err != nil {
			return err
		}
		return edge.Run(ctx, cfg, edge.Deps{
			Bus: eb, Log: p.logger("edge"), Catalog: models, Rates: rates, Ready: func(a net.Addr) { ready <- a },
		})
	})
	select {
	case a := <-ready:
		addr = reachable(a)
	case err := <-p.failed:
		return "", "", err
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	model, err = p.answers(ctx, addr, key)
	return addr, model, err
}

// logger is what a part of the platform logs to.
func (p *platform) logger(part string) *slog.Logger { return p.log.With("part", part) }

// reachable names an address that a client on this machine can use.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
}

// greet prints what a person needs, and the line that scripts wait for.
func (p *platform) greet(addr, key, model string) {
	fmt.Printf("\nEngy is up.\n\n  API      http://%s/v1\n  key      %s\n  data     %s\n\nTry it:\n\n", addr, key, p.flags.data)
	fmt.Printf("  curl -N http://%s/v1/chat/completions \\\n    -H 'Authorization: Bearer %s' \\\n"+
		"    -H 'Content-Type: application/json' \\\n"+
		"    -d '{\"model\":\"%s\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'\n\n", addr, key, model)
	fmt.Printf("ready http://%s\n", addr)
}
