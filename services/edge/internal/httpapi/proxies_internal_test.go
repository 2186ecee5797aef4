package httpapi

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProxiesAreBelievedAndNobodyElse(t *testing.T) {
	t.Parallel()
	p := proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct{ peer, forwarded, want string }{
		{"10.0.0.1", "", "10.0.0.1"},
		{"10.0.0.1", "1.2.3.4", "1.2.3.4"},
		{"10.0.0.1", "9.9.9.9, 1.2.3.4", "1.2.3.4"},
		{"10.0.0.1", "1.2.3.4, 10.0.0.2", "1.2.3.4"},
		{"10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3"},
		{"::ffff:10.0.0.1", " 1.2.3.4:5678 ", "1.2.3.4"},
		{"fd00::1", "[2001:db8::1]:443", "2001:db8::1"},
		{"fd00::1", "2001:db8::1", "2001:db8::1"},
		{"10.0.0.1", "::ffff:1.2.3.4", "1.2.3.4"},
		{"10.0.0.1", "unknown", "10.0.0.1"},
		{"10.0.0.1", "1.2.3.4, unknown, 10.0.0.2", "10.0.0.2"},
		{"10.0.0.1", "1.2.3.4,", "10.0.0.1"},
		{"1.1.1.1", "1.2.3.4", "1.1.1.1"},
	} {
		require.Equal(t, c.want, p.client(tcp(c.peer), []byte(c.forwarded)).String(), c)
	}
	require.Equal(t, "10.0.0.1", proxies(nil).client(tcp("10.0.0.1"), []byte("1.2.3.4")).String())
	require.NotPanics(t, func() { p.client(netip.Addr{}, []byte("1.2.3.4")) })
}

func TestForwardedIsKeptForOneRequestAndWithinItsBound(t *testing.T) {
	t.Parallel()
	of := func(f *framing, headers ...string) string {
		stream := "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
		_, n, err := f.next([]byte(stream))
		require.NoError(t, err)
		require.Len(t, stream, n)
		return string(f.forwarded)
	}
	var f framing
	require.Equal(t, "1.1.1.1,2.2.2.2", of(&f, "X-Forwarded-For: 1.1.1.1", "X: y", "x-forwarded-for:2.2.2.2"))
	require.Empty(t, of(&f, "X: y"), "another request")
	require.Empty(t, of(&f, "X-Forwarded-For: "+strings.Repeat("1", lineKept), "X-Forwarded-For: 2.2.2.2"), "its end is not known")
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("X-Forwarded-For: 1.1.1.%d", i))
	}
	require.Empty(t, of(&f, many...))
	require.LessOrEqual(t, cap(f.forwarded), 2*forwardedMax)
}
