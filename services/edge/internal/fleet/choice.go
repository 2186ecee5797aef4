package fleet

import (
	"hash/fnv"
	"math"
)

// choice is a pass over the workers of a region that meet a need and may get more.
type choice struct {
	used, slots int // of all of them together
	idlest      string
	u, s        int // of the idlest
}

// candidates hands over each worker that may get a job, with how many of its slots
// are in use. One that is full is among them. The lock is held.
func (f *Fleet) candidates(n Need, region string, each func(id string, used, slots int)) {
	for id, m := range f.models[n.Model] {
		if m.Region != region || m.full || m.Slots == 0 || !n.met(m) {
			continue
		}
		if jobs, ok := f.own(id); ok {
			each(id, m.others+jobs, m.Slots)
		}
	}
}

// choice finds the idlest worker. The lock is held.
func (f *Fleet) choice(n Need, region string) choice {
	var c choice
	f.candidates(n, region, func(id string, used, slots int) {
		c.used += min(used, slots)
		c.slots += slots
		if used < slots && (c.s == 0 || used*c.s < c.u*slots || used*c.s == c.u*slots && slots > c.s) {
			c.idlest, c.u, c.s = id, used, slots
		}
	})
	return c
}

// Choose names a worker of a region that meets the need and has a free slot, false
// when there is none. Without an affinity it is the one with the smallest part of its
// slots in use. Requests of the same affinity go to the same worker, as long as that
// is not much busier than the others: then to the next one in an order that belongs
// to the affinity. All edges have the same order, and a worker that comes or goes
// changes it for few.
//
// The order is that of weighted rendezvous hashing (Schindelhauer and Schomaker,
// 2005), the bound that of consistent hashing with bounded loads (Mirrokni, Thorup
// and Zadimoghaddam, 2016).
func (f *Fleet) Choose(n Need, region, affinity string) (worker string, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.choice(n, region)
	if affinity == "" || c.s == 0 {
		return c.idlest, c.s > 0
	}
	worker, best := c.idlest, -1.0
	f.candidates(n, region, func(id string, used, slots int) {
		if !c.bears(used, slots) {
			return
		}
		if r := rank(affinity, id, slots); r > best || r == best && id < worker {
			worker, best = id, r
		}
	})
	return worker, true
}

// bears tells whether a worker may get one more for the sake of its cache: while a
// quarter of its slots is not in use yet, or when it is at most a quarter busier
// than all of them together would be then.
func (c choice) bears(used, slots int) bool {
	return used < slots && (4*used < slots || 4*used*c.slots < 5*(c.used+1)*slots)
}

// rank orders workers for an affinity: each is first for a part of all affinities
// that is as large as its part of all slots.
func rank(affinity, worker string, slots int) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(affinity)) // a hash never fails
	_, _ = h.Write([]byte(worker))
	return float64(slots) / -math.Log((float64(mixed(h.Sum64())>>11)+0.5)/(1<<53))
}

// mixed spreads what FNV leaves close together; the constants are those of
// MurmurHash3's last step.
func mixed(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
