// Package cache remembers which beginnings of prompts were seen.
//
// What lives here: the chained block hash and a bounded set of them. What does
// not: any tokens or tensors; a simulator has no attention to save, it only has
// to report what a real engine would have reused. The invariant: a block counts
// as cached only when every block before it does, and the set never holds more
// than its bound. To let something else separate caches (a tenant's salt, an
// adapter), mix it into the salt given to Take.
package cache

import (
	"math/bits"
	"sync"

	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// BlockTokens is the length of a block; only whole blocks are reused.
const BlockTokens = 64

// Chain hashes ids in blocks. Block i's hash depends on all ids up to its end.
// Sum depends on every id.
//
// The last token of a prompt is always computed, as engines do, so a block that
// would end with it is not in the list.
func Chain(ids []tokenizer.ID) (blocks []uint64, sum uint64) {
	h := uint64(0x9e3779b97f4a7c15)
	whole := max(0, len(ids)-1) / BlockTokens
	blocks = make([]uint64, whole)
	for b := range blocks {
		for _, id := range ids[b*BlockTokens : (b+1)*BlockTokens] {
			h = mix(h, uint64(id))
		}
		blocks[b] = h
	}
	for _, id := range ids[whole*BlockTokens:] {
		h = mix(h, uint64(id))
	}
	return blocks, h
}

// mix folds v into h by a full multiplication, which spreads every bit at the
// price of one instruction.
func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v, 0xd6e8feb86659fd93)
	return hi ^ bits.RotateLeft64(lo, 29) + v
}

// Cache is a bounded set of block hashes, the least recently used leave first.
// It is safe for concurrent use.
type Cache struct {
	limit int

	mu    sync.Mutex
	index map[uint64]int32
	// nodes is a ring through the sentinel at 0: its next is the most recent.
	// Links are indices, so that a full cache is two objects to the collector.
	nodes []node
}

type node struct {
	hash       uint64
	prev, next int32
}

// New returns a cache of at most limit blocks. A limit of zero remembers
// nothing.
func New(limit int) *Cache {
	return &Cache{limit: limit, index: make(map[uint64]int32), nodes: make([]node, 1)}
}

// Take counts how many leading blocks are known under a salt, then remembers all
// of them. Blocks of different salts never match, as long as the salts are hashes.
// A prompt longer than the whole cache keeps its beginning.
func (c *Cache) Take(salt uint64, blocks []uint64) (known int) {
	blocks = blocks[:min(len(blocks), c.limit)]
	c.mu.Lock()
	defer c.mu.Unlock()
	for known < len(blocks) {
		if _, ok := c.index[blocks[known]^salt]; !ok {
			break
		}
		known++
	}
	// Backwards, so that the end of a chain is older than its start and leaves
	// first: a start without its end is useful, an end without its start is not.
	for i := len(blocks) - 1; i >= 0; i-- {
		c.touch(blocks[i] ^ salt)
	}
	return known
}

// Len tells how many blocks are remembered.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.index)
}

func (c *Cache) touch(hash uint64) {
	at, ok := c.index[hash]
	switch {
	case ok:
		c.unlink(at)
	case len(c.index) < c.limit:
		at = int32(len(c.nodes))
		c.nodes = append(c.nodes, node{})
	default:
		at = c.nodes[0].prev
		delete(c.index, c.nodes[at].hash)
		c.unlink(at)
	}
	c.index[hash] = at
	first := c.nodes[0].next
	c.nodes[at] = node{hash: hash, prev: 0, next: first}
	c.nodes[first].prev = at
	c.nodes[0].next = at
}

func (c *Cache) unlink(at int32) {
	n := c.nodes[at]
	c.nodes[n.prev].next = n.next
	c.nodes[n.next].prev = n.prev
}
