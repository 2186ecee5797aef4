package httpapi

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
)

// proxies are the networks whose word on where a request comes from is believed:
// those of the operator's own proxies.
type proxies []netip.Prefix

// client gives the address that a request comes from. Each proxy has added the one
// that it was called by to the end of X-Forwarded-For; the last one that is not a
// proxy's is the client's, and what stands before it is the client's own invention.
func (p proxies) client(peer netip.Addr, forwarded []byte) netip.Addr {
	for p.know(peer) && len(forwarded) > 0 {
		at := bytes.LastIndexByte(forwarded, ',')
		next, ok := address(bytes.TrimSpace(forwarded[at+1:]))
		if !ok {
			break
		}
		peer, forwarded = next, forwarded[:max(at, 0)]
	}
	return peer
}

func (p proxies) know(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}

// address reads what proxies write: an address, with a port behind it or without.
func address(text []byte) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(string(text)); err == nil {
		return a.Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddrPort(string(text))
	return a.Addr().Unmap().WithZone(""), err == nil
}

// peer gives the address of a socket's other end, none when it is not a TCP socket.
func peer(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
