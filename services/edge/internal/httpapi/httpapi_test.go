package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/httpapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The framework keeps one goroutine for the time of day for good.
		goleak.IgnoreAnyFunction("github.com/gofiber/fiber/v2/utils.StartTimeStampUpdater.func1.1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

const (
	goodKey    = "sk-engy-good"
	pageOrigin = "https://page.example"
	bodyMax    = 1 << 20
	headMax    = 64 << 10
	// patience bounds every wait; a good run needs a fraction of it.
	patience = 30 * time.Second
	minimal  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	streamed = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

// answer is an exchange of a few lines.
type answer struct {
	next   func(ctx context.Context, wait time.Duration) ([]llm.Event, error)
	closed func(cause error)
}

func (a answer) Next(ctx context.Context, wait time.Duration) ([]llm.Event, error) {
	return a.next(ctx, wait)
}

func (a answer) Close(cause error) {
	if a.closed != nil {
		a.closed(cause)
	}
}

func done() llm.Event {
	return llm.Event{
		Kind: llm.Done, Finish: llm.Stop, Usage: &llm.Usage{Prompt: 2, Completion: 1},
		Receipt: &llm.Receipt{RequestID: "r", ChargedMicro: 7},
	}
}

// good answers at once.
func good(context.Context, httpapi.Call) (httpapi.Answer, error) {
	return answer{next: func(context.Context, time.Duration) ([]llm.Event, error) {
		return []llm.Event{{Kind: llm.Text, Text: "hello"}, done()}, nil
	}}, nil
}

type open func(ctx context.Context, c httpapi.Call) (httpapi.Answer, error)

// start serves for one test and gives the address, and a function that stops.
func start(t *testing.T, o open) (addr string, stop func() error) {
	t.Helper()
	return startNoting(t, o, func(int) {})
}

// startNoting is start for who hears of bodies that were dropped.
func startNoting(t *testing.T, o open, dropped func(bytes int)) (addr string, stop func() error) {
	t.Helper()
	return startWith(t, o, dropped, func(*httpapi.Config) {})
}

// startWith is startNoting with another configuration.
func startWith(t *testing.T, o open, dropped func(bytes int), change func(*httpapi.Config)) (addr string, stop func() error) {
	t.Helper()
	_, addr, stop = startServer(t, o, dropped, change)
	return addr, stop
}

// startServer is startWith for who looks into the server.
func startServer(t *testing.T, o open, dropped func(bytes int), change func(*httpapi.Config)) (s *httpapi.Server, addr string, stop func() error) {
	t.Helper()
	ids := 0
	var mu sync.Mutex
	ready := make(chan net.Addr, 1)
	cfg := httpapi.Config{
		Listen: "127.0.0.1:0", BodyBytesMax: bodyMax, LargeBytesMax: 1 << 30, HeaderBytesMax: headMax,
		KeepAlive: 50 * time.Millisecond, WriteWait: patience, Grace: 300 * time.Millisecond, RequestsMax: 1000,
		Origins: []string{pageOrigin},
	}
	change(&cfg)
	s, err := httpapi.New(cfg, httpapi.Deps{
		Codecs: codec.Text(), Speaker: codec.Speaker,
		Check: func(secret string) (bus.Principal, error) {
			if secret != goodKey {
				return bus.Principal{}, fault.New(fault.Unauthorized, "the API key is not valid")
			}
			return bus.Principal{Account: "a", Key: "k"}, nil
		},
		Open: o, Dropped: dropped,
		Models: func() []openai.Model { return []openai.Model{{ID: "glm-5.2", Object: "model"}} },
		Model: func(spelling string) (openai.Model, bool) {
			return openai.Model{ID: "glm-5.2"}, strings.HasSuffix(spelling, "glm-5.2")
		},
		Count: func(_ context.Context, r *llm.Request) (int64, error) {
			if r.Model == "none" {
				return 0, fault.New(fault.NotFound, "no such model")
			}
			chars, _ := r.Chars()
			return int64(chars), nil
		},
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("%064d", ids)
		},
		Healthy: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
		Ready: func(a net.Addr) { ready <- a },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { require.NoError(t, stop()) })
	return s, (<-ready).String(), stop
}

// client gives an HTTP client that keeps nothing after the test.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func post(t *testing.T, addr, path, key, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+path, strings.NewReader(body))
	require.NoError(t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client(t).Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	raw, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(raw)
}

// raw sends bytes and reads all that comes back.
func raw(t *testing.T, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	got, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		var ne net.Error
		require.False(t, errors.As(err, &ne) && ne.Timeout(), "the connection was left open: %q", got)
	}
	return string(got)
}

func TestAnAnswerComesInBothForms(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	resp := post(t, addr, "/v1/chat/completions", goodKey, minimal)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "7", resp.Header.Get("X-Engy-Charged-Micro"))
	require.Len(t, resp.Header.Get("X-Engy-Request-Id"), 64)
	require.Contains(t, read(t, resp.Body), `"content":"hello"`)
	resp = post(t, addr, "/v1/chat/completions", goodKey, streamed)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Len(t, resp.Header.Get("X-Engy-Request-Id"), 64)
	require.True(t, strings.HasSuffix(read(t, resp.Body), "data: [DONE]\n\n"))
}

func TestTheKeyBelongsToTheRoute(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	for _, path := range []string{
		"/V1/Chat/Completions", "/v1/chat/completions/", "//v1/chat/completions", "/v1/Messages",
		"/v1/models/..%2fchat%2fcompletions", "/v1/models/%2e%2e/messages", "/v1/models%00/../chat/completions",
		"/v1/models/%252e%252e%252fchat", "/v1/chat/completions", "/v1/../v1/chat/completions", "/",
		"/v1/messages", "/v1/messages/", "//v1/messages", "/V1/messages", "/v1/messages/COUNT_TOKENS",
		"/v1/messages/count_tokens/", "//v1/messages/count_tokens", "/v1/messages/count_tokens/..%2f..%2fmessages",
		"/v1/messages/count_tokens/%2e%2e", "/v1/messages/count_tokens/../../messages", "/v1/messages/count_tokens%2f..",
		"/v1/messages/count_tokens/..%252f..%252fmessages", "/v1/messages/count_tokens%00", "/v1/messages/count%5ftokens",
		"/v1/Responses", "/v1/responses/", "/v2/Video_generation",
	} {
		for _, method := range []string{"POST", "GET", "HEAD", "OPTIONS"} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr, strings.NewReader(minimal))
			require.NoError(t, err)
			req.URL.Opaque = "//" + addr + path
			req.Header.Set("X-HTTP-Method-Override", "POST")
			resp, err := client(t).Do(req)
			require.NoError(t, err)
			body := read(t, resp.Body)
			_ = resp.Body.Close()
			require.Contains(t, []int{400, 401, 404, 405}, resp.StatusCode, "%s %s: %s", method, path, body)
			if method != "HEAD" {
				require.Contains(t, body, `"error"`, "%s %s", method, path)
			}
		}
	}
}

func TestModelsNeedNoKey(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	for path, status := range map[string]int{
		"/v1/models": 200, "/v1/models/glm-5.2": 200, "/v1/models/engy%2Fglm-5.2": 200, "/v1/models/engy/glm-5.2": 200,
		"/v1/models/none": 404, "/healthz": 200, "/readyz": 200,
	} {
		resp, err := client(t).Get("http://" + addr + path)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode, path)
		_ = resp.Body.Close()
	}
}

func TestReadinessTellsOfAKeyWhetherItIsKnown(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	for authorization, status := range map[string]int{
		"": 200, "Bearer " + goodKey: 200, "Bearer sk-engy-unknown-0123": 401, "Basic eDp5": 200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", authorization)
		resp, err := client(t).Do(req)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode, authorization)
		_ = resp.Body.Close()
	}
}

func TestSizesAtTheDoor(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	pad := func(n int) string {
		return minimal + strings.Repeat(" ", n-len(minimal))
	}
	t.Run("a body at the limit is taken", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 200, post(t, addr, "/v1/chat/completions", goodKey, pad(bodyMax)).StatusCode)
	})
	t.Run("a body over it gets 413, as an answer", func(t *testing.T) {
		t.Parallel()
		for _, size := range []int{bodyMax + 1, 32 * bodyMax} {
			for _, chunked := range []bool{false, true} {
				var body io.Reader = strings.NewReader(pad(size))
				if chunked {
					body = io.MultiReader(body)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", body)
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+goodKey)
				resp, err := client(t).Do(req)
				require.NoError(t, err, "size %d, chunked %v", size, chunked)
				require.Equal(t, 413, resp.StatusCode)
				require.NotEmpty(t, resp.Header.Get("X-Engy-Request-Id"))
				require.Contains(t, read(t, resp.Body), "request_too_large")
				_ = resp.Body.Close()
			}
		}
	})
	t.Run("headers of 60 KiB are taken, of 200 KiB get 431", func(t *testing.T) {
		t.Parallel()
		for size, status := range map[int]int{6 << 10: 200, 60 << 10: 200, 200 << 10: 431} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(minimal))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+goodKey)
			req.Header.Set("X-Pad", strings.Repeat("a", size))
			resp, err := client(t).Do(req)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode, "%d bytes", size)
			_ = resp.Body.Close()
		}
	})
}

func TestARequestCannotBeReadTwoWays(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 100)
	addr, _ := start(t, func(ctx context.Context, c httpapi.Call) (httpapi.Answer, error) {
		calls <- c.Request.Model
		return good(ctx, c)
	})
	hidden := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + goodKey +
		"\r\nContent-Length: " + fmt.Sprint(len(minimal)) + "\r\n\r\n" + minimal
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + goodKey + "\r\n"
	for name, request := range map[string]string{
		"chunked twice":        head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":          head + "Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello" + hidden,
		"length and chunked":   head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"gzip, chunked":        head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
		"a blank before colon": head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
		"a signed length":      head + "Content-Length: +5\r\n\r\nhello" + hidden,
		"bare line feeds":      strings.ReplaceAll(head, "\r\n", "\n") + "Content-Length: 5\n\nhello" + hidden,
		"a folded header":      head + "Content-Length:\r\n 5\r\n\r\nhello" + hidden,
		"no length, a body":    head + "Transfer-Encoding: identity\r\n\r\n" + hidden,
		"a prefixed chunk":     head + "Transfer-Encoding: chunked\r\n\r\n0xff\r\n\r\n" + hidden,
		"two lengths, short":   head + "Content-Length: 5\r\nContent-Length: 5000\r\n\r\nhello",
	} {
		got := raw(t, addr, request)
		require.True(t, strings.HasPrefix(got, "HTTP/1.1 400 "), "%s: %q", name, got)
		require.Equal(t, 1, strings.Count(got, "HTTP/1.1 "), "%s: %q", name, got)
	}
	require.Empty(t, calls)
}

func TestPipelinedRequestsAreAllAnswered(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	one := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + goodKey + "\r\nContent-Length: " + fmt.Sprint(len(minimal)) + "\r\n\r\n" + minimal
	got := raw(t, addr, one+one+"\r\n"+strings.Replace(one, "Host: x", "Host: x\r\nConnection: close", 1))
	require.Equal(t, 3, strings.Count(got, "HTTP/1.1 200 OK"), got)
	// A kept connection's bad request is refused like a first one.
	got = raw(t, addr, one+strings.Replace(one, "Host: x", "Host : x", 1))
	require.Equal(t, 1, strings.Count(got, "HTTP/1.1 200 OK"), got)
}

func TestABodyWithoutAKeyIsNotRead(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		got := raw(t, addr, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"+expect+"Content-Length: 1000000\r\n\r\n{")
		require.Contains(t, got, "HTTP/1.1 401 ")
		require.Contains(t, got, "authentication_error")
	}
}

func TestAnUnknownMethodGetsAnErrorOfOurs(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	got := raw(t, addr, "FROB /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	require.True(t, strings.HasPrefix(got, "HTTP/1.1 400 "), got)
	require.Contains(t, got, "X-Engy-Request-Id")
	require.Contains(t, got, `"error"`)
}

func TestTheCallersIDIsNeverOurs(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(minimal))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+goodKey)
	req.Header.Set("X-Engy-Request-Id", "mine"+strings.Repeat("x", 10_000))
	resp, err := client(t).Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Len(t, resp.Header.Get("X-Engy-Request-Id"), 64)
	require.NotContains(t, resp.Header.Get("X-Engy-Request-Id"), "mine")
}

func TestAKeptConnectionOutlivesTheWritesOfItsStreams(t *testing.T) {
	t.Parallel()
	const wait = 2 * time.Second
	addr, _ := startWith(t, good, func(int) {}, func(c *httpapi.Config) { c.WriteWait = wait })
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	from := bufio.NewReader(c)
	for i, body := range []string{streamed, minimal} {
		if i > 0 {
			// Longer than any write may block: what the stream left behind would
			// end this connection.
			<-time.After(wait + 100*time.Millisecond)
		}
		_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", goodKey, len(body), body)
		require.NoError(t, err)
		resp, err := http.ReadResponse(from, nil)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Contains(t, read(t, resp.Body), "hello")
	}
}

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	addr, _ := startWith(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{
			next: func(context.Context, time.Duration) ([]llm.Event, error) {
				return []llm.Event{{Kind: llm.Text, Text: strings.Repeat("x", 1<<20)}}, nil
			},
			closed: func(cause error) { closed <- cause },
		}, nil
	}, func(int) {}, func(c *httpapi.Config) { c.WriteWait = 500 * time.Millisecond })
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", goodKey, len(streamed), streamed)
	require.NoError(t, err)
	select {
	case cause := <-closed:
		require.True(t, fault.Is(cause, fault.Canceled))
	case <-time.After(patience):
		require.Fail(t, "the server writes for ever")
	}
}

func TestAFailureBeforeTheFirstByteHasARealStatus(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{next: func(context.Context, time.Duration) ([]llm.Event, error) {
			return []llm.Event{{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Busy, Message: "full"}}}, nil
		}}, nil
	})
	resp := post(t, addr, "/v1/chat/completions", goodKey, streamed)
	require.Equal(t, 429, resp.StatusCode)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	resp = post(t, addr, "/v1/chat/completions", goodKey, minimal)
	require.Equal(t, 429, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
}

func TestAFailureAfterTheFirstByteIsAnEventOfItsOwn(t *testing.T) {
	t.Parallel()
	first := true
	addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{next: func(context.Context, time.Duration) ([]llm.Event, error) {
			if first {
				first = false
				return []llm.Event{{Kind: llm.Text, Text: "half"}}, nil
			}
			return []llm.Event{{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Engine, Message: "cut"}}}, nil
		}}, nil
	})
	body := read(t, post(t, addr, "/v1/chat/completions", goodKey, streamed).Body)
	require.Contains(t, body, `data: {"error":{"message":"cut"`)
	require.NotContains(t, body, "[DONE]")
	require.NotContains(t, body, `"finish_reason":"`)
}

// silent waits until the client has left, and tells why it was closed.
func silent(closed chan error) open {
	return func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{
			next: func(ctx context.Context, _ time.Duration) ([]llm.Event, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
			closed: func(cause error) { closed <- cause },
		}, nil
	}
}

func TestAClientThatLeavesIsNoticedWhileNothingFlows(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"whole": minimal, "streamed": streamed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed := make(chan error, 1)
			addr, _ := start(t, silent(closed))
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", goodKey, len(body), body)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			select {
			case cause := <-closed:
				require.True(t, fault.Is(cause, fault.Canceled), "%v", cause)
			case <-time.After(patience):
				require.Fail(t, "nobody noticed")
			}
		})
	}
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, func(ctx context.Context, c httpapi.Call) (httpapi.Answer, error) {
		if c.Request.Model == "panic-open" {
			panic("secret")
		}
		if c.Request.Model == "panic-next" {
			return answer{next: func(context.Context, time.Duration) ([]llm.Event, error) { panic("secret") }}, nil
		}
		return good(ctx, c)
	})
	for _, model := range []string{"panic-open", "panic-next"} {
		for _, body := range []string{minimal, streamed} {
			resp := post(t, addr, "/v1/chat/completions", goodKey, strings.Replace(body, `"m"`, `"`+model+`"`, 1))
			require.Equal(t, 500, resp.StatusCode)
			require.NotContains(t, read(t, resp.Body), "secret")
		}
	}
	require.Equal(t, 200, post(t, addr, "/v1/chat/completions", goodKey, minimal).StatusCode)
}

func TestAStopThatComesAtOnceIsHeard(t *testing.T) {
	t.Parallel()
	for range 50 {
		_, stop := start(t, good)
		require.NoError(t, stop())
	}
}

func TestAStopEndsStreamsAfterTheirGrace(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	first := true
	addr, stop := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{next: func(ctx context.Context, _ time.Duration) ([]llm.Event, error) {
			if first {
				first = false
				begun <- struct{}{}
				return []llm.Event{{Kind: llm.Text, Text: "half"}}, nil
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}, nil
	})
	resp := post(t, addr, "/v1/chat/completions", goodKey, streamed)
	<-begun
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "assistant")
	require.NoError(t, stop())
	require.Contains(t, read(t, resp.Body), `"error"`)
}

// What a refused request leaves in memory is known to who gives memory back.
func TestABodyThatNothingCameOfIsToldOf(t *testing.T) {
	t.Parallel()
	dropped := make(chan int, 10)
	refuse := true
	addr, _ := startNoting(t, func(ctx context.Context, c httpapi.Call) (httpapi.Answer, error) {
		if refuse {
			return nil, fault.New(fault.TooLarge, "no")
		}
		return good(ctx, c)
	}, func(bytes int) { dropped <- bytes })
	bodies := []string{`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"model":`}
	for _, body := range bodies {
		require.NotEqual(t, 200, post(t, addr, "/v1/chat/completions", goodKey, body).StatusCode)
		require.Equal(t, len(body), <-dropped)
	}
	refuse = false
	require.Equal(t, 200, post(t, addr, "/v1/chat/completions", goodKey, bodies[0]).StatusCode)
	require.Empty(t, dropped)
}
