package httpapi

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/engy-ai/engy/pkg/fault"
)

// errNoPass ends the reading of a body whose head was refused.
var errNoPass = fault.New(fault.Busy, "the request was refused at its head")

// gate bounds what the world may send without a key: how often, and how much is
// held in memory for it at once; and how much is held for large bodies of all. It
// decides before a body is read, so that what is refused costs next to nothing. The
// framework takes the memory of a whole body when it is announced.
type gate struct {
	// routes lists the routes that need no key and have bodies, as method, blank,
	// path.
	routes  []string
	bodyMax int64
	// proxies are believed when they tell who asks.
	proxies proxies
	// largeMax bounds the bytes of large bodies; dropped hears of one that did not
	// come whole.
	largeMax int64
	dropped  func(bytes int)

	mu           sync.Mutex
	bytes, small int64
	large        int64
	callers      map[netip.Prefix]*caller
}

// caller is an address, or the network that one subscriber has.
type caller struct {
	rate  *rate.Limiter
	bytes int64
}

// pass is what a request got at the gate: leave to be read, or a refusal.
type pass struct {
	gate    *gate
	caller  *caller
	bytes   int64
	room    *int64 // which of the gate's it takes
	refusal error
	whole   atomic.Bool // the body came to its end
	left    atomic.Bool
}

// carry lets a request with a large body through until it is over, or says why not.
// One whose size is not known grows as it comes.
func (g *gate) carry(size int64) *pass {
	switch {
	case size < 0:
		size = 0 // it grows
	case size > g.bodyMax:
		size = 0 // none of it will be read
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.large+size > g.largeMax {
		return &pass{refusal: errLarge()}
	}
	g.large += size
	return &pass{gate: g, caller: &caller{}, bytes: size, room: &g.large}
}

// grow takes more room for a body whose size was not known. Where there is none the
// rest of it is refused.
func (p *pass) grow(n int64) {
	if p == nil || p.refusal != nil {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.left.Load() {
		return
	}
	if *p.room+n > p.gate.largeMax {
		p.refusal = errLarge()
		return
	}
	p.bytes += n
	*p.room += n
}

func errLarge() error { return busy("too many bytes of large requests are under way", gateRetry) }

// came notes that the body has come to its end.
func (p *pass) came() {
	if p != nil {
		p.whole.Store(true)
	}
}

// enter lets a request with a body of the given size through, or says why not.
// A size that is not known is -1, and taken for the largest.
func (g *gate) enter(addr netip.Addr, size int64) *pass {
	switch {
	case size < 0:
		size = g.bodyMax
	case size > g.bodyMax:
		size = 0 // none of it will be read
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.caller(addr)
	if c == nil {
		return &pass{refusal: busy("too many callers without a key", gateRetry)}
	}
	now := time.Now()
	ask := c.rate.ReserveN(now, int(1+size/gateStep))
	if wait := ask.DelayFrom(now); !ask.OK() || wait > 0 {
		ask.CancelAt(now)
		return &pass{refusal: busy("too many requests without a key from this address", wait)}
	}
	room, most := &g.bytes, gateBodies*g.bodyMax
	if size*gateSmall <= g.bodyMax {
		room, most = &g.small, g.bodyMax/2
	}
	if c.bytes+size > g.bodyMax || *room+size > most {
		ask.CancelAt(now)
		return &pass{refusal: busy("too many bytes of requests without a key are under way", gateRetry)}
	}
	c.bytes += size
	*room += size
	return &pass{gate: g, caller: c, bytes: size, room: room}
}

func busy(message string, retry time.Duration) error {
	f := fault.New(fault.Busy, message)
	f.Retry = retry
	return f
}

// caller finds who asks, nil when there is no room to remember another.
func (g *gate) caller(addr netip.Addr) *caller {
	key := subscriber(addr)
	if c, ok := g.callers[key]; ok {
		return c
	}
	for other, c := range g.callers {
		if len(g.callers) < callersMax {
			break
		}
		if c.bytes == 0 {
			delete(g.callers, other)
		}
	}
	if len(g.callers) >= callersMax {
		return nil
	}
	c := &caller{rate: rate.NewLimiter(gateRate, gateBurst)}
	if g.callers == nil {
		g.callers = map[netip.Prefix]*caller{}
	}
	g.callers[key] = c
	return c
}

// subscriber gives the network that one subscriber has: an address of IPv4, and
// 64 bits of IPv6.
func subscriber(addr netip.Addr) netip.Prefix {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // it is none
	}
	return p
}

// refused gives why a request may not pass. No pass refuses nothing.
func (p *pass) refused() error {
	if p == nil {
		return nil
	}
	return p.refusal
}

// leave gives back what the pass holds. It may be called more than once.
func (p *pass) leave() {
	if p == nil || p.gate == nil || p.left.Swap(true) {
		return
	}
	p.gate.mu.Lock()
	p.caller.bytes -= p.bytes
	*p.room -= p.bytes
	p.gate.mu.Unlock()
	if p.bytes > 0 && !p.whole.Load() {
		p.gate.dropped(int(p.bytes))
	}
}
