package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cut reads a connection's bytes in pieces of the given size and gives its
// requests, until an error.
func cut(stream string, size int) (requests []string, err error) {
	var f framing
	one := ""
	for len(stream) > 0 {
		n := min(size, len(stream))
		piece := []byte(stream[:n])
		stream = stream[n:]
		for len(piece) > 0 {
			drop, took, err := f.next(piece)
			if err != nil {
				return requests, err
			}
			one += string(piece[drop : drop+took])
			piece = piece[drop+took:]
			if f.state == betweenRequests && one != "" {
				requests = append(requests, one)
				one = ""
			}
		}
	}
	return requests, nil
}

func TestEveryCutGivesTheSameRequests(t *testing.T) {
	t.Parallel()
	want := []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA \r\n0123456789\r\n0\r\nX: y\r\n\r\n",
		"POST / HTTP/1.1\r\nX-Long: " + strings.Repeat("a", 10_000) + "\r\nContent-Length: 0\r\n\r\n",
		"GET /last HTTP/1.1\r\n\r\n",
	}
	stream := "\r\n" + want[0] + want[1] + "\r\n\r\n" + strings.Join(want[2:], "")
	for size := 1; size <= len(stream); size++ {
		got, err := cut(stream, size)
		require.NoError(t, err)
		require.Equal(t, want, got, "pieces of %d", size)
		if size > 600 {
			size += 997
		}
	}
}

// A request without a key stops at the end of its head, wherever it is cut, so
// that its body may be refused; what follows it is read as ever.
func TestARequestWithoutAKeyStopsAtItsHead(t *testing.T) {
	t.Parallel()
	const route = "POST /v1/count"
	for line, stops := range map[string]bool{
		route + " HTTP/1.1": true, route + "?beta=true HTTP/1.1": true, route + "/ HTTP/1.1": false, route + "x HTTP/1.1": false,
		"GET /v1/count HTTP/1.1": false, "POST http://x/v1/count HTTP/1.1": false, "POST /v1/Count HTTP/1.1": false,
	} {
		head := line + "\r\nContent-Length: 5\r\n\r\n"
		stream := head + "hello" + "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		for size := 1; size <= len(stream); size++ {
			f := framing{keyless: []string{route}}
			read, stopped := 0, -1
			for read < len(stream) {
				_, n, err := f.next([]byte(stream[read:min(len(stream), read+size)]))
				require.NoError(t, err)
				if read += n; f.head && f.stranger {
					stopped = read
					require.Equal(t, int64(5), f.bodyBytes())
					require.Equal(t, "/v1/count", string(f.target))
				}
			}
			require.Equal(t, betweenRequests, f.state)
			require.Equal(t, stops, stopped >= 0, line)
			require.True(t, !stops || stopped == len(head))
		}
	}
	for length, stops := range map[int]bool{LargeBytes - 1: false, LargeBytes: true} {
		f := framing{}
		head := fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n", length)
		_, n, err := f.next([]byte(head + "body"))
		require.NoError(t, err)
		require.Equal(t, stops, f.head, "a large one stops there, too")
		require.Equal(t, stops, n == len(head))
	}
	f := framing{keyless: []string{route}}
	_, _, err := f.next([]byte(route + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"))
	require.NoError(t, err)
	require.Equal(t, int64(-1), f.bodyBytes())
}

func TestWhatCanBeReadInTwoWaysIsRefusedAtEveryCut(t *testing.T) {
	t.Parallel()
	head := "POST / HTTP/1.1\r\nHost: x\r\n"
	for name, stream := range map[string]string{
		"chunked twice":       head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"another version":     "GET / HTTP/2.0\r\nHost: x\r\n\r\n",
		"no version":          "GET /\r\nHost: x\r\n\r\n",
		"two hosts":           head + "hOST: y\r\n\r\n",
		"two lengths":         head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"both":                head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"another coding":      head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"a blank":             head + "Content-Length : 5\r\n\r\nhello",
		"a sign":              head + "Content-Length: +5\r\n\r\nhello",
		"a list":              head + "Content-Length: 5, 5\r\n\r\nhello",
		"a huge length":       head + "Content-Length: 99999999999999999999\r\n\r\nhello",
		"a bare line feed":    "POST / HTTP/1.1\nHost: x\r\n\r\n",
		"a bare return":       head + "X: a\rb\r\n\r\n",
		"a nul":               head + "X: a\x00b\r\n\r\n",
		"a fold":              head + "X: a\r\n b\r\n\r\n",
		"no colon":            head + "nonsense\r\n\r\n",
		"no name":             head + ": x\r\n\r\n",
		"a prefixed chunk":    head + "Transfer-Encoding: chunked\r\n\r\n0xff\r\nhello",
		"a blank chunk":       head + "Transfer-Encoding: chunked\r\n\r\n0 ff\r\nhello",
		"an empty chunk size": head + "Transfer-Encoding: chunked\r\n\r\n\r\nhello",
		"a signed chunk":      head + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n",
		"a long chunk":        head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
		"a huge chunk":        head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
	} {
		for size := 1; size <= len(stream); size++ {
			got, err := cut(stream, size)
			require.ErrorIs(t, err, errFraming, "%s, pieces of %d", name, size)
			require.Empty(t, got, name)
		}
	}
}

func FuzzFraming(f *testing.F) {
	f.Add("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		whole, err := cut(stream, len(stream)+1)
		bytewise, err2 := cut(stream, 1)
		require.Equal(t, err == nil, err2 == nil)
		if err == nil {
			require.Equal(t, whole, bytewise)
		}
	})
}
