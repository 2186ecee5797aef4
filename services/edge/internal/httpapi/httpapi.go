// Package httpapi is the only user of the HTTP framework: routes, bodies,
// streams, keep-alives, and the notice that a client has left. It turns bytes
// into calls and events into bytes with the codecs that it is handed, and knows
// nothing of money, workers or the bus. Nothing of a request object is used
// after its handler has returned: the framework reuses it.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec"
	"github.com/engy-ai/engy/services/edge/internal/codec/anthropic"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
)

// Call is one request of a caller.
type Call struct {
	// Context ends when the client leaves or the server must stop.
	Context   context.Context
	ID        string
	Route     string
	Request   *llm.Request
	Principal bus.Principal
	// Waits tells that from now on the request waits for somebody else: the processor
	// that a large one was given is the next one's.
	Waits func()
}

// Answer is an exchange under way.
type Answer interface {
	// Next gives the events that have come, waiting at most for the given time,
	// which gives ErrIdle. After the last event it must not be called again.
	Next(ctx context.Context, wait time.Duration) ([]llm.Event, error)
	// Close ends the exchange. Cause is nil when the answer is whole, Canceled
	// when the client left, else why the caller got no answer. It may be called
	// more than once.
	Close(cause error)
}

// ErrIdle says that nothing happened while Next waited.
var ErrIdle = fault.New(fault.Timeout, "nothing happened")

// errLeft and errStopping are why a call's context ends.
var (
	errLeft     = fault.New(fault.Canceled, "the client left")
	errStopping = fault.New(fault.Unavailable, "the server is stopping")
)

// Config holds the bounds of the server. Sizes are bytes.
type Config struct {
	Listen       string
	BodyBytesMax int
	// LargeBytesMax bounds the bodies of a megabyte and more that are under way.
	LargeBytesMax  int64
	HeaderBytesMax int
	KeepAlive      time.Duration
	// WriteWait is how long one write may block on a client that does not read.
	WriteWait   time.Duration
	Grace       time.Duration
	RequestsMax int64
	// Origins are the origins whose pages may use the API in a browser; a star
	// stands for all.
	Origins []string
	// Proxies are the networks of proxies in front of the server, whose
	// X-Forwarded-For is believed.
	Proxies []netip.Prefix
}

// Deps is what the server is handed.
type Deps struct {
	Codecs []codec.Codec
	// Speaker gives the codec in whose words a path is answered that no codec
	// serves.
	Speaker func(path string) codec.Codec
	// Check turns a key into a principal.
	Check func(secret string) (bus.Principal, error)
	// Open admits a call and starts it.
	Open func(ctx context.Context, call Call) (Answer, error)
	// Dropped hears of a body that no Answer came of.
	Dropped func(bytes int)
	// Models lists what is served now; Model finds one of them by any spelling.
	Models func() []openai.Model
	Model  func(spelling string) (openai.Model, bool)
	// Count tells how many tokens the prompt of a request has.
	Count func(context.Context, *llm.Request) (int64, error)
	NewID func() string
	// Healthy tells whether the server could serve.
	Healthy func() bool
	Log     *slog.Logger
	Ready   func(addr net.Addr)
}

// Server serves the API. Use New.
type Server struct {
	cfg      Config
	deps     Deps
	app      *fiber.App
	watch    *watcher
	base     context.Context
	cut      context.CancelCauseFunc
	open     atomic.Int64
	large    *semaphore.Weighted // of bodies being read into requests
	draining atomic.Bool
	gate     *gate
	// counting has a place for each prompt that is counted now.
	counting chan struct{}
	// posts holds the routes of codecs, as method, blank, path.
	posts map[string]bool
	// strangers holds why a head's key was refused. The framework empties the
	// head before it tells that a body was too large, but keeps its address.
	strangers sync.Map
}

// New prepares a server.
func New(cfg Config, deps Deps) (*Server, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, fmt.Errorf("socket watch: %w", err)
	}
	s := &Server{
		cfg: cfg, deps: deps, watch: w,
		large:    semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
		gate:     &gate{bodyMax: int64(cfg.BodyBytesMax), largeMax: cfg.LargeBytesMax, proxies: cfg.Proxies, dropped: deps.Dropped},
		counting: make(chan struct{}, countSlots()), posts: map[string]bool{},
	}
	s.app = fiber.New(fiber.Config{
		DisableStartupMessage: true, CaseSensitive: true, StrictRouting: true,
		BodyLimit: cfg.BodyBytesMax, ReadBufferSize: cfg.HeaderBytesMax,
		// Read buffers are as large as the largest header; they are given back
		// while an answer is made.
		ReduceMemoryUsage: true,
		ReadTimeout:       readTimeout, IdleTimeout: idleTimeout,
		// A write timeout would cut streams; each write has its own deadline.
		WriteTimeout: 0,
		ErrorHandler: s.fail, DisableDefaultContentType: true, ServerHeader: "",
		DisablePreParseMultipartForm: true,
	})
	s.app.Server().CloseOnShutdown = true
	s.app.Server().SecureErrorLogMessage = true
	s.app.Server().HeaderReceived = s.headReceived
	s.app.Server().Logger = quiet{deps.Log}
	s.routes()
	return s, nil
}

// headReceived bounds the body before any of it is read: one that comes without
// a good key is not read at all, but for routes that need none, which have a gate
// of their own. The refusal follows in fail, as an answer.
func (s *Server) headReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	path, _, _ := strings.Cut(string(h.RequestURI()), "?")
	s.strangers.Delete(h)
	if slices.Contains(s.gate.routes, string(h.Method())+" "+path) {
		return fasthttp.RequestConfig{MaxRequestBodySize: s.cfg.BodyBytesMax, ReadTimeout: countReadWait}
	}
	if _, err := s.deps.Check(secret(h, s.deps.Speaker(path))); err != nil {
		s.strangers.Store(h, err)
		return fasthttp.RequestConfig{MaxRequestBodySize: strangerBytesMax}
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: s.cfg.BodyBytesMax}
}

// quiet keeps the framework's own messages, which may quote requests, out of
// the log.
type quiet struct{ log *slog.Logger }

func (q quiet) Printf(string, ...any) { q.log.Debug("connection ended by an error") }

func (s *Server) routes() {
	s.app.Get("/healthz", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusOK) })
	s.app.Get("/readyz", func(c *fiber.Ctx) error {
		if s.draining.Load() || !s.deps.Healthy() {
			return c.SendStatus(fiber.StatusServiceUnavailable)
		}
		// Who shows a key asks whether it is known here yet, without a request that
		// would have to be refused.
		if key := secret(&c.Request().Header, s.deps.Speaker(c.Path())); key != "" {
			if _, err := s.deps.Check(key); err != nil {
				return c.SendStatus(fiber.StatusUnauthorized)
			}
		}
		return c.SendStatus(fiber.StatusOK)
	})
	s.app.Use(s.origin)
	s.app.Get("/v1/models", s.models)
	s.app.Get("/v1/models/+", s.model)
	for _, cd := range s.deps.Codecs {
		for _, route := range cd.Routes() {
			s.post(route, func(c *fiber.Ctx) error { return s.text(c, cd, route) })
		}
		counter, ok := cd.(codec.Counter)
		if !ok {
			continue
		}
		for _, route := range counter.CountRoutes() {
			s.gate.routes = append(s.gate.routes, route)
			s.post(route, func(c *fiber.Ctx) error { return s.count(c, cd, counter, route) })
		}
	}
}

func (s *Server) post(route string, serve fiber.Handler) {
	method, path, _ := strings.Cut(route, " ")
	s.posts[route] = true
	s.app.Add(method, path, serve)
}

// Serve takes requests until ctx ends, and then drains.
func (s *Server) Serve(ctx context.Context) error {
	var lc net.ListenConfig
	plain, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	ln := listener{plain, s.cfg.WriteWait, s.gate, s.watch}
	s.base, s.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.cut(errStopping)
	defer s.watch.close()
	served := make(chan error, 1)
	go func() { served <- s.app.Listener(ln) }()
	if s.deps.Ready != nil {
		s.deps.Ready(plain.Addr())
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	grace := time.AfterFunc(s.cfg.Grace, func() { s.cut(errStopping) })
	defer grace.Stop()
	if err := s.app.ShutdownWithTimeout(s.cfg.Grace + stopWait); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop serving: %w", err)
	}
	// A stop that came before the framework had begun has not reached it.
	if err := plain.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving: %w", err)
	}
	if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving: %w", err)
	}
	return nil
}

// fail answers what no handler answered: unknown routes, bodies and headers
// over their limits, requests that cannot be read.
func (s *Server) fail(c *fiber.Ctx, err error) error {
	c.Request().SwapBody(nil) // the framework would keep what came of it for the next
	if cn, ok := c.Context().Conn().(*conn); ok {
		// Who has the answer may ask again before the connection has ended.
		cn.pass.Load().leave()
	}
	speaker := s.speaker(c)
	id := string(c.Response().Header.Peek(headerRequestID))
	if id == "" {
		id = s.deps.NewID()
	}
	name(c, speaker, id)
	refusal := refusedAtHead(c.Context().Conn())
	var known *fiber.Error
	status := 0
	if errors.As(err, &known) {
		status = known.Code
	}
	switch {
	case refusal != nil && status != fiber.StatusRequestEntityTooLarge:
		linger(c.Context().Conn())
		err = refusal
	case status == fiber.StatusNotFound:
		err = fault.New(fault.NotFound, "no such route")
	case status == fiber.StatusMethodNotAllowed:
		err = fault.New(fault.NotFound, "this route does not take the method")
		status = fiber.StatusNotFound
	case status == fiber.StatusRequestEntityTooLarge:
		linger(c.Context().Conn())
		if refused, ok := s.strangers.LoadAndDelete(&c.Request().Header); ok {
			err, status = refused.(error), 0
			c.Set(fiber.HeaderConnection, "close")
			break
		}
		err = fault.New(fault.TooLarge, fmt.Sprintf("the body is larger than the limit of %d bytes", s.cfg.BodyBytesMax))
	case status == fiber.StatusRequestHeaderFieldsTooLarge:
		err = fault.New(fault.HeadTooLarge, "the headers are too large")
		linger(c.Context().Conn())
	case status == 0:
		if fault.Of(err).Code == fault.Internal {
			s.deps.Log.Error("request failed", "request", id, "error", err)
		}
	default:
		err = fault.New(fault.Invalid, "the request cannot be read")
	}
	retry(c, err)
	code, body := speaker.Error(err, id)
	if status != 0 && status != fiber.StatusNotFound {
		c.Set(fiber.HeaderConnection, "close")
	}
	return send(c, code, body)
}

// speaker gives the codec in whose words a request is answered that no handler
// answers. The framework may have emptied the head by now; the connection knows
// its path.
func (s *Server) speaker(c *fiber.Ctx) codec.Codec {
	path := c.Path()
	if cn, ok := c.Context().Conn().(*conn); ok && len(cn.framing.target) > 0 {
		path = string(cn.framing.target)
	}
	if listing(path) && c.Get(headerAnthropic) != "" {
		return anthropic.Codec{}
	}
	return s.deps.Speaker(path)
}

func send(c *fiber.Ctx, status int, body []byte) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Status(status)
	c.Response().SetBodyRaw(body)
	return nil
}
