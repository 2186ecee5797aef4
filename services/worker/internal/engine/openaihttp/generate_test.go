package openaihttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// open starts a fake engine and gives a client of it.
func open(t testing.TB, cfg openaihttp.Config, h http.Handler) *openaihttp.Engine {
	t.Helper()
	srv := httptest.NewServer(h)
	cfg.URL = srv.URL
	e, err := openaihttp.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close(); srv.Close() })
	return e
}

// serve answers every request with a stream.
func serve(stream []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = w.Write(stream)
	}
}

func ask() *llm.Request {
	return &llm.Request{MaxTokens: 64, Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim("hello")}}}}}
}

func ignore(llm.Event) error { return nil }

// mustAnswer gives the folded answer.
func mustAnswer(t testing.TB, e *openaihttp.Engine) *llm.Response {
	t.Helper()
	var f llm.Fold
	_, err := e.Generate(t.Context(), "m", ask(), f.Add)
	require.NoError(t, err)
	r, err := f.Response()
	require.NoError(t, err)
	r.Pieces = nil // the order of text and calls is the fold's business
	return r
}

// patience bounds every wait; a good run needs a fraction of it.
const patience = 30 * time.Second

func TestGenerateIsTheSameOverHTTP(t *testing.T) {
	t.Parallel()
	for name, want := range conformance() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, openaihttp.Config{Kind: openaihttp.OpenAI, Key: "k"}, http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer k" ||
						r.Header.Get("Content-Type") != "application/json" || r.Header["Idempotency-Key"] != nil {
						w.WriteHeader(http.StatusTeapot)
						return
					}
					serve(fixture(t, name))(w, r)
				}))
			for range 3 {
				require.Equal(t, &want, mustAnswer(t, e))
			}
		})
	}
}

func TestAnAnswerInOnePieceIsTheSameEvents(t *testing.T) {
	t.Parallel()
	body := `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"It is.",` +
		`"reasoning":"hm","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"a":1}}}]},` +
		`"logprobs":{"content":[{"token":"It"}]},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":2454,"completion_tokens":23,"prompt_tokens_details":{"cached_tokens":2450}}}`
	e := open(t, openaihttp.Config{Kind: openaihttp.OpenAI}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	require.Equal(t, &llm.Response{
		Text: "It is.", Reasoning: "hm", Calls: []llm.Call{{ID: "c", Name: "f", Arguments: `{"a":1}`}},
		Logprobs: []json.RawMessage{json.RawMessage(`[{"token":"It"}]`)},
		Finish:   llm.ToolCalls, Usage: llm.Usage{Prompt: 2454, Cached: 2450, Completion: 23},
	}, mustAnswer(t, e))
}

func TestRefusalsBecomeFaults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 2000)
	for name, c := range map[string]struct {
		status  int
		body    string
		code    fault.Code
		message string
	}{
		"nested":         {400, `{"error":{"code":400,"message":"the request exceeds the available context size (512 tokens)","type":"exceed_context_size_error"}}`, fault.Overlong, "the request exceeds the available context size (512 tokens)"},
		"flat":           {400, `{"object":"error","message":"Requested token count exceeds 8192.","type":"BadRequestError","param":null,"code":400}`, fault.Invalid, "Requested token count exceeds 8192."},
		"framework":      {422, `{"detail":"field required"}`, fault.Invalid, "field required"},
		"framework list": {422, `{"detail":[{"loc":["body"],"msg":"bad","input":"secret"}]}`, fault.Invalid, "the engine refused the request"},
		"a string":       {400, `{"error":"think value \"low\" is not supported for this model"}`, fault.Invalid, `think value "low" is not supported for this model`},
		"empty":          {413, ``, fault.Invalid, "the engine refused the request"},
		"not printable":  {400, `{"error":{"message":"a\u0000b\nc\u202ed"}}`, fault.Invalid, "a b c d"},
		"long":           {400, `{"error":{"message":"` + long + `"}}`, fault.Invalid, long[:openaihttp.MessageBytesMax]},
		"with the input": {400, `{"error":{"message":"1 validation error: {'type': 'x', 'input': 'secret'}"}}`, fault.Invalid, "1 validation error: {'type': 'x',"},
		"no such model":  {404, `{"error":{"message":"model \"m\" not found"}}`, fault.Engine, "the engine failed"},
		"busy":           {429, `{"error":{"message":"queue is full"}}`, fault.Busy, "the engine is busy"},
		"loading":        {503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, fault.Busy, "the engine is busy"},
		"broken":         {500, `{"error":{"message":"CUDA out of memory at /opt/x"}}`, fault.Engine, "the engine failed"},
		"key":            {401, `{"error":"Unauthorized"}`, fault.Engine, "the engine failed"},
		"moved":          {302, ``, fault.Engine, "the engine failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			usage, err := e.Generate(t.Context(), "m", ask(), ignore)
			f := fault.Of(err)
			require.Equal(t, c.code, f.Code, err)
			require.Equal(t, c.message, f.Message)
			require.Zero(t, usage)
		})
	}
}

func TestTheEnginesAddressIsNotShown(t *testing.T) {
	t.Parallel()
	var host string
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host = r.Host
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"see http://%s/docs"}}`, r.Host)
	}))
	_, err := e.Generate(t.Context(), "m", ask(), ignore)
	require.Equal(t, "see http://engine/docs", fault.Of(err).Message)
	require.NotEmpty(t, host)
}

func TestAnEngineThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", openaihttp.VLLM} {
		// Nobody is given a port as low as that one.
		e, err := openaihttp.New(openaihttp.Config{URL: "http://127.0.0.1:1", Kind: kind})
		require.NoError(t, err)
		_, err = e.Generate(t.Context(), "m", ask(), ignore)
		require.True(t, fault.Is(err, fault.Unavailable), err)
		require.Equal(t, "the engine cannot be reached", fault.Of(err).Message)
		_, err = e.Facts(t.Context())
		require.True(t, fault.Is(err, fault.Unavailable), err)
		require.True(t, fault.Is(e.Health(t.Context()), fault.Unavailable))
	}
}

// hang sends a beginning and then nothing, until the client has gone.
func hang(begin string, gone chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		// The body is read to its end, or the server would not see the client go.
		_, _ = io.Copy(io.Discard, r.Body)
		if begin != "" {
			_, _ = io.WriteString(w, begin)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		close(gone)
	}
}

const hello = `data: {"choices":[{"index":0,"delta":{"content":"hel"},"finish_reason":null}],` +
	`"usage":{"prompt_tokens":7,"completion_tokens":1}}` + "\n\n"

func TestCancelFreesTheEngine(t *testing.T) {
	t.Parallel()
	left := fault.New(fault.Canceled, "the client left")
	for name, c := range map[string]struct {
		begin string
		cause error
		code  fault.Code
	}{
		"before the first byte":     {"", nil, fault.Canceled},
		"in the middle":             {hello, nil, fault.Canceled},
		"with a cause of its own":   {hello, left, fault.Canceled},
		"with a cause without code": {hello, errors.New("drained"), fault.Canceled},
		"at a deadline":             {hello, context.DeadlineExceeded, fault.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			begun := make(chan struct{}, 1)
			h := hang(c.begin, gone)
			e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.begin == "" {
					begun <- struct{}{}
				}
				h(w, r)
			}))
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-begun
				cancel(c.cause)
			}()
			usage, err := e.Generate(ctx, "m", ask(), func(llm.Event) error { begun <- struct{}{}; return nil })
			require.True(t, fault.Is(err, c.code), err)
			require.ErrorIs(t, err, context.Cause(ctx))
			if c.begin != "" {
				require.Equal(t, llm.Usage{Prompt: 7, Completion: 1}, usage, "what was produced is known")
			}
			<-gone
		})
	}
}

func TestSGLangIsToldToStop(t *testing.T) {
	t.Parallel()
	gone, rids := make(chan struct{}), make(chan string, 2)
	read := func(r *http.Request) {
		var body struct {
			RID string `json:"rid"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		rids <- body.RID
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /abort_request", func(_ http.ResponseWriter, r *http.Request) { read(r) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		read(r)
		hang(hello, gone)(w, r)
	})
	e := open(t, openaihttp.Config{Kind: openaihttp.SGLang}, mux)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := e.Generate(ctx, "m", ask(), func(llm.Event) error { cancel(); return nil })
	require.True(t, fault.Is(err, fault.Canceled), err)
	rid := <-rids
	require.NotEmpty(t, rid)
	require.Equal(t, rid, <-rids)
	<-gone
}

func TestAnErrorOfTheSinkComesBackAndEndsTheWork(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, hang(hello, gone))
	full := errors.New("sink is full")
	usage, err := e.Generate(t.Context(), "m", ask(), func(llm.Event) error { return full })
	require.Equal(t, full, err)
	require.Equal(t, llm.Usage{Prompt: 7, Completion: 1}, usage)
	<-gone
}

func TestASilentEngineIsATimeout(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"before the first byte": "", "in the middle": hello} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			// Long enough for the request to reach the engine.
			e := open(t, openaihttp.Config{Kind: openaihttp.VLLM, Idle: 3 * time.Second}, hang(begin, gone))
			_, err := e.Generate(t.Context(), "m", ask(), ignore)
			require.True(t, fault.Is(err, fault.Timeout), err)
			<-gone
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestOnlyWaitingForTheEngineCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		tired := false
		wait := idle - 1
		w := openaihttp.NewWatch(readerFunc(func([]byte) (int, error) {
			<-time.After(wait)
			return 1, nil
		}), idle, func() { tired = true })
		for range 3 {
			_, err := w.Read(nil)
			require.NoError(t, err)
			<-time.After(2 * idle) // the sink takes its time
			require.False(t, tired)
		}
		wait = idle + 1
		_, err := w.Read(nil)
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, tired)
	})
}

func TestARequestOnAConnectionThatJustClosedIsSentAgain(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	again := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer l.Close()
	// A connection answers once and closes when it is used again, as an engine does
	// whose patience for idle connections ends just then; the next one answers.
	cut := sync.OnceFunc(func() { close(again) })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				req, err := http.ReadRequest(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				body := fixture(t, "simulator")
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				if _, err := r.ReadByte(); err == nil {
					cut()
				}
			})
		}
	})
	e, err := openaihttp.New(openaihttp.Config{URL: "http://" + l.Addr().String() + "/v1/", Kind: openaihttp.VLLM})
	require.NoError(t, err)
	defer e.Close()
	// Not every connection is free in time for the next request.
	first := mustAnswer(t, e)
	for begun := time.Now(); ; {
		require.Equal(t, first, mustAnswer(t, e))
		select {
		case <-again:
			return
		default:
			require.Less(t, time.Since(begun), patience, "no connection was used again")
		}
	}
}

// A connection is worth keeping only when the engine ends its answer at once.
func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	for name, lingers := range map[string]bool{"after an answer that ended": false, "not after one that did not": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns atomic.Int64
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				serve(fixture(t, "vllm"))(w, r)
				_ = http.NewResponseController(w).Flush()
				if lingers {
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
				}
			}))
			srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					conns.Add(1)
				}
			}
			srv.Start()
			defer srv.Close()
			e, err := openaihttp.New(openaihttp.Config{URL: srv.URL, Kind: openaihttp.VLLM})
			require.NoError(t, err)
			defer e.Close()
			if lingers {
				require.Equal(t, mustAnswer(t, e), mustAnswer(t, e))
				require.EqualValues(t, 2, conns.Load())
				return
			}
			// On a busy machine an end may come too late, though not each time.
			first := mustAnswer(t, e)
			for answers := int64(2); ; answers++ {
				require.Equal(t, first, mustAnswer(t, e))
				if conns.Load() < answers {
					return
				}
				require.Less(t, answers, int64(1000), "no connection was used again")
			}
		})
	}
}

func TestACountIsAskedForWhenTheEngineGaveNone(t *testing.T) {
	t.Parallel()
	stream := []byte(`data: {"choices":[{"index":0,"delta":{"content":"It"}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"content":" is"},"finish_reason":"stop"}]}` + "\n\n")
	bodies := make(chan []byte, 2)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/chat/completions", serve(stream))
	mux.HandleFunc("/tokenize", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- body
		_, _ = io.WriteString(w, `{"count":11,"max_model_len":4096,"tokens":[1]}`)
	})
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, mux)
	require.Equal(t, llm.Usage{Prompt: 11, Completion: 2}, mustAnswer(t, e).Usage)
	require.JSONEq(t, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, string(<-bodies))

	// The count comes too when the answer is not wanted any more.
	ctx, cancel := context.WithCancel(t.Context())
	usage, err := e.Generate(ctx, "m", ask(), func(llm.Event) error { cancel(); return context.Canceled })
	require.Error(t, err)
	require.Equal(t, llm.Usage{Prompt: 11, Completion: 1}, usage)
}

func TestManyStreamsDoNotMixUp(t *testing.T) {
	t.Parallel()
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []struct{ Content string } }
		_ = json.NewDecoder(r.Body).Decode(&body)
		var b bytes.Buffer
		for range 50 {
			fmt.Fprintf(&b, `data: {"choices":[{"index":0,"delta":{"content":%q}}]}`+"\n\n", body.Messages[0].Content)
		}
		b.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n")
		serve(b.Bytes())(w, r)
	}))
	errs := make(chan error)
	for i := range 20 {
		go func() {
			word := fmt.Sprintf("word%d ", i)
			req := &llm.Request{Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(word)}}}}}
			var f llm.Fold
			_, err := e.Generate(t.Context(), "m", req, f.Add)
			if r, foldErr := f.Response(); err == nil && (foldErr != nil || r.Text != strings.Repeat(word, 50)) {
				err = errors.New("answer is another's")
			}
			errs <- err
		}()
	}
	for range 20 {
		require.NoError(t, <-errs)
	}
}
