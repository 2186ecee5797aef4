package cache_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/services/sim/internal/cache"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

func prompt(n int, from tokenizer.ID) []tokenizer.ID {
	ids := make([]tokenizer.ID, n)
	for i := range ids {
		ids[i] = from + tokenizer.ID(i)
	}
	return ids
}

func TestChain(t *testing.T) {
	t.Parallel()
	t.Run("the last token is never in a block", func(t *testing.T) {
		t.Parallel()
		for n, want := range map[int]int{0: 0, 1: 0, 64: 0, 65: 1, 128: 1, 129: 2} {
			blocks, _ := cache.Chain(prompt(n, 1))
			require.Len(t, blocks, want, "%d tokens", n)
		}
	})
	t.Run("a change of one token changes its block and all later ones", func(t *testing.T) {
		t.Parallel()
		a := prompt(64*4+1, 1)
		before, sum := cache.Chain(a)
		a[70]++
		after, changed := cache.Chain(a)
		require.Equal(t, before[0], after[0])
		for i := 1; i < 4; i++ {
			require.NotEqual(t, before[i], after[i])
		}
		require.NotEqual(t, sum, changed)
	})
}

func TestTake(t *testing.T) {
	t.Parallel()
	t.Run("a prompt is known the second time, up to where it differs", func(t *testing.T) {
		t.Parallel()
		c := cache.New(100)
		a, _ := cache.Chain(prompt(64*5+1, 1))
		other := prompt(64*5+1, 1)
		other[64*3] = 0
		b, _ := cache.Chain(other)
		require.Zero(t, c.Take(0, a))
		require.Equal(t, 5, c.Take(0, a))
		require.Equal(t, 3, c.Take(0, b))
	})
	t.Run("another salt shares nothing", func(t *testing.T) {
		t.Parallel()
		c := cache.New(100)
		a, _ := cache.Chain(prompt(200, 1))
		c.Take(1, a)
		require.Zero(t, c.Take(2, a))
		require.Equal(t, 3, c.Take(1, a))
	})
	t.Run("the bound holds and the end of the oldest chain leaves first", func(t *testing.T) {
		t.Parallel()
		c := cache.New(4)
		a, _ := cache.Chain(prompt(64*3+1, 1))
		b, _ := cache.Chain(prompt(64*2+1, 9000))
		c.Take(0, a)
		require.Equal(t, 3, c.Len())
		c.Take(0, b)
		require.Equal(t, 4, c.Len())
		require.Equal(t, 2, c.Take(0, a))
	})
	t.Run("a prompt larger than the cache keeps its beginning", func(t *testing.T) {
		t.Parallel()
		c := cache.New(2)
		a, _ := cache.Chain(prompt(64*9+1, 1))
		c.Take(0, a)
		require.Equal(t, 2, c.Take(0, a))
		require.Equal(t, 2, c.Len())
	})
	t.Run("a cache of nothing knows nothing", func(t *testing.T) {
		t.Parallel()
		c := cache.New(0)
		a, _ := cache.Chain(prompt(200, 1))
		c.Take(0, a)
		require.Zero(t, c.Take(0, a))
	})
	t.Run("what it knows is what a plain list would know", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			const limit = 8
			c := cache.New(limit)
			var recent []uint64 // most recent first
			for range rapid.IntRange(1, 40).Draw(t, "takes") {
				blocks := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 0, 12, rapid.ID).Draw(t, "blocks")
				kept := blocks[:min(len(blocks), limit)]
				want := 0
				for want < len(kept) && contains(recent, kept[want]) {
					want++
				}
				require.Equal(t, want, c.Take(0, blocks))
				next := append([]uint64{}, kept...)
				for _, h := range recent {
					if !contains(kept, h) {
						next = append(next, h)
					}
				}
				recent = next[:min(len(next), limit)]
				require.Equal(t, len(recent), c.Len())
			}
		})
	})
}

func contains(list []uint64, h uint64) bool {
	for _, one := range list {
		if one == h {
			return true
		}
	}
	return false
}

func BenchmarkMillionTokens(b *testing.B) {
	ids := prompt(1<<20, 1)
	c := cache.New(1 << 16)
	for b.Loop() {
		blocks, _ := cache.Chain(ids)
		c.Take(0, blocks)
	}
}
