// Package worker is the GPU side of the platform: it probes one inference
// engine, joins the fleet with what the engine serves, and runs jobs on it. How
// an engine is spoken to is a folder under internal/engine; the loop of a job
// is internal/runner. It keeps no state and touches no disk.
package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/worker/internal/engine"
	"github.com/engy-ai/engy/services/worker/internal/runner"
)

// Deps is what a worker shares with the process that runs it.
type Deps struct {
	Bus *bus.Bus
	Log *slog.Logger
	// Joined is called whenever the worker joins the fleet; it may be nil.
	Joined func(models []string)
}

// Run serves until ctx ends, then drains. While the engine is down the worker
// is not in the fleet.
func Run(ctx context.Context, cfg Config, d Deps) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	waiting := false
	for ctx.Err() == nil {
		eng, facts, err := probe(ctx, cfg)
		models := serves(cfg, facts)
		if err != nil || len(models) == 0 {
			if eng != nil {
				eng.Close()
			}
			if !waiting {
				d.Log.Warn("waiting for the engine", "engine", cfg.Engine, "error", err)
				waiting = true
			}
			pause(ctx)
			continue
		}
		waiting = false
		err = join(ctx, cfg, d, eng, facts.Kind, models)
		eng.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context) {
	t := time.NewTimer(ProbeEvery)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func probe(ctx context.Context, cfg Config) (engine.Engine, engine.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeWait)
	defer cancel()
	eng, err := engine.Open(engine.Config{URL: cfg.Engine, Idle: cfg.Idle})
	if err != nil {
		return nil, engine.Facts{}, err
	}
	facts, err := eng.Facts(ctx)
	if err != nil {
		eng.Close()
		return nil, facts, err
	}
	return eng, facts, nil
}

// serves joins what is configured with what the engine lists.
func serves(cfg Config, facts engine.Facts) []runner.Model {
	var models []runner.Model
	add := func(id string, m engine.Model) {
		takes := slices.Clone(m.Modalities)
		for _, kind := range cfg.Modalities {
			if !slices.Contains(takes, kind) {
				takes = append(takes, kind)
			}
		}
		models = append(models, runner.Model{
			ID: id, Name: m.Name, Window: m.Window, Modalities: takes, Features: m.Features,
		})
	}
	for _, m := range facts.Models {
		if len(cfg.Models) == 0 {
			add(m.Name, m)
		}
	}
	for _, entry := range cfg.Models {
		id, name, named := strings.Cut(entry, "=")
		if !named {
			name = id
		}
		i := slices.IndexFunc(facts.Models, func(m engine.Model) bool { return m.Name == name })
		if i >= 0 {
			add(id, facts.Models[i])
		}
	}
	return models
}

// join serves under a new id until ctx ends or the engine is lost.
func join(ctx context.Context, cfg Config, d Deps, eng engine.Engine, kind string, models []runner.Model) error {
	id := bus.NewID()
	name := cfg.Name
	if name == "" {
		name = id
	}
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	d.Log.Info("joining the fleet", "worker", id, "name", name, "engine", kind, "models", strings.Join(ids, ","))
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := watch(ctx, eng, cfg.LostAfter); err != nil {
			d.Log.Warn("the engine is lost", "engine", cfg.Engine, "error", err)
			leave(err)
		}
	}()
	if d.Joined != nil {
		d.Joined(ids)
	}
	err := runner.New(runner.Config{
		Worker: id, Name: name, Region: cfg.Region, Classes: bus.Covers(cfg.ZDR, cfg.Proof),
		Kind: kind, Models: models, Slots: cfg.Slots, Grace: cfg.Grace,
	}, d.Bus, eng, d.Log).Run(ctx)
	leave(nil)
	<-watched
	return err
}

// watch looks after the engine, and tells what it missed when the engine was lost
// before ctx ended. One that may only be busy has a time to say something.
func watch(ctx context.Context, eng engine.Engine, lostAfter time.Duration) error {
	tick := time.NewTicker(ProbeEvery)
	defer tick.Stop()
	misses, well := 0, time.Now()
	for {
		// A probe that was waited for in vain is followed by the next without a pause.
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		look, cancel := context.WithTimeout(ctx, ProbeWait)
		err := eng.Health(look)
		cancel()
		if misses++; err == nil {
			misses, well = 0, time.Now()
		}
		busy := fault.Is(err, fault.Timeout) && time.Since(well) < lostAfter
		if misses >= ProbeMisses && !busy && ctx.Err() == nil {
			return err
		}
	}
}

// Served is a model that an engine lists.
type Served struct {
	Name   string
	Window int64
}

// Look asks an engine what it serves, without joining anything.
func Look(ctx context.Context, url string) (kind string, models []Served, err error) {
	eng, facts, err := probe(ctx, Config{Engine: url, Idle: ProbeWait})
	if err != nil {
		return "", nil, err
	}
	eng.Close()
	for _, m := range facts.Models {
		models = append(models, Served{Name: m.Name, Window: m.Window})
	}
	return facts.Kind, models, nil
}
