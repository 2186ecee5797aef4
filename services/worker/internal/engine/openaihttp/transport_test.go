package openaihttp_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// An engine may refuse a large request before it has read all of it.
func TestARefusalThatComesBeforeTheRequestIsSentIsRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 1024))
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"+
			"HTTP/1.1 413 Request Entity Too Large\r\nConnection: close\r\nContent-Length: 26\r\n\r\n"+`{"error":{"message":"no"}}`)
		// What is unread when a socket closes makes its peer lose the answer.
		_, _ = io.Copy(io.Discard, c)
	}()
	e, err := openaihttp.New(openaihttp.Config{URL: "http://" + l.Addr().String(), Kind: "vllm"})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	req := &llm.Request{Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(strings.Repeat("x", 8<<20))}}}}}
	_, err = e.Generate(t.Context(), "m", req, func(llm.Event) error { return nil })
	require.True(t, fault.Is(err, fault.Invalid), err)
	require.ErrorContains(t, err, "no")
}

// A connection to an encrypted engine is the library's business; an engine whose
// certificate nobody signed is not spoken to.
func TestAnEncryptedEngineMustProveItself(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	s.Config.ErrorLog = nil
	e, err := openaihttp.New(openaihttp.Config{URL: s.URL, Kind: "vllm"})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	_, err = e.Generate(t.Context(), "m", &llm.Request{}, func(llm.Event) error { return nil })
	require.True(t, fault.Is(err, fault.Unavailable), err)
	require.ErrorContains(t, err, "certificate")
}
