package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/httpapi"
)

// A client that reads slowly is no client that does not read.
func TestALongAnswerMayBeReadSlowly(t *testing.T) {
	t.Parallel()
	const (
		size  = 3 << 20
		reads = 24
		// Long enough for a machine that is busy with something else.
		wait = 5 * time.Second
	)
	addr, _ := startWith(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{next: func(context.Context, time.Duration) ([]llm.Event, error) {
			return []llm.Event{{Kind: llm.Text, Text: strings.Repeat("x", size)}, done()}, nil
		}}, nil
	}, func(int) {}, func(c *httpapi.Config) { c.WriteWait = wait })
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(64<<10))
	_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", goodKey, len(minimal), minimal)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	// All of it takes twice as long as one write may.
	got := int64(0)
	for pace := time.NewTicker(2 * wait / reads); ; <-pace.C {
		n, err := io.CopyN(io.Discard, resp.Body, size/reads)
		if got += n; err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	require.Equal(t, resp.ContentLength, got)
}

// What clients announce takes memory before it comes.
func TestLargeBodiesAreBoundedBeforeTheyCome(t *testing.T) {
	t.Parallel()
	dropped := make(chan int, 10)
	s, addr, _ := startServer(t, good, func(bytes int) { dropped <- bytes }, func(c *httpapi.Config) { c.LargeBytesMax = bodyMax * 3 / 2 })
	const size = bodyMax
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", goodKey, size)
	slow, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = io.WriteString(slow, head+`{"model":`)
	require.NoError(t, err)
	// It has its room before the others ask: one that comes second would be refused.
	require.Eventually(t, func() bool { return s.Large() == size }, patience, time.Millisecond)
	body := `{"model":"m","messages":[{"role":"user","content":"`
	body += strings.Repeat("x", size-len(body)-4) + `"}]}`
	status := func(body string) int {
		resp := post(t, addr, "/v1/chat/completions", goodKey, body)
		_, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		return resp.StatusCode
	}
	require.Equal(t, 429, status(body))
	require.Equal(t, 200, status(minimal), "small ones pass")
	require.NoError(t, slow.Close())
	require.Equal(t, size, <-dropped)
	require.Equal(t, 200, status(body))
}

func TestAStreamToAnOldClientHasNoChunks(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", goodKey, len(streamed), streamed)
	require.NoError(t, err)
	raw, err := io.ReadAll(c)
	require.NoError(t, err)
	head, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	require.Contains(t, head, "text/event-stream")
	require.NotContains(t, head, "Transfer-Encoding")
	require.True(t, strings.HasPrefix(body, "data: "), body)
	require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), body)
}

// Bodies in chunks take what has come of them.
func TestBodiesInChunksAreBoundedAsTheyCome(t *testing.T) {
	t.Parallel()
	s, addr, _ := startServer(t, good, func(int) {}, func(c *httpapi.Config) { c.LargeBytesMax = bodyMax })
	dial := func(body string) net.Conn {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n%s", goodKey, body)
		require.NoError(t, err)
		return c
	}
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	status := func(c net.Conn) int {
		defer func() { _ = c.Close() }()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		return resp.StatusCode
	}
	half := chunk(minimal+strings.Repeat(" ", bodyMax/2)) + "0\r\n\r\n"
	const most = bodyMax * 3 / 4
	slow := dial(chunk(strings.Repeat("x", most)))
	// Until that has come there is room.
	require.Eventually(t, func() bool { return s.Large() >= most }, patience, time.Millisecond)
	require.Equal(t, 429, status(dial(half)))
	// What was refused gives its room back a moment after the answer.
	require.Eventually(t, func() bool { return s.Large() < most+1<<10 }, patience, time.Millisecond)
	require.Equal(t, 200, status(dial(chunk(minimal)+"0\r\n\r\n")), "small ones pass")
	require.NoError(t, slow.Close())
	require.Eventually(t, func() bool { return s.Large() == 0 }, patience, time.Millisecond)
	require.Equal(t, 200, status(dial(half)))
}

// A client that has closed its side of the connection has left: the code for that is
// for the log only.
func TestAClientThatHasLeftIsToldNothing(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{
			next: func(ctx context.Context, _ time.Duration) ([]llm.Event, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
			closed: func(cause error) { closed <- cause },
		}, nil
	})
	for _, body := range []string{minimal, streamed} {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", goodKey, len(body), body)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		raw, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Empty(t, string(raw))
		require.True(t, fault.Is(<-closed, fault.Canceled))
		require.NoError(t, c.Close())
	}
}

// Large requests take turns at what they keep a processor for, and not at waiting.
func TestALargeRequestThatWaitsLetsTheNextOneBegin(t *testing.T) {
	t.Parallel()
	all := runtime.GOMAXPROCS(0) + 2
	var waiting atomic.Int64
	met := make(chan struct{})
	addr, _ := start(t, func(_ context.Context, c httpapi.Call) (httpapi.Answer, error) {
		c.Waits()
		if waiting.Add(1) == int64(all) {
			close(met)
		}
		select {
		case <-met:
			return nil, fault.New(fault.NoFunds, "no")
		case <-time.After(patience):
			return nil, fault.New(fault.Timeout, "the others did not begin")
		}
	})
	body := minimal + strings.Repeat(" ", bodyMax-len(minimal))
	require.Equal(t, httpapi.LargeBytes, len(body))
	var asking sync.WaitGroup
	for range all {
		asking.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+goodKey)
			resp, err := client(t).Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			if _ = resp.Body.Close(); resp.StatusCode != 402 {
				t.Error(resp.StatusCode)
			}
		})
	}
	asking.Wait()
}
