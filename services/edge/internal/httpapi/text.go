package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec"
	"github.com/engy-ai/engy/services/edge/internal/codec/anthropic"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
)

const (
	headerRequestID = "X-Engy-Request-Id"
	headerCharged   = "X-Engy-Charged-Micro"
	headerRetry     = "Retry-After"
	// headerAnthropic tells that a client expects Anthropic's form of the list of
	// models, whose path both protocols share.
	headerAnthropic = "Anthropic-Version"
)

func (s *Server) models(c *fiber.Ctx) error {
	c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	rows := s.deps.Models()
	if c.Get(headerAnthropic) != "" {
		list := make([]anthropic.Model, len(rows))
		for i := range rows {
			list[i] = anthropicModel(rows[i])
		}
		return send(c, fiber.StatusOK, anthropic.Models(list))
	}
	body, err := openai.Models(rows)
	if err != nil {
		return err
	}
	return send(c, fiber.StatusOK, body)
}

func anthropicModel(m openai.Model) anthropic.Model {
	return anthropic.Model{ID: m.ID, Created: m.Created, MaxInput: m.ContextLength, MaxOutput: m.MaxOutputTokens}
}

func (s *Server) model(c *fiber.Ctx) error {
	c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	asked, err := url.PathUnescape(c.Params("+"))
	if err != nil {
		return fault.New(fault.NotFound, "no such model")
	}
	m, ok := s.deps.Model(asked)
	if !ok {
		return fault.New(fault.NotFound, "no such model")
	}
	if c.Get(headerAnthropic) != "" {
		return send(c, fiber.StatusOK, anthropic.One(anthropicModel(m)))
	}
	body, err := openai.One(m)
	if err != nil {
		return err
	}
	return send(c, fiber.StatusOK, body)
}

// secret reads the key of a request, which a codec's clients may also send in a
// header of their own. Authorization wins, whatever it holds.
func secret(h *fasthttp.RequestHeader, cd codec.Codec) string {
	authorization := string(h.Peek(fiber.HeaderAuthorization))
	if headed, ok := cd.(codec.Headed); ok && authorization == "" {
		return strings.TrimSpace(string(h.Peek(headed.KeyHeader())))
	}
	scheme, key, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// name writes the request's id where clients look for it.
func name(c *fiber.Ctx, cd codec.Codec, id string) {
	c.Set(headerRequestID, id)
	if headed, ok := cd.(codec.Headed); ok {
		c.Set(headed.IDHeader(), id)
	}
}

// plain refuses bodies that would have to be unpacked.
func plain(c *fiber.Ctx) error {
	if e := c.Get(fiber.HeaderContentEncoding); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.Invalid, "compressed bodies are not taken")
	}
	return nil
}

// retry says when a refused caller may come again.
func retry(c *fiber.Ctx, err error) {
	if f := fault.Of(err); f.Code == fault.Busy {
		wait := max(1, min(retryMax, int((f.Retry+time.Second-1)/time.Second)))
		c.Set(headerRetry, strconv.Itoa(wait))
	}
}

// text serves one text exchange.
func (s *Server) text(c *fiber.Ctx, cd codec.Codec, route string) (err error) {
	x := &exchange{s: s, cd: cd, id: s.deps.NewID(), started: time.Now()}
	name(c, cd, x.id)
	defer func() {
		if p := recover(); p != nil {
			s.deps.Log.Error("panic", "request", x.id, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = x.refuse(c, fault.New(fault.Internal, "panic"))
		}
	}()
	if s.draining.Load() {
		c.Set(fiber.HeaderConnection, "close")
		return x.refuse(c, errStopping)
	}
	if s.open.Add(1) > s.cfg.RequestsMax {
		s.open.Add(-1)
		return x.refuse(c, fault.New(fault.Busy, "too many requests are under way"))
	}
	x.counted = true
	principal, err := s.deps.Check(secret(&c.Request().Header, cd))
	if err != nil {
		return x.refuse(c, err)
	}
	if err := plain(c); err != nil {
		return x.refuse(c, err)
	}
	// The client is watched from here on: everything after this may take long.
	x.ctx, x.cancel = context.WithCancelCause(s.base)
	x.conn = c.Context().Conn()
	x.unwatch = watch(x.conn, func() { x.cancel(errLeft) })
	// The framework gives the body away: what the codec makes of it points into it.
	if err := x.begin(route, c.Request().SwapBody(nil), principal); err != nil {
		return x.refuse(c, err)
	}
	if x.req.Stream {
		return x.stream(c)
	}
	return x.whole(c)
}

// begin reads a request and starts it. Large ones take their turn: each keeps a
// processor for a while, and many at once would keep small ones waiting.
func (x *exchange) begin(route string, body []byte, p bus.Principal) error {
	next := func() {}
	if len(body) >= LargeBytes {
		if x.s.large.Acquire(x.ctx, 1) != nil {
			return context.Cause(x.ctx)
		}
		next = sync.OnceFunc(func() { x.s.large.Release(1) })
		defer next()
	}
	defer func() {
		if x.answer == nil {
			x.s.deps.Dropped(len(body))
		}
	}()
	req, err := x.cd.Decode(route, body)
	if err != nil {
		return err
	}
	x.req = req
	answer, err := x.s.deps.Open(x.ctx, Call{Context: x.ctx, ID: x.id, Route: route, Request: req, Principal: p, Waits: next})
	if err != nil {
		return err
	}
	x.answer = answer
	return nil
}

// exchange is one request as HTTP sees it.
type exchange struct {
	s       *Server
	cd      codec.Codec
	id      string
	started time.Time
	req     *llm.Request
	ctx     context.Context
	cancel  context.CancelCauseFunc
	conn    net.Conn
	unwatch func()
	answer  Answer
	counted bool
	ended   bool
}

// end gives everything back. It runs once on every way out.
func (x *exchange) end(cause error) {
	if x.ended {
		return
	}
	x.ended = true
	if x.unwatch != nil {
		x.unwatch()
	}
	if x.answer != nil {
		x.answer.Close(cause)
	}
	if x.cancel != nil {
		x.cancel(nil)
	}
	if x.counted {
		x.s.open.Add(-1)
	}
}

// refuse ends a request with a real status.
func (x *exchange) refuse(c *fiber.Ctx, err error) error {
	f := fault.Of(err)
	if f.Code == fault.Internal {
		x.s.deps.Log.Error("request failed", "request", x.id, "error", err)
	}
	if x.answer == nil {
		x.s.deps.Log.Info("request refused", "request", x.id, "code", string(f.Code), "took", time.Since(x.started))
	}
	x.end(f)
	if x.ctx != nil && errors.Is(context.Cause(x.ctx), errLeft) {
		// Nobody is there to be told; one that closed its side only sees no answer.
		_ = x.conn.Close()
	}
	status, body := x.cd.Error(f, x.id)
	if x.req == nil || !x.req.Stream {
		retry(c, f)
	}
	return send(c, status, body)
}

// failure gives the error of a batch that ends in one.
func failure(events []llm.Event) error {
	if n := len(events); n > 0 && events[n-1].Kind == llm.Failed {
		if f := events[n-1].Fault; f != nil {
			return f.Err()
		}
		return fault.New(fault.Internal, "failure without a cause")
	}
	return nil
}

// whole answers with one body.
func (x *exchange) whole(c *fiber.Ctx) error {
	var body bytes.Buffer
	sink := x.cd.Encode(&body, x.req, x.id, x.started.Unix())
	for {
		events, err := x.answer.Next(x.ctx, unaryWait)
		if errors.Is(err, ErrIdle) {
			continue
		}
		if err == nil {
			err = failure(events)
		}
		for i := 0; err == nil && i < len(events); i++ {
			err = sink(events[i])
		}
		if err != nil {
			return x.refuse(c, err)
		}
		if last := events[len(events)-1]; last.Last() {
			if last.Receipt != nil {
				c.Set(headerCharged, strconv.FormatInt(last.Receipt.ChargedMicro, 10))
			}
			x.end(nil)
			return send(c, fiber.StatusOK, body.Bytes())
		}
	}
}

// stream answers event by event. The status is real as long as nothing has been
// sent: headers leave with the first event, or when a keep-alive is due.
func (x *exchange) stream(c *fiber.Ctx) error {
	events, err := x.answer.Next(x.ctx, x.s.cfg.KeepAlive)
	switch {
	case errors.Is(err, ErrIdle):
		events = []llm.Event{{Kind: llm.Ping}}
	case err != nil:
		return x.refuse(c, err)
	}
	if err := failure(events); err != nil {
		return x.refuse(c, err)
	}
	c.Set(fiber.HeaderContentType, "text/event-stream")
	c.Set(fiber.HeaderCacheControl, "no-cache")
	c.Set("X-Accel-Buffering", "no")
	c.Status(fiber.StatusOK)
	if !c.Request().Header.IsHTTP11() {
		// There are no chunks in HTTP/1.0 (RFC 9112, section 6.1), and the framework
		// has no other way to send what it does not know the length of.
		var whole bytes.Buffer
		w := bufio.NewWriter(&whole)
		x.end(x.write(w, events))
		return c.Send(whole.Bytes())
	}
	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer func() {
			if p := recover(); p != nil {
				x.s.deps.Log.Error("panic", "request", x.id, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
				x.end(fault.New(fault.Internal, "panic"))
			}
		}()
		x.end(x.write(w, events))
	})
	return nil
}

// write sends events until the last. It gives why it stopped, nil when the
// answer went out whole.
func (x *exchange) write(w *bufio.Writer, events []llm.Event) error {
	sink := x.cd.Encode(w, x.req, x.id, x.started.Unix())
	said := time.Now() // when the client last heard something
	for {
		last := events[len(events)-1].Last()
		for _, e := range events {
			if err := sink(e); err != nil {
				return unsent(err)
			}
		}
		switch silent := w.Buffered() == 0; {
		case !silent:
			said = time.Now()
		case !last && time.Since(said) >= x.s.cfg.KeepAlive:
			// What came waits for more, or stays out of the answer.
			events, said = []llm.Event{{Kind: llm.Ping}}, time.Now()
			continue
		}
		if err := w.Flush(); err != nil {
			return errLeft
		}
		if last {
			return nil
		}
		next, err := x.answer.Next(x.ctx, max(x.s.cfg.KeepAlive-time.Since(said), time.Millisecond))
		switch {
		case errors.Is(err, ErrIdle):
			next = []llm.Event{{Kind: llm.Ping}}
		case err != nil && fault.Is(err, fault.Canceled):
			// One that closed its side only and reads on must not see an end.
			_ = x.conn.Close()
			return err
		case err != nil:
			// The client sees the failure in its dialect's words.
			_ = sink(llm.Event{Kind: llm.Failed, Fault: llm.FaultOf(err)})
			_ = w.Flush()
			return err
		}
		events = next
	}
}

// unsent tells why an event did not leave: the codec could not say it, or else the
// client is gone.
func unsent(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return errLeft
}
