package openaihttp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// errIdle ends an exchange whose engine fell silent.
var errIdle = errors.New("engine sent nothing for too long")

// Generate runs one exchange; see the interface in package engine.
func (e *Engine) Generate(ctx context.Context, name string, req *llm.Request, sink llm.Sink) (llm.Usage, error) {
	q, err := e.quirks(ctx)
	if err == nil {
		err = q.able(req)
	}
	if err != nil {
		return llm.Usage{}, ended(ctx, err)
	}
	x := &exchange{e: e, quirks: q, name: name, req: req, answer: answer{sink: sink}}
	if q.rids || q.abort != "" && x.spans() == native {
		x.rid = rand.Text()
	}
	err = x.run(ctx)
	if room := x.room(err); room > 0 {
		shorter := *req
		shorter.MaxTokens, x.req = room, &shorter
		err = x.run(ctx)
	}
	if err != nil && !lost(ctx) {
		if !x.told {
			x.abort(ctx)
		}
		x.count(ctx)
	}
	return x.answer.produced(), ended(ctx, err)
}

// lost tells whether ctx has ended because nobody is there to be told or asked.
func lost(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrLost) }

// spans tells how the span of a prompt that this request asks for is scored.
func (x *exchange) spans() scoring {
	if x.req.Raw == nil || x.req.Raw.ScoreFrom == nil {
		return unscored
	}
	return x.quirks.scores
}

// ask gives the question in the engine's words, and where it is put.
func (x *exchange) ask() (path string, body []byte) {
	switch {
	case x.req.Raw == nil:
		return "/v1/chat/completions", x.quirks.encode(x.name, x.req, x.rid)
	case x.spans() == native:
		return "/generate", x.quirks.generate(x.name, x.req, x.rid)
	case x.spans() == promptLogprobs:
		return "/v1/completions", x.quirks.scorePrompt(x.name, x.req, x.rid)
	}
	return "/v1/completions", x.quirks.complete(x.name, x.req, x.rid)
}

// ended is err, unless the end of ctx is what brought it about.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil {
		return err
	}
	var f *fault.Error
	switch {
	case errors.As(cause, &f):
		return cause
	case errors.Is(cause, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "the time for the request is over", cause)
	}
	return fault.Wrap(fault.Canceled, "the request was canceled", cause)
}

// exchange is one request under way.
type exchange struct {
	e      *Engine
	quirks *quirks
	name   string
	req    *llm.Request
	rid    string
	// told is set when the engine was told to stop.
	told   bool
	answer answer
}

// run sends the request and takes the answer.
func (x *exchange) run(parent context.Context) error {
	whole, idle := x.spans() != unscored, x.e.idle
	if whole {
		// Nothing comes before the whole answer does, however long that takes.
		idle += time.Duration(outputTokens(x.req)) * TokenMax
	}
	listen := parent
	if whole && x.rid != "" {
		listen = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(listen)
	if listen != parent {
		defer x.outlive(parent, cancel)()
	}
	w := newWatch(idle, func() { cancel(errIdle) })
	w.heard = &x.e.heard
	err := x.exchange(ctx, w)
	if err == nil {
		// The answer is whole; that its connection ends well is not waited for.
		go func() {
			w.linger()
			cancel(nil)
		}()
		return nil
	}
	w.close()
	if errors.Is(context.Cause(ctx), errIdle) {
		err = fault.Wrap(fault.Timeout, "the engine did not answer in time", err)
	}
	cancel(nil)
	return err
}

// outlive lets an exchange go on a little when its context ends: the engine is
// told to stop, and says what it has done by then. What it gives must be called at
// the end of the exchange.
func (x *exchange) outlive(parent context.Context, cancel context.CancelCauseFunc) (over func()) {
	done, told := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(parent, func() {
		defer close(told)
		if lost(parent) {
			cancel(ErrLost)
			return
		}
		x.told = true
		x.abort(parent)
		late := time.NewTimer(AbortMax)
		defer late.Stop()
		select {
		case <-late.C:
			cancel(context.Cause(parent))
		case <-done:
		}
	})
	return func() {
		close(done)
		if !stop() {
			<-told
		}
	}
}

func (x *exchange) exchange(ctx context.Context, w *watch) error {
	path, question := x.ask()
	req, err := x.e.request(ctx, path, question)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	w.start()
	res, err := x.e.client.Do(req)
	w.stop()
	if err != nil {
		return unreachable(err)
	}
	w.heard.Add(1)
	w.r = res.Body
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(w, PageBytesMax))
		return x.e.hide(startRefused(refused(res, body)))
	}
	if err := x.repeat(); err != nil {
		return err
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err == nil && kind == "application/json" {
		return x.whole(ctx, w)
	}
	return x.stream(ctx, w)
}

// stream takes an answer event by event.
func (x *exchange) stream(ctx context.Context, r io.Reader) error {
	buf := x.e.buffer()
	s := newEvents(r, *buf, LineBytesMax)
	err := x.read(ctx, s)
	if cap(s.buf) <= bufferBytesKept {
		*buf = s.buf
		x.e.buffers.Put(buf)
	}
	return err
}

func (x *exchange) read(ctx context.Context, s *events) error {
	var q quick
	for {
		data, err := s.next()
		switch {
		case errors.Is(err, errLong):
			return errUnreadable(err)
		case err != nil && (errors.Is(err, io.EOF) || x.answer.said()):
			// What counts is that the engine said why it ended.
			return x.done(ctx)
		case err != nil:
			return errCut(err)
		case len(data) == 0:
			continue
		case string(data) == "[DONE]":
			return x.done(ctx)
		}
		var p piece
		if !q.parse(data, &p) {
			p, err = decodeChunk(data)
		}
		switch {
		case err != nil && s.ended() && x.answer.said():
			return x.done(ctx)
		case err != nil && s.ended():
			return errCut(err)
		case err != nil:
			return errUnreadable(err)
		}
		if err := x.take(&p); err != nil {
			return err
		}
	}
}

// repeat says a prompt of text again where the answer shall begin with it.
func (x *exchange) repeat() error {
	if x.req.Raw == nil || !x.req.Raw.Echo || echoes(x.req) {
		return nil
	}
	text, err := x.req.Raw.Text.Decode()
	if err != nil {
		return fault.Wrap(fault.Internal, "internal error", err)
	}
	return x.answer.sink(llm.Event{Kind: llm.Text, Text: text})
}

// whole takes the answer of an engine that does not stream.
func (x *exchange) whole(ctx context.Context, r io.Reader) error {
	p, err := x.decode(r)
	if err != nil {
		return err
	}
	if err := x.take(&p); err != nil {
		return err
	}
	return x.done(ctx)
}

func (x *exchange) decode(r io.Reader) (p piece, err error) {
	if x.spans() == promptLogprobs {
		broken := &noted{r: io.LimitReader(r, ScoresBytesMax)}
		p, err = decodePromptLogprobs(broken, x.req.Raw)
		if broken.err != nil {
			return p, errCut(broken.err)
		}
		return p, unreadable(err)
	}
	data, err := io.ReadAll(io.LimitReader(r, LineBytesMax+1))
	switch {
	case err != nil:
		return p, errCut(err)
	case len(data) > LineBytesMax:
		return p, errUnreadable(errLong)
	case x.spans() == native:
		p, err = decodeGenerated(data, x.req.Raw)
	default:
		p, err = decodeChunk(data)
	}
	return p, unreadable(err)
}

// unreadable is err, unless it tells the caller something.
func unreadable(err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	return errUnreadable(err)
}

// noted remembers why reading ended, when that was too early.
type noted struct {
	r   io.Reader
	err error
}

// Read reads on.
func (n *noted) Read(b []byte) (int, error) {
	read, err := n.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return read, err
}

func (x *exchange) take(p *piece) error {
	if p.fault != nil {
		return x.e.hide(p.fault)
	}
	return x.answer.take(p)
}

func (x *exchange) done(ctx context.Context) error {
	x.count(ctx)
	return x.answer.done()
}

// abort tells the engine to stop, where it wants to be told. The connection is
// closed by then, but what lies between may keep that to itself.
func (x *exchange) abort(ctx context.Context) {
	if x.rid == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AbortMax)
	defer cancel()
	// Nothing can be done about an abort that does not arrive.
	_, _ = x.e.ask(ctx, x.quirks.abort, append(quote([]byte(`{"rid":`), x.rid), '}'))
}

// count has the engine's tokenizer count the prompt when the engine worked and
// did not say how much.
func (x *exchange) count(ctx context.Context) {
	a := &x.answer
	if a.credible() || a.made == 0 || x.quirks.tokenize == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CountMax)
	defer cancel()
	if n, err := x.e.tokens(ctx, x.quirks, x.name, x.req); err == nil {
		a.usage.Prompt = n
	}
}

// hide keeps the engine's address out of what a caller sees.
func (e *Engine) hide(f *fault.Error) *fault.Error {
	f.Message = strings.ReplaceAll(f.Message, e.host, "engine")
	return f
}

// buffer gives a buffer for reading a stream.
func (e *Engine) buffer() *[]byte {
	if b, ok := e.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, bufferBytes)
	return &b
}

// watch reads, and calls out when a wait for the engine takes too long. The
// time that the sink takes does not count.
type watch struct {
	r     io.ReadCloser // nil before an answer came
	idle  time.Duration
	timer *time.Timer
	heard *atomic.Int64 // counts what came
}

func newWatch(idle time.Duration, tired func()) *watch {
	w := &watch{idle: idle, timer: time.AfterFunc(idle, tired), heard: new(atomic.Int64)}
	w.timer.Stop()
	return w
}

func (w *watch) start() { w.timer.Reset(w.idle) }
func (w *watch) stop()  { w.timer.Stop() }

// linger reads to the end of an answer that has been taken: a connection can
// only be used again after that.
func (w *watch) linger() {
	w.idle = lingerMax
	// Whatever goes wrong costs the connection and nothing else.
	_, _ = w.Read(make([]byte, 512))
	w.close()
}

// close ends the answer. Before its end that closes the connection, which is how
// most engines learn that nobody listens any more.
func (w *watch) close() {
	w.stop()
	if w.r != nil {
		_ = w.r.Close()
	}
}

// Read waits at most the idle time.
func (w *watch) Read(b []byte) (int, error) {
	w.start()
	n, err := w.r.Read(b)
	w.stop()
	if n > 0 {
		w.heard.Add(1)
	}
	return n, err
}
