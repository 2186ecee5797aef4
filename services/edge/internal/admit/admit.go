// Package admit decides whether a request may run, and turns it into a ticket,
// a body and a hold. It is pure: what it knows of the fleet is handed in. Keys
// are checked before it, money after it. To add a check, add a step; its place
// in the order decides which error a caller sees first.
package admit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/dialect"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

const (
	// CharsPerToken and BaseTokens make the estimate of a prompt: characters
	// divided by the first, plus the second.
	CharsPerToken = 4
	BaseTokens    = 16
	// MediaTokens is what each media part adds to the hold.
	MediaTokens = 1024
	// MediaMax bounds the images and sounds of a request, and MediaBytesMax their
	// bytes together, decoded.
	MediaMax      = 16
	MediaBytesMax = 20 << 20
	// OutputMin is the least output that a thin balance is stretched to.
	OutputMin = 256
)

// Live is what the fleet offers for a model now.
type Live struct {
	Modalities []string
	Features   []string
	// Window gives the largest window of the workers that meet a need, whatever its
	// Window is; 0 when one of them does not tell its own, false when there is none.
	Window func(Need) (int64, bool)
	// Place picks a region for a need, and a worker of it when not just any may have
	// the ticket.
	Place func(Need) (region, worker string, ok bool)
}

// Need is what a request asks of a worker, on every attempt.
type Need struct {
	Class bus.Class
	// Media lists the modalities beside text that the request holds.
	Media []string
	// Features lists what the engine must be able to do.
	Features []string
	// Window is how many tokens the engine's window should hold.
	Window int64
	// Allowed tells which regions may serve.
	Allowed func(region string) bool
}

// Config is what admission works with.
type Config struct {
	Catalog catalog.Catalog
	Rates   pricing.List
	// Live tells what the fleet offers for a model; false when nobody serves it.
	Live func(model string) (Live, bool)
	// Away tells of a model that nobody serves whether somebody did a moment ago, and
	// was lost. Nil means no.
	Away func(model string) bool
	// Deadline is how long a request may take in all; HoldLease is how long its
	// hold lives unless it is renewed.
	Deadline  time.Duration
	HoldLease time.Duration
}

// Admission is a request that may run.
type Admission struct {
	Request *llm.Request
	Model   catalog.Model
	Rates   pricing.Rates
	Ticket  bus.Ticket
	Hold    bus.Hold
	Need    Need
}

// BareModel strips what callers may put around a model's id: a vendor in front
// and the context hint of some clients behind.
func BareModel(spelling string) string {
	if i := strings.LastIndexByte(spelling, '/'); i >= 0 {
		// Only one leading segment is a vendor; more is somebody's path.
		if strings.IndexByte(spelling, '/') != i {
			return spelling
		}
		spelling = spelling[i+1:]
	}
	return strings.TrimSuffix(spelling, "[1m]")
}

// Decide admits a request or says why not. The request's Model and MaxTokens
// become what will be used.
func (c Config) Decide(req *llm.Request, p bus.Principal, job string, now time.Time) (*Admission, error) {
	a := &Admission{Request: req}
	live, err := c.model(a, p)
	if err != nil {
		return nil, err
	}
	if err := c.media(a, live); err != nil {
		return nil, err
	}
	if err := a.features(live); err != nil {
		return nil, err
	}
	if err := a.scored(); err != nil {
		return nil, err
	}
	if err := a.policy(); err != nil {
		return nil, err
	}
	if req.Raw == nil {
		if err := dialect.Of(a.Model.Family).Say(req); err != nil {
			return nil, err
		}
	}
	tokens, set, err := c.window(a)
	if err != nil {
		return nil, err
	}
	region, worker, err := a.place(live, set)
	if err != nil {
		return nil, err
	}
	if err := a.price(tokens, set); err != nil {
		return nil, err
	}
	a.Ticket = bus.Ticket{
		Job: job, Region: region, Model: a.Model.ID, Worker: worker,
		Class: a.Need.Class, PromptTokens: tokens, Affinity: affinity(req, p.Account, tokens),
		Deadline: now.Add(c.Deadline),
	}
	a.Hold.Job, a.Hold.Account, a.Hold.Key = job, p.Account, p.Key
	a.Hold.Model, a.Hold.Rates = a.Model.ID, a.Rates
	a.Hold.Expires = now.Add(c.HoldLease)
	return a, nil
}

func (c Config) model(a *Admission, p bus.Principal) (Live, error) {
	req := a.Request
	notFound := fault.New(fault.NotFound, fmt.Sprintf("model '%s' not found", Printable(req.Spelling)))
	row, ok := c.Catalog.Find(BareModel(req.Spelling))
	if !ok || row.Kind != catalog.Text {
		return Live{}, notFound
	}
	rates, ok := c.Rates.Of(row.ID)
	if !ok {
		return Live{}, notFound
	}
	if len(p.Models) > 0 && !slices.Contains(p.Models, row.ID) {
		return Live{}, fault.New(fault.Forbidden, "this key may not use model '"+row.ID+"'")
	}
	live, ok := c.Live(row.ID)
	if !ok {
		if c.Away != nil && c.Away(row.ID) {
			return Live{}, fault.New(fault.Busy, "the workers of model '"+row.ID+"' are away for a moment; retry later")
		}
		return Live{}, notFound
	}
	req.Model, a.Model, a.Rates = row.ID, row, rates
	return live, nil
}

// Printable keeps what a caller made up short and in one line.
func Printable(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// media checks images and sounds. What no live worker takes is told first: no
// smaller request would do.
func (c Config) media(a *Admission, live Live) error {
	parts, size := 0, 0
	for i := range a.Request.Items {
		it := &a.Request.Items[i]
		if it.Role == llm.Assistant {
			// Models are shown what users and tools show, not what they showed.
			it.Parts = slices.DeleteFunc(it.Parts, func(p llm.Part) bool { return p.Media != nil })
		}
		for _, p := range it.Parts {
			if p.Media == nil {
				continue
			}
			parts++
			size += len(p.Media.Data)/4*3 - bytes.Count(p.Media.Data[max(0, len(p.Media.Data)-2):], []byte("="))
			if slices.Contains(a.Need.Media, p.Media.Kind) {
				continue
			}
			if !slices.Contains(live.Modalities, p.Media.Kind) {
				return fault.At("messages", "model '"+a.Model.ID+"' does not take "+p.Media.Kind+" input")
			}
			a.Need.Media = append(a.Need.Media, p.Media.Kind)
		}
	}
	if parts > MediaMax {
		return fault.New(fault.TooLarge, fmt.Sprintf("the request holds %d images and sounds, more than the limit of %d", parts, MediaMax))
	}
	if size > MediaBytesMax {
		return fault.New(fault.TooLarge, fmt.Sprintf("the images and sounds hold %d bytes, more than the limit of %d", size, MediaBytesMax))
	}
	return nil
}

// policy reads where the request may run.
func (a *Admission) policy() error {
	pol := a.Request.Policy
	for _, list := range []struct {
		field   string
		regions []string
	}{{"provider.region_only", pol.RegionOnly}, {"provider.region_exclude", pol.RegionExclude}} {
		for _, r := range list.regions {
			if !bus.KnownRegion(r) {
				return fault.At(list.field, list.field+" holds an unknown region; known are "+strings.Join(bus.Regions(), ", "))
			}
		}
	}
	a.Need.Class, a.Need.Allowed = bus.ClassOf(pol.ZDR, pol.Proof), Allowed(pol)
	return nil
}

// place finds who may serve. Of the workers that can, those are meant whose window
// holds the prompt and the output asked for, or the largest if none does: an
// estimate of a prompt is no reason to refuse it, its tokens are.
func (a *Admission) place(live Live, set bool) (region, worker string, err error) {
	largest, ok := live.Window(a.Need)
	if ok {
		if a.Need.Window = a.roomy(); set {
			a.Need.Window += a.Request.MaxTokens
		}
		if largest > 0 {
			a.Need.Window = min(a.Need.Window, largest)
		}
		if n := a.Request.PromptTokens; largest > 0 && n >= largest && exact(a.Request) {
			return "", "", fault.TooLong(n, largest)
		}
		region, worker, ok = live.Place(a.Need)
	}
	if !ok {
		return "", "", fault.New(fault.NoWorker, "no worker of model '"+a.Model.ID+"' meets the provider requirements")
	}
	return region, worker, nil
}

// Allowed tells which regions a policy allows.
func Allowed(pol llm.Policy) func(region string) bool {
	return func(region string) bool {
		return (len(pol.RegionOnly) == 0 || slices.Contains(pol.RegionOnly, region)) &&
			!slices.Contains(pol.RegionExclude, region)
	}
}

// window checks the prompt against the model's window and settles the output
// limit. It gives the estimate, and whether the caller set a limit.
func (c Config) window(a *Admission) (tokens int64, set bool, err error) {
	req, row := a.Request, a.Model
	chars, media := req.Chars()
	tokens = int64(chars)/CharsPerToken + BaseTokens
	if exact(req) {
		tokens = req.Raw.IDs.Len()
	}
	req.PromptTokens = tokens
	room := row.Window - tokens
	if room < 1 {
		return 0, false, fault.TooLong(tokens, row.Window)
	}
	set = req.MaxTokens > 0
	if !set {
		req.MaxTokens = row.MaxOutput
	}
	req.MaxTokens = min(req.MaxTokens, row.MaxOutput, room)
	return tokens + int64(media)*MediaTokens, set, nil
}

func (a *Admission) price(tokens int64, set bool) error {
	full, err := pricing.Ceiling(a.Rates, tokens, a.Request.MaxTokens)
	if err != nil {
		return fmt.Errorf("price of %s: %w", a.Model.ID, err)
	}
	floor := full
	if !set {
		if floor, err = pricing.Ceiling(a.Rates, tokens, min(OutputMin, a.Request.MaxTokens)); err != nil {
			return fmt.Errorf("price of %s: %w", a.Model.ID, err)
		}
	}
	if !a.Rates.Free() {
		// What costs anything at all is not for who has nothing.
		full, floor = max(1, full), max(1, floor)
	}
	a.Hold.Micro, a.Hold.FloorMicro = full, floor
	return nil
}

// Stretch lowers the output limit to what a smaller hold covers.
func (a *Admission) Stretch(held money.Micro) {
	prompt, err := pricing.Ceiling(a.Rates, a.Ticket.PromptTokens, 0)
	if err != nil || a.Rates.Output == 0 || held < prompt {
		return
	}
	// What rounding may add is left out of what is spent.
	covered := int64(held-prompt-1) * 1_000_000 / int64(a.Rates.Output)
	a.Request.MaxTokens = max(1, min(a.Request.MaxTokens, covered))
}
