package bus

import (
	"sync"
	"time"
)

// garbledEvery is how often messages that cannot be read are logged.
const garbledEvery = time.Second

// garbled counts messages that cannot be read. Who sends them may belong to somebody
// else and send any number: each kind has a line at most every garbledEvery, which
// says how many there have been.
type garbled struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	count  int64
	logged time.Time
}

// garbled notes a message of a kind that cannot be read. Kinds are words of this
// package, and so is err, if there is one: what the message says is nowhere.
func (b *Bus) garbled(what string, err error) {
	g := &b.unread
	g.mu.Lock()
	if g.kinds == nil {
		g.kinds = map[string]*kind{}
	}
	k := g.kinds[what]
	if k == nil {
		k = &kind{}
		g.kinds[what] = k
	}
	k.count++
	count, now := k.count, time.Now()
	due := now.Sub(k.logged) >= garbledEvery
	if due {
		k.logged = now
	}
	g.mu.Unlock()
	if due {
		b.log.Error("message cannot be read", "kind", what, "count", count, "error", err)
	}
}
