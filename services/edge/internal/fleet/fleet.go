// Package fleet is the edge's live picture of the workers: who is there, for
// which model, in which region, with how many free slots. It is fed with
// heartbeats and decides where a ticket may go. It asks nobody and stores
// nothing; catalogue rows and prices do not live here.
package fleet

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
)

// Fleet is safe for concurrent use. Use New.
type Fleet struct {
	now    func() time.Time
	own    func(worker string) (jobs int, ok bool)
	mu     sync.RWMutex
	models map[string]map[string]*member
	ended  map[string]ending
	// bereft holds when the last worker of a model was found dead.
	bereft map[string]time.Time
}

// ending is when a worker was found dead, and its newest heartbeat by then.
type ending struct{ at, last time.Time }

type member struct {
	bus.Heartbeat
	seen time.Time
	// others is how many slots jobs of other edges have, as far as it is known.
	others int
	full   bool // it has said so, or does not answer
}

// free counts the slots that are free by its own word.
func (m *member) free() int {
	if m.full {
		return 0
	}
	return max(0, m.Slots-m.InFlight)
}

// New gives an empty picture. Own tells how many jobs of this edge a worker has,
// false for one that should get no more.
func New(now func() time.Time, own func(worker string) (jobs int, ok bool)) *Fleet {
	return &Fleet{now: now, own: own, models: map[string]map[string]*member{}, ended: map[string]ending{}, bereft: map[string]time.Time{}}
}

// Beat takes a heartbeat. Those of a worker that was found dead are ignored, for
// they may have been under way; one that was made well after its end proves that
// it was only out of reach.
func (f *Fleet) Beat(h bus.Heartbeat) {
	own, _ := f.own(h.Worker)
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, dead := f.ended[h.Worker]; dead {
		if f.now().Sub(e.at) < revival || !h.Time.After(e.last) {
			return
		}
		delete(f.ended, h.Worker)
	}
	m := f.models[h.Model]
	if m == nil {
		m = map[string]*member{}
		f.models[h.Model] = m
	}
	m[h.Worker] = &member{Heartbeat: h, seen: f.now(), others: max(0, h.InFlight-own)}
}

// Full notes that a worker has no slot, or is not there, until it says otherwise.
func (f *Fleet) Full(worker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, members := range f.models {
		if m := members[worker]; m != nil {
			m.full = true
		}
	}
}

// Left takes a worker's model out.
func (f *Fleet) Left(worker, model string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(worker, model)
}

func (f *Fleet) remove(worker, model string) {
	delete(f.models[model], worker)
	if len(f.models[model]) == 0 {
		delete(f.models, model)
	}
}

// End takes a worker out for good: its process is dead. It tells where that was, if
// it is known.
func (f *Fleet) End(worker string) (region string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := ending{at: f.now(), last: f.ended[worker].last}
	for model, members := range f.models {
		if m := members[worker]; m != nil {
			region, known = m.Region, true
			if m.Time.After(e.last) {
				e.last = m.Time
			}
		}
		had := members[worker] != nil
		f.remove(worker, model)
		if had && f.models[model] == nil {
			f.bereft[model] = f.now()
		}
	}
	f.ended[worker] = e
	return region, known
}

// Ended tells whether a worker is known to be dead.
func (f *Fleet) Ended(worker string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, dead := f.ended[worker]
	return dead
}

// Bereft tells whether the last worker of a model has died so lately that another is
// likely to be on its way.
func (f *Fleet) Bereft(model string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	at, lost := f.bereft[model]
	return lost && f.now().Sub(at) < bereftFor && f.models[model] == nil
}

// Prune forgets workers that have been silent for a heartbeat's life.
func (f *Fleet) Prune() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	for model, members := range f.models {
		for worker, m := range members {
			if now.Sub(m.seen) > bus.HeartbeatLife {
				f.remove(worker, model)
			}
		}
	}
	for model, at := range f.bereft {
		if now.Sub(at) > bereftFor {
			delete(f.bereft, model)
		}
	}
	for worker, e := range f.ended {
		if now.Sub(e.at) > endedLife {
			delete(f.ended, worker)
		}
	}
}

// Live is what the live workers of one model offer together.
type Live struct {
	Regions    []string
	Modalities []string
	Features   []string
}

// Model tells what is offered for a model; false when nobody serves it.
func (f *Fleet) Model(model string) (Live, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var l Live
	for _, m := range f.models[model] {
		l.Regions = append(l.Regions, m.Region)
		l.Modalities = append(l.Modalities, m.Modalities...)
		l.Features = append(l.Features, m.Features...)
	}
	for _, list := range []*[]string{&l.Regions, &l.Modalities, &l.Features} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return l, len(l.Regions) > 0
}

// Need is what a ticket asks of a worker.
type Need struct {
	Model string
	Class bus.Class
	// Modalities beside text that the request holds.
	Modalities []string
	// Features that the request needs.
	Features []string
	// Window is how many tokens the engine's window must hold. One that is not known
	// may hold any number.
	Window int64
	// Allowed tells which regions may serve; nil means all.
	Allowed func(region string) bool
}

// met tells whether a worker may have the ticket and can do what it asks for.
func (n Need) met(m *member) bool { return n.admits(m) && n.able(m) && n.holds(m) }

func (n Need) admits(m *member) bool {
	return slices.Contains(m.Classes, n.Class) && (n.Allowed == nil || n.Allowed(m.Region))
}

func (n Need) able(m *member) bool {
	return containsAll(m.Modalities, n.Modalities) && containsAll(m.Features, n.Features)
}

func (n Need) holds(m *member) bool { return m.Window == 0 || m.Window >= n.Window }

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

// Window gives the largest window among the workers that meet the rest of a need,
// 0 when one of them does not tell its own. False when there is no such worker.
func (f *Fleet) Window(n Need) (largest int64, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, m := range f.models[n.Model] {
		switch {
		case !n.admits(m) || !n.able(m):
		case m.Window == 0:
			return 0, true
		default:
			largest, ok = max(largest, m.Window), true
		}
	}
	return largest, ok
}

// Place picks where a ticket goes: home when it has a free slot, else the region
// with the most free slots, else the one with the least load. A worker is named
// when not everyone who pulls there meets the need: chance picks among those who
// do, by their free slots. False when no live worker meets the need.
func (f *Fleet) Place(n Need, home string) (region, worker string, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if region, ok = f.region(n, home); ok {
		worker = f.named(n, region)
	}
	return region, worker, ok
}

func (f *Fleet) region(n Need, home string) (string, bool) {
	type pool struct{ free, slots, load int }
	pools := map[string]*pool{}
	for _, m := range f.models[n.Model] {
		if !n.met(m) {
			continue
		}
		p := pools[m.Region]
		if p == nil {
			p = &pool{}
			pools[m.Region] = p
		}
		p.free += m.free()
		p.slots += m.Slots
		p.load += m.InFlight
	}
	if p := pools[home]; p != nil && (p.free > 0 || len(pools) == 1) {
		return home, true
	}
	best := ""
	for _, region := range bus.Regions() {
		p, b := pools[region], pools[best]
		if p == nil {
			continue
		}
		if b == nil || p.free > b.free || p.free == b.free && p.load*max(1, b.slots) < b.load*max(1, p.slots) {
			best = region
		}
	}
	return best, best != ""
}

// named picks a worker of a region, none when everyone who pulls there will do.
func (f *Fleet) named(n Need, region string) string {
	able, free, everyone := 0, 0, true
	for _, m := range f.models[n.Model] {
		switch {
		case m.Region != region || !n.admits(m):
			// This one does not pull there.
		case n.able(m) && n.holds(m):
			able++
			free += m.free()
		default:
			everyone = false
		}
	}
	if everyone || able == 0 {
		return ""
	}
	full := free == 0
	if full {
		free = able
	}
	left := rand.IntN(free)
	for id, m := range f.models[n.Model] {
		if m.Region != region || !n.met(m) {
			continue
		}
		weight := m.free()
		if full {
			weight = 1 // one is as good as another
		}
		if left < weight {
			return id
		}
		left -= weight
	}
	return ""
}

// Fits tells whether a worker can do what a need asks for, as far as it is known.
// Of one that is not known yet only the usual is believed: that it chats.
func (f *Fleet) Fits(n Need, worker string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	m := f.models[n.Model][worker]
	if m == nil {
		return len(n.Modalities) == 0 && !slices.Contains(n.Features, llm.FeatureRaw)
	}
	return n.able(m) && n.holds(m)
}

// Other names a live worker that meets the need and that except does not rule
// out, the one with the most free slots first.
func (f *Fleet) Other(n Need, except func(worker string) bool) (worker, region string, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	best := 0
	for id, m := range f.models[n.Model] {
		if !n.met(m) || except(id) || f.now().Sub(m.seen) > bus.HeartbeatLife {
			continue
		}
		if free := m.free(); !ok || free > best || free == best && id < worker {
			worker, region, best, ok = id, m.Region, free, true
		}
	}
	return worker, region, ok
}

// Tokenizer names a live worker that meets the need and can count prompts, at
// home if there is one, the idlest first.
func (f *Fleet) Tokenizer(n Need, home string) (worker string, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var best *member
	for id, m := range f.models[n.Model] {
		if !n.met(m) || !slices.Contains(m.Features, llm.FeatureTokenize) || f.now().Sub(m.seen) > bus.HeartbeatLife {
			continue
		}
		free := m.free()
		if best == nil || m.Region == home && best.Region != home ||
			(m.Region == home) == (best.Region == home) && (free > best.free() || free == best.free() && id < worker) {
			worker, best = id, m
		}
	}
	return worker, best != nil
}

// Free counts the free slots for a need.
func (f *Fleet) Free(n Need) int { return f.sum(n, (*member).free) }

// Slots counts the slots of those that could serve a need, free or not.
func (f *Fleet) Slots(n Need) int { return f.sum(n, func(m *member) int { return m.Slots }) }

func (f *Fleet) sum(n Need, of func(*member) int) (sum int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, m := range f.models[n.Model] {
		if n.met(m) {
			sum += of(m)
		}
	}
	return sum
}

// Name gives what the operator calls a worker, or its id when that is unknown.
func (f *Fleet) Name(model, worker string) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if m := f.models[model][worker]; m != nil && m.Name != "" {
		return m.Name
	}
	return worker
}
