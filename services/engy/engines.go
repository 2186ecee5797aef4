package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/sim"
	"github.com/engy-ai/engy/services/worker"
)

// engineAt is an engine that a worker will drive.
type engineAt struct {
	kind, url string
	// models are WORKER_MODELS entries; served are the ids that come of them.
	models []string
	served []worker.Served
}

// usualPorts are where engines listen when nobody says otherwise: Ollama, vLLM,
// SGLang, llama.cpp.
func usualPorts() []int { return []int{11434, 8000, 30000, 8081} }

const (
	lookWait   = 500 * time.Millisecond
	answerWait = 60 * time.Second
	answerStep = 25 * time.Millisecond
	// localWindow stands for the window of an engine that does not tell, and
	// localOutput bounds its output, in tokens.
	localWindow = 8192
	localOutput = 4096
)

// engines finds what there is to serve: what the flags name, else what runs on
// this machine's usual ports, else the simulator.
func (p *platform) engines(ctx context.Context, models catalog.Catalog) ([]engineAt, error) {
	var found []engineAt
	for _, address := range p.flags.engines {
		address = strings.TrimSuffix(address, "/")
		kind, served, err := worker.Look(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("engine %s: %w", shown(address), err)
		}
		e := engineAt{kind: kind, url: address}
		e.models, e.served = p.named(p.flags.models, served)
		switch {
		case len(served) == 0:
			return nil, fault.New(fault.Invalid, "engine "+shown(address)+" lists no models")
		case len(e.served) == 0 && len(p.flags.models) > 0:
			return nil, fault.New(fault.Invalid, "engine "+shown(address)+" lists none of the models of --model")
		case len(e.served) == 0:
			return nil, fault.New(fault.Invalid, "engine "+shown(address)+" lists no model that can have its own name here; name it with --model ID=NAME")
		}
		found = append(found, e)
	}
	if len(found) > 0 {
		return found, nil
	}
	for _, port := range usualPorts() {
		address := fmt.Sprintf("http://127.0.0.1:%d", port)
		look, cancel := context.WithTimeout(ctx, lookWait)
		kind, served, err := worker.Look(look, address)
		cancel()
		if err != nil {
			continue
		}
		e := engineAt{kind: kind, url: address}
		if e.models, e.served = p.named(nil, served); len(e.served) == 0 {
			continue
		}
		p.log.Info("engine found", "engine", kind, "url", address, "models", len(e.served))
		found = append(found, e)
	}
	if len(found) > 0 {
		return found, nil
	}
	return p.simulator(ctx, models)
}

// shown is an engine's address without the password that it may hold.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "at an address that cannot be read"
	}
	u.User = nil
	return u.String()
}

// named applies --model to what an engine lists. Without it each model is served under
// the engine's own name for it, less whose it is or where it lies: callers may say
// that or not.
func (p *platform) named(flags []string, served []worker.Served) (models []string, out []worker.Served) {
	taken := map[string]bool{}
	add := func(id string, s worker.Served) {
		if !catalog.IsName(id) || taken[id] {
			p.log.Warn("model not served: it cannot have its own name here; name it with --model ID=NAME", "name", s.Name)
			return
		}
		taken[id] = true
		entry := id
		if id != s.Name {
			entry = id + "=" + s.Name
		}
		models = append(models, entry)
		out = append(out, worker.Served{Name: id, Window: s.Window})
	}
	if len(flags) == 0 {
		for _, s := range served {
			add(path.Base(s.Name), s)
		}
		return models, out
	}
	for _, f := range flags {
		id, name, ok := strings.Cut(f, "=")
		if !ok {
			id, name = path.Base(f), f
		}
		for _, s := range served {
			if s.Name == name {
				add(id, s)
			}
		}
	}
	return models, out
}

// simulator starts the simulator on a free loopback port, serving the
// catalogue's text models. It thinks unless it is told not to, as they do.
func (p *platform) simulator(ctx context.Context, models catalog.Catalog) ([]engineAt, error) {
	cfg := sim.Config{Listen: "127.0.0.1:0", Drain: 10 * time.Second, Think: true}
	e := engineAt{kind: "simulator"}
	for _, m := range models.Models() {
		if m.Kind == catalog.Text {
			media := slices.DeleteFunc(slices.Clone(m.InputModalities), func(kind string) bool { return kind == "text" })
			cfg.Models = append(cfg.Models, sim.Model{ID: m.ID, Window: int(m.Window), Media: media})
			e.models = append(e.models, m.ID)
			e.served = append(e.served, worker.Served{Name: m.ID, Window: m.Window})
		}
	}
	ready := make(chan string, 1)
	p.start(ctx, "simulator", func(ctx context.Context) error {
		return sim.Run(ctx, cfg, sim.Deps{Log: p.logger("simulator"), Ready: func(addr string) { ready <- addr }})
	})
	select {
	case addr := <-ready:
		e.url = "http://" + addr
	case err := <-p.failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.log.Warn("no engine found on this machine: the SIMULATOR answers, and says so", "url", e.url)
	return []engineAt{e}, nil
}

// priced adds rows for models of local engines that the catalogue does not
// know: they cost nothing, and say so.
func priced(models catalog.Catalog, rates pricing.List, engines []engineAt) (catalog.Catalog, pricing.List, error) {
	var err error
	for _, e := range engines {
		for _, s := range e.served {
			if _, ok := models.Find(s.Name); ok {
				continue
			}
			window := s.Window
			if window <= 0 {
				window = localWindow
			}
			row := catalog.Model{
				ID: s.Name, Created: time.Now().Unix(), OwnedBy: e.kind, Kind: catalog.Text, Family: catalog.AnyFamily,
				InputModalities: []string{"text"}, OutputModalities: []string{"text"},
				Window: window, MaxOutput: min(localOutput, window/2),
			}
			if models, err = models.With(row); err != nil {
				return models, rates, err
			}
			free := pricing.Row{Model: s.Name, Unit: pricing.Token, Rates: pricing.Rates{Version: rates.Version()}}
			if rates, err = rates.With(free); err != nil {
				return models, rates, err
			}
		}
	}
	return models, rates, nil
}

// answers waits until a request would be served: a model is listed, and the key
// is known. It gives a model for the greeting.
func (p *platform) answers(ctx context.Context, addr, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	tick := time.NewTicker(answerStep)
	defer tick.Stop()
	for {
		if ids := listed(ctx, addr); len(ids) > 0 && ready(ctx, addr, key) {
			if slices.Contains(ids, "glm-5.2") {
				return "glm-5.2", nil
			}
			return ids[0], nil
		}
		select {
		case <-tick.C:
		case err := <-p.failed:
			return "", err
		case <-ctx.Done():
			return "", fault.Wrap(fault.Unavailable, "no model is served yet", ctx.Err())
		}
	}
}

func listed(ctx context.Context, addr string) []string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/models", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.NewDecoder(resp.Body).Decode(&list) != nil {
		return nil
	}
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

// ready tells whether the edge has all that it needs, and has heard of the key.
func ready(ctx context.Context, addr, key string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
