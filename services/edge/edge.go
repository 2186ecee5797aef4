// Package edge is the HTTP side of the platform: it checks keys, turns a wire
// request into a job, has a worker run it, turns what comes back into the
// same wire protocol, and records what was used. It keeps no state that another
// edge cannot rebuild. Money is billing's, engines are the worker's; a wire
// protocol is a folder under internal/codec.
package edge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/admit"
	"github.com/engy-ai/engy/services/edge/internal/auth"
	"github.com/engy-ai/engy/services/edge/internal/codec"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/count"
	"github.com/engy-ai/engy/services/edge/internal/fleet"
	"github.com/engy-ai/engy/services/edge/internal/httpapi"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// Deps is what an edge shares with the process that runs it.
type Deps struct {
	Bus     *bus.Bus
	Log     *slog.Logger
	Catalog catalog.Catalog
	Rates   pricing.List
	// Ready is called with the address once requests are taken; it may be nil.
	Ready func(addr net.Addr)
}

type edge struct {
	cfg       Config
	bus       *bus.Bus
	log       *slog.Logger
	catalog   catalog.Catalog
	rates     pricing.List
	keys      *auth.Keys
	fleet     *fleet.Fleet
	desk      *offer.Desk
	admission admit.Config
	counts    count.Estimator
	// asking has a place for each prompt that a worker counts now.
	asking chan struct{}
	keeper *keeper // nil keeps nothing
	memory memory
	// settling knows whose answers have just ended. Their holds are still open: billing
	// books in batches. Who asks for the next answer at once, as agents do, must not
	// hear that there is no money, or that the answer before is still under way.
	settling recent
	// refused knows whose holds were just refused.
	refused recent
	// exchanges counts the work that outlives a handler.
	exchanges sync.WaitGroup
	billing   atomic.Bool // billing has answered lately
	lease     lease
}

// Run serves until ctx ends, then drains: readiness ends at once, streams may
// go on for the grace, and what is left gets an error of its dialect.
func Run(ctx context.Context, cfg Config, d Deps) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	e := &edge{cfg: cfg, bus: d.Bus, log: d.Log, catalog: d.Catalog, rates: d.Rates, keys: auth.New(), asking: make(chan struct{}, CountsMax)}
	e.lease.life = cfg.HoldLease
	e.fleet = fleet.New(time.Now, func(worker string) (int, bool) { return e.desk.Jobs(worker) })
	e.desk = offer.New(bus.NewID(), d.Bus, offer.Config{
		ClaimWait: cfg.ClaimWait, Again: OfferAgain, HoldAfter: HoldAfter, Quiet: WorkerQuiet, ProbeWait: ProbeWait,
		Forgotten: AttemptForgotten, Unheard: AttemptUnheard,
		Attempts: AttemptsMax, QueueBytes: ClientQueueBytes, AnswerBytes: AnswerBytesMax,
	}, e.fleet, d.Log)
	e.admission = admit.Config{
		Catalog: d.Catalog, Rates: d.Rates, Live: e.live, Away: e.fleet.Bereft, Deadline: cfg.Deadline, HoldLease: cfg.HoldLease,
	}

	var err error
	if e.keeper, err = newKeeper(ctx, cfg.Retain, d.Log); err != nil {
		return err
	}
	defer e.keeper.close()
	defer e.memory.close()

	// The bus side outlives the HTTP side: jobs under way still need it.
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, back := errgroup.WithContext(back)
	var ready sync.WaitGroup
	ready.Add(4)
	watch := func(f func(ready func()) error) {
		once := sync.OnceFunc(ready.Done)
		group.Go(func() error {
			defer once()
			return f(once)
		})
	}
	watch(func(ok func()) error { return e.bus.WatchPrincipals(back, ok, e.keys.Change) })
	watch(func(ok func()) error { return e.bus.WatchFunds(back, ok, e.keys.Funds) })
	watch(func(ok func()) error { return e.bus.WatchFleet(back, ok, e.fleet.Beat, e.fleet.Left) })
	watch(func(ok func()) error { return e.bus.Own(back, e.desk.Name(), e.desk, ok) })
	group.Go(func() error { return e.desk.Watch(back) })
	group.Go(func() error { return e.prune(back) })
	group.Go(func() error { return e.renew(back) })
	group.Go(func() error { return e.keeper.expire(back) })
	begun := make(chan struct{})
	go func() { ready.Wait(); close(begun) }()
	select {
	case <-begun:
	case <-ctx.Done(): // the bus may not answer
		stop()
		return group.Wait()
	}

	api, err := httpapi.New(httpapi.Config{
		Listen: cfg.Listen, BodyBytesMax: BodyBytesMax, LargeBytesMax: cmp.Or(cfg.LargeBytes, LargeBytesUsual), HeaderBytesMax: HeaderBytesMax,
		KeepAlive: cfg.KeepAlive, WriteWait: WriteWait, Grace: cfg.Grace, RequestsMax: RequestsMax,
		Origins: cfg.Origins, Proxies: cfg.Proxies,
	}, httpapi.Deps{
		Dropped: func(bytes int) { e.memory.take(bytes); e.memory.give(bytes) },
		Codecs:  codec.Text(), Speaker: codec.Speaker, Check: e.keys.Check, Open: e.open,
		Models: e.models, Model: e.model, Count: e.count, Healthy: e.ready, Log: d.Log, Ready: d.Ready,
		NewID: func() string { return bus.NewJob(e.desk.Name()) },
	})
	if err != nil {
		stop()
		return errors.Join(err, group.Wait())
	}
	group.Go(func() error {
		defer stop()
		// When the bus side ends first, there is nothing left to serve with.
		front, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(back, cancel)()
		err := api.Serve(front)
		e.exchanges.Wait()
		return err
	})
	return group.Wait()
}

func (e *edge) prune(ctx context.Context) error {
	tick := time.NewTicker(bus.HeartbeatEvery)
	defer tick.Stop()
	var deaf time.Time // when the bus was last out of hearing
	for {
		select {
		case <-tick.C:
			if !e.bus.Connected() || !e.bus.Answers(ctx, bus.HeartbeatEvery/2) {
				deaf = time.Now()
			}
			// Who was not heard meanwhile may well be alive.
			if time.Since(deaf) > bus.HeartbeatLife && time.Since(e.bus.Reconnected()) > bus.HeartbeatLife {
				e.fleet.Prune()
			}
			e.settling.prune(SettlingFor)
			e.refused.prune(RefusedFor)
		case <-ctx.Done():
			return nil
		}
	}
}

// ready tells whether a request would be served.
func (e *edge) ready() bool { return e.bus.Connected() && e.billing.Load() }

func (e *edge) live(model string) (admit.Live, bool) {
	l, ok := e.fleet.Model(model)
	return admit.Live{
		Modalities: l.Modalities, Features: l.Features,
		Window: func(n admit.Need) (int64, bool) { return e.fleet.Window(need(model, n)) },
		Place: func(n admit.Need) (region, worker string, ok bool) {
			return e.fleet.Place(need(model, n), e.cfg.Region)
		},
	}, ok
}

// retry is when a caller whom all workers were too busy for should come again: later,
// the more jobs wait for each slot. The rim bounds it.
func (e *edge) retry(n fleet.Need) time.Duration {
	return time.Duration(1+e.desk.Waiting(n.Model)/max(1, e.fleet.Slots(n))) * time.Second
}

func need(model string, n admit.Need) fleet.Need {
	return fleet.Need{
		Model: model, Class: n.Class, Modalities: n.Media, Features: n.Features, Window: n.Window, Allowed: n.Allowed,
	}
}

// models lists what is served now: catalogue rows with a price and at least
// one live worker.
func (e *edge) models() []openai.Model {
	var rows []openai.Model
	for _, m := range e.catalog.Models() {
		rates, priced := e.rates.Of(m.ID)
		live, served := e.fleet.Model(m.ID)
		if !priced || !served || m.Kind != catalog.Text {
			continue
		}
		rows = append(rows, openai.Model{
			ID: m.ID, Object: "model", Created: m.Created, OwnedBy: m.OwnedBy,
			InputModalities: ordered(live.Modalities), OutputModalities: m.OutputModalities,
			ContextLength: m.Window, MaxModelLen: m.Window, MaxOutputTokens: m.MaxOutput,
			Regions: live.Regions, Features: live.Features,
			Pricing: openai.Pricing{
				Prompt: rates.Input.PerToken(), Completion: rates.Output.PerToken(),
				Request: "0", Image: "0", InputCacheRead: rates.CachedInput.PerToken(),
			},
		})
	}
	return rows
}

// model finds a model that is served now.
func (e *edge) model(spelling string) (openai.Model, bool) {
	id := admit.BareModel(spelling)
	for _, m := range e.models() {
		if m.ID == id {
			return m, true
		}
	}
	return openai.Model{}, false
}

// count tells how many tokens a prompt has. The model must be one that is priced;
// nobody has to serve it now.
func (e *edge) count(ctx context.Context, req *llm.Request) (int64, error) {
	m, ok := e.catalog.Find(admit.BareModel(req.Spelling))
	if _, priced := e.rates.Of(m.ID); !ok || !priced || m.Kind != catalog.Text {
		return 0, fault.New(fault.NotFound, "model '"+admit.Printable(req.Spelling)+"' not found")
	}
	return e.counts.Count(ctx, m.ID, req, e.exact), nil
}

// exact has a worker count a prompt: one that may see it, and that counts for
// nobody else of this edge just now.
func (e *edge) exact(ctx context.Context, model string, req *llm.Request) (int64, error) {
	pol := req.Policy
	worker, ok := e.fleet.Tokenizer(fleet.Need{
		Model: model, Class: bus.ClassOf(pol.ZDR, pol.Proof), Allowed: admit.Allowed(pol),
	}, e.cfg.Region)
	if chars, _ := req.Chars(); !ok || chars > bus.PromptBytesMax {
		return 0, fault.New(fault.NoWorker, "nobody counts this prompt")
	}
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	default:
		return 0, fault.New(fault.Busy, "too many prompts are being counted")
	}
	prompt := *req
	prompt.Model = model
	raw, err := bus.Marshal(&prompt)
	if err != nil {
		return 0, err
	}
	return e.bus.CountTokens(ctx, worker, raw)
}

// ordered lists modalities in the catalogue's order.
func ordered(have []string) []string {
	var out []string
	for _, m := range catalog.Modalities() {
		for _, h := range have {
			if h == m {
				out = append(out, m)
			}
		}
	}
	return out
}
