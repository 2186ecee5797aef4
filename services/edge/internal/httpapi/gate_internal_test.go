package httpapi

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
)

func tcp(ip string) netip.Addr { return peer(&net.TCPAddr{IP: net.ParseIP(ip), Port: 1}) }

func TestTheGateIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	g := &gate{bodyMax: 1000, dropped: func(int) {}}
	a := g.enter(tcp("10.0.0.1"), 999)
	require.NoError(t, a.refused())
	b := g.enter(tcp("10.0.0.1"), 1)
	require.NoError(t, b.refused(), "an address may have one body of full size")
	require.True(t, fault.Is(g.enter(tcp("10.0.0.1"), 1).refused(), fault.Busy))
	require.NoError(t, g.enter(tcp("10.0.0.1"), 0).refused())
	require.NoError(t, g.enter(tcp("10.0.0.1"), 1001).refused(), "a body that will not be read takes no room")
	c := g.enter(tcp("10.0.0.2"), -1)
	require.NoError(t, c.refused(), "a size that is not known is the largest")
	full := g.enter(tcp("10.0.0.3"), 100)
	require.True(t, fault.Is(full.refused(), fault.Busy), "all together may have two")
	full.leave()
	var small []*pass
	for i := range 100 {
		p := g.enter(tcp(fmt.Sprintf("10.0.1.%d", i)), 7)
		if small = append(small, p); i < 71 {
			require.NoError(t, p.refused(), "small ones have room of their own")
		} else {
			require.True(t, fault.Is(p.refused(), fault.Busy), "half of a body")
		}
	}
	for _, p := range small {
		p.leave()
	}
	require.EqualValues(t, 1, g.small, "what b holds")
	for range 2 {
		a.leave()
		c.leave()
	}
	b.leave()
	require.Zero(t, g.bytes)
	require.NoError(t, g.enter(tcp("10.0.0.3"), 1000).refused())
	var none *pass
	none.leave()
	require.NoError(t, none.refused())
}

func TestTheGateIsBoundedInRequests(t *testing.T) {
	t.Parallel()
	g := &gate{bodyMax: 64 << 20, dropped: func(int) {}}
	for range gateBurst {
		require.NoError(t, g.enter(tcp("10.0.0.1"), 0).refused())
	}
	// What grows again meanwhile is soon asked for, too.
	var refused error
	for refused == nil {
		refused = g.enter(tcp("10.0.0.1"), 0).refused()
	}
	require.Positive(t, fault.Of(refused).Retry)
	require.NoError(t, g.enter(tcp("10.0.0.2"), 0).refused(), "another address has its own")
	// Bytes cost too: a few bodies of full size are all that fits.
	fits, begun := 0, time.Now()
	for range 10 {
		p := g.enter(tcp("10.0.0.3"), 32<<20)
		if p.refused() == nil {
			fits++
		}
		p.leave()
	}
	grown := int(gateRate * time.Since(begun).Seconds())
	require.Positive(t, fits)
	require.LessOrEqual(t, fits, (gateBurst+grown)/(1+32<<20/gateStep))
}

func TestAGateKnowsSubscribers(t *testing.T) {
	t.Parallel()
	require.Equal(t, subscriber(tcp("2001:db8::1")), subscriber(tcp("2001:db8::ffff:1")))
	require.NotEqual(t, subscriber(tcp("2001:db8::1")), subscriber(tcp("2001:db8:0:1::1")))
	require.Equal(t, subscriber(tcp("10.0.0.1")), subscriber(tcp("::ffff:10.0.0.1")))
	require.NotEqual(t, subscriber(tcp("10.0.0.1")), subscriber(tcp("10.0.0.2")))
	require.NotPanics(t, func() { subscriber(peer(&net.UnixAddr{})) })
}

func TestAGateRemembersOnlySoMany(t *testing.T) {
	t.Parallel()
	g := &gate{bodyMax: 1000, dropped: func(int) {}}
	address := func(i int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	busy := g.enter(address(0), 10)
	for i := range 2 * callersMax {
		require.NoError(t, g.enter(address(i+1), 0).refused())
	}
	require.LessOrEqual(t, len(g.callers), callersMax)
	require.Contains(t, g.callers, subscriber(address(0)), "one that holds bytes is not forgotten")
	busy.leave()
	require.Zero(t, g.bytes)
}

func TestTheGateHoldsForManyAtOnce(t *testing.T) {
	t.Parallel()
	g := &gate{bodyMax: 1000, dropped: func(int) {}}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 500 {
				g.enter(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 100).leave()
			}
		})
	}
	all.Wait()
	require.Zero(t, g.bytes)
}

func TestLargeBodiesHaveABoundTogether(t *testing.T) {
	t.Parallel()
	var dropped []int
	g := &gate{bodyMax: 32 << 20, largeMax: 64 << 20, dropped: func(bytes int) { dropped = append(dropped, bytes) }}
	a, b := g.carry(32<<20), g.carry(32<<20)
	require.NoError(t, a.refused())
	require.NoError(t, b.refused())
	err := g.carry(1 << 20).refused()
	require.True(t, fault.Is(err, fault.Busy))
	require.Positive(t, fault.Of(err).Retry)
	grows := g.carry(-1)
	require.NoError(t, grows.refused(), "nobody knows how long that one gets")
	grows.grow(1)
	require.True(t, fault.Is(grows.refused(), fault.Busy))
	grows.leave()
	require.NoError(t, g.carry(33<<20).refused(), "none of it will be read")
	a.came()
	a.leave()
	require.Empty(t, dropped)
	require.NoError(t, g.carry(1<<20).refused())
	grows = g.carry(-1)
	grows.grow(31 << 20)
	require.NoError(t, grows.refused())
	grows.came()
	grows.leave()
	b.leave()
	b.leave()
	require.Equal(t, []int{32 << 20}, dropped, "it did not come whole")
	require.EqualValues(t, 1<<20, g.large)
}
