// Package openaihttp drives engines that speak OpenAI's chat completions over
// HTTP: vLLM, SGLang, llama.cpp's server, Ollama, the simulator, and others that
// keep to the form.
//
// What lives here: the body that an engine gets (encode), the stream that it
// sends back (events, quick, decodeChunk), what that means (answer), and what
// the engine says of itself (Facts, Health). What does not: dialects of model
// families, which requests already speak when they arrive, and the names that
// models have in the catalogue. The invariant: one request becomes the same
// bytes every time, and one answer the same events however its bytes are cut.
// An answer that breaks off or makes no sense is an error, never a short answer.
// To add a kind of engine, add a row to table in quirks.go and a recorded stream
// to testdata.
package openaihttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/engy-ai/engy/pkg/fault"
)

// Config says where an engine is and how to speak to it.
type Config struct {
	// URL is where the engine listens, such as http://127.0.0.1:8000. A trailing
	// /v1 is dropped.
	URL string
	// Kind is one of the kinds of this package; empty asks the engine.
	Kind string
	// Key is sent as a bearer token; empty sends none.
	Key string
	// Idle is how long the engine may be silent, before its first byte and
	// between bytes; 0 means IdleUsual.
	Idle time.Duration
}

// Engine is one engine. It is safe for concurrent use.
type Engine struct {
	base, host, key string
	idle            time.Duration
	// fixed is set when Config names the kind; kind is what it is now, nil until
	// the engine was asked.
	fixed  bool
	kind   atomic.Pointer[quirks]
	client *http.Client
	// heard counts what came of answers: an engine that sends is alive.
	heard atomic.Int64
	// buffers are kept from stream to stream.
	buffers sync.Pool
}

// New makes ready to speak to the engine, and does not speak yet.
func New(cfg Config) (*Engine, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("engine URL is not of the form http://host:port")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("engine URL has more than a host, a port and a path")
	}
	e := &Engine{
		base: strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1"),
		host: u.Host, key: cfg.Key, idle: cfg.Idle,
		client: &http.Client{
			Transport:     newTransport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if e.idle <= 0 {
		e.idle = IdleUsual
	}
	if cfg.Kind != "" {
		q, ok := quirksOf(cfg.Kind)
		if !ok {
			return nil, fmt.Errorf("engine kind %q is not known", cfg.Kind)
		}
		e.fixed = true
		e.kind.Store(q)
	}
	return e, nil
}

// Close gives up idle connections.
func (e *Engine) Close() { e.client.CloseIdleConnections() }

// request makes a request to the engine with the headers that all have. A body
// makes it a POST.
func (e *Engine) request(ctx context.Context, path string, body []byte) (*http.Request, error) {
	method, reader := http.MethodGet, io.Reader(http.NoBody)
	if body != nil {
		method, reader = http.MethodPost, bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, reader)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "internal error", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		// An engine may close a kept connection just when it is used again. With
		// this mark, which does not travel, net/http then tries once more, as
		// long as no byte of an answer came; so does our own transport.
		req.Header["Idempotency-Key"] = []string{}
	}
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key)
	}
	return req, nil
}

// ErrLost is the cause of the end of work whose engine does not answer any more.
var ErrLost = fault.New(fault.Engine, "the engine does not answer any more")

// unreachable is what a broken connection means before an answer began.
func unreachable(cause error) *fault.Error {
	return fault.Wrap(fault.Unavailable, "the engine cannot be reached", cause)
}
