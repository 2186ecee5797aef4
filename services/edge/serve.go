package edge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/admit"
	"github.com/engy-ai/engy/services/edge/internal/count"
	"github.com/engy-ai/engy/services/edge/internal/fleet"
	"github.com/engy-ai/engy/services/edge/internal/httpapi"
	"github.com/engy-ai/engy/services/edge/internal/offer"
)

// open admits a request and gives the job to a worker or the queue; its hold is
// asked for a moment later. What open gives must be closed: that is the one place
// where a job is settled, on every way out.
func (e *edge) open(ctx context.Context, call httpapi.Call) (httpapi.Answer, error) {
	now := time.Now()
	a, err := e.admission.Decide(call.Request, call.Principal, call.ID, now)
	if err != nil {
		return nil, err
	}
	body, err := bus.Marshal(call.Request)
	if err != nil {
		return nil, err
	}
	a.Ticket.Trace = bus.Traceparent(ctx)
	x := &exchange{e: e, a: a, call: call, start: now, held: make(chan struct{})}
	if e.keeper.wants(call.Principal, call.Request.Policy) {
		x.kept = &kept{prompt: body}
	}
	x.body, x.bytes, x.media = body, len(body), media(call.Request)
	if e.keys.Empty(a.Hold.Account) || e.refused.lately(a.Hold.Account, RefusedFor) || !e.billing.Load() {
		if err := x.funded(); err != nil {
			x.unplaced()
			return nil, err
		}
	}
	asks := need(a.Model.ID, a.Need)
	x.job, err = e.desk.Place(offer.Order{
		Ticket: a.Ticket, Body: x.body, Stream: call.Request.Stream,
		Dispatch: func() (worker string, ok bool) {
			if !e.cfg.Dispatch {
				return "", false
			}
			return e.fleet.Choose(asks, a.Ticket.Region, a.Ticket.Affinity)
		},
		Hold:  x.askHold,
		Other: func(except func(string) bool) (string, string, bool) { return e.fleet.Other(asks, except) },
		Free:  func() int { return e.fleet.Free(asks) },
		Fits:  func(worker string) bool { return e.fleet.Fits(asks, worker) },
	})
	if err != nil {
		x.unplaced()
		return nil, err
	}
	x.asks = asks
	e.memory.take(len(body))
	x.read()
	return x, nil
}

// read looks at the words of a prompt for the last time, while they are on their way
// to the engine as body. They would keep all of what the caller sent.
func (x *exchange) read() {
	req := x.call.Request
	if req.Stream {
		// Only streams name a count before the engine has; they also teach, which
		// is enough.
		x.size = count.Measure(req)
		req.PromptTokens = x.e.counts.Tokens(x.a.Model.ID, x.size)
	}
	req.Items, req.Tools, req.Extra = nil, nil, nil
	if raw := req.Raw; raw != nil {
		raw.Text, raw.IDs = nil, nil
	}
}

// exchange is one request under way.
type exchange struct {
	e     *edge
	a     *admit.Admission
	call  httpapi.Call
	body  []byte
	bytes int        // of body, as it was first
	media int        // images and sounds of the prompt
	size  count.Size // of a stream's prompt
	job   *offer.Job
	asks  fleet.Need
	start time.Time

	asked bool // for the hold, before the job was placed
	// held is closed when billing has answered; the fields below it are set
	// before that.
	held    chan struct{}
	answer  bus.HoldAnswer
	refusal error
	heard   time.Time // when billing first said something
	closed  bool      // its last refusal told of no open holds

	gated bool // the hold has been looked at
	first time.Time
	over  bool
	usage bus.Usage // what will be recorded, once it is known
	known bool
	// settled tells that the ledger has ended the job without this edge.
	settled bool
	kept    *kept // nil unless the exchange will be kept
	once    sync.Once
}

// funded asks for the hold before anything is sent: the account seems to have no
// money or no room, or nobody to say so, and no worker shall begin for nothing. The ledger
// decides all the same: what this edge knows may be older than a credit that the
// caller has seen.
func (x *exchange) funded() (err error) {
	x.asked, x.gated = true, true
	x.e.bus.AskHold(x.a.Hold, x.hold)
	x.call.Waits()
	<-x.held // bounded by the bus
	if x.refusal != nil || x.answer.Micro >= x.a.Hold.Micro {
		return x.refusal
	}
	x.a.Stretch(x.answer.Micro)
	x.body, err = bus.Marshal(x.call.Request)
	return err
}

// unplaced ends an exchange whose job was not placed: a hold that may stand is
// given back.
func (x *exchange) unplaced() {
	if x.asked && x.stands() {
		x.charge(pricing.Failed, llm.Usage{}, offer.Result{})
		x.record(nil)
	}
}

// askHold asks for the hold, once.
func (x *exchange) askHold() {
	if !x.asked {
		x.e.bus.AskHold(x.a.Hold, x.hold)
	}
}

// stands tells whether there may be a hold: one that was granted, or that somebody was
// asked for who did not answer or could not tell. It is known when held is closed.
func (x *exchange) stands() bool {
	switch x.answer.Code {
	case "":
		return !bus.Vanished(x.refusal)
	case fault.Unavailable, fault.Timeout, fault.Internal:
		return true
	}
	return false
}

// hold takes billing's answer: the first byte waits for it, the worker does not.
func (x *exchange) hold(a bus.HoldAnswer, err error) {
	if x.heard.IsZero() {
		x.heard = time.Now()
	}
	if waited := time.Since(x.heard); x.settles(a, waited) {
		// What an answer that has just ended does not need is about to come back.
		pause := min(max(HoldAgain, waited), HoldAgainMax)
		time.AfterFunc(pause, func() { x.e.bus.AskHold(x.a.Hold, x.hold) })
		return
	}
	defer close(x.held)
	x.answer, x.refusal = a, err
	if err == nil && a.Code != "" {
		x.refusal = fault.New(a.Code, a.Message)
		if a.Code == fault.NoFunds || a.Code == fault.Busy {
			x.e.refused.note(x.a.Hold.Account)
		}
		return
	}
	if err != nil {
		x.e.log.Error("hold not answered", "request", x.call.ID, "error", err)
		x.refusal = fault.Wrap(fault.Unavailable, "billing cannot be reached; retry later", err)
	}
}

// settles tells whether a refused hold may be granted as soon as an answer that has
// just ended is booked.
func (x *exchange) settles(a bus.HoldAnswer, waited time.Duration) bool {
	account := x.a.Hold.Account
	switch {
	case a.Code != fault.NoFunds && a.Code != fault.Busy, x.e.keys.Empty(account):
		return false
	case !a.Open:
		// What was open may have been booked after billing decided and before it looked:
		// only who hears this twice has nothing to wait for.
		again := !x.closed
		x.closed = true
		return again
	}
	x.closed = false
	if a.Code == fault.NoFunds && x.e.settling.lately(account, SettlingFor) {
		return waited < HoldAgainFor
	}
	// Another edge's may have ended. Or they are really under way, and an engine works
	// meanwhile.
	return waited < BookedFor
}

// gate lets nothing pass before the hold is there. A smaller hold than asked
// for lowers the output limit, and the job starts anew with it.
func (x *exchange) gate(ctx context.Context) error {
	if x.gated {
		return nil
	}
	select {
	case <-x.held:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	x.gated = true
	if x.refusal != nil {
		return x.refusal
	}
	if x.answer.Micro < x.a.Hold.Micro {
		return x.stretch()
	}
	return nil
}

// stretch lowers the output limit to what the hold covers, and starts the job
// anew with it.
func (x *exchange) stretch() error {
	x.a.Stretch(x.answer.Micro)
	var req llm.Request
	if err := bus.Unmarshal(x.body, &req); err != nil {
		return err
	}
	req.MaxTokens = x.call.Request.MaxTokens
	body, err := bus.Marshal(&req)
	if err != nil {
		return err
	}
	x.body = body
	return x.job.Replace(body)
}

// Next gives the events that have come; see httpapi.Answer.
func (x *exchange) Next(ctx context.Context, wait time.Duration) ([]llm.Event, error) {
	if err := x.gate(ctx); err != nil {
		return nil, err
	}
	events, err := x.job.Next(ctx, wait)
	if err != nil {
		if errors.Is(err, offer.ErrIdle) {
			return nil, httpapi.ErrIdle
		}
		return nil, err
	}
	if x.first.IsZero() {
		x.first = time.Now()
	}
	if last := &events[len(events)-1]; last.Last() {
		x.over = true
		x.conclude(last)
	}
	x.kept.add(events)
	return events, nil
}

// conclude settles what a job that reached its end costs, and writes it on the
// last event.
func (x *exchange) conclude(last *llm.Event) {
	r := x.job.Result()
	outcome := pricing.Failed
	var tokens llm.Usage
	if r.End != nil {
		tokens = x.checked(r.End.Usage)
		switch {
		case last.Kind == llm.Done:
			outcome = pricing.Finished
			// An estimate teaches nothing.
			x.e.counts.Learn(x.a.Model.ID, x.size, min(tokens.Prompt, r.End.Usage.Prompt))
		case last.Fault != nil && last.Fault.Code == fault.Canceled:
			outcome = pricing.Left
		}
	}
	if last.Fault != nil && last.Fault.Code == fault.Busy {
		last.Fault.Retry = x.e.retry(x.asks)
	}
	x.charge(outcome, tokens, r)
	last.Usage = &tokens
	last.Receipt = &llm.Receipt{
		RequestID: x.call.ID, Worker: x.e.fleet.Name(x.a.Model.ID, r.Worker), ChargedMicro: int64(x.usage.ChargedMicro),
	}
}

// checked clamps what a worker reports to what the request allows: workers may
// belong to somebody else.
func (x *exchange) checked(u llm.Usage) llm.Usage {
	was := u
	u.Prompt = min(max(0, u.Prompt), x.a.Model.Window, promptMax(x.bytes, x.media))
	u.Cached = min(max(0, u.Cached), u.Prompt)
	u.Completion = min(max(0, u.Completion), x.call.Request.MaxTokens)
	if u.Reasoning != nil {
		r := min(max(0, *u.Reasoning), u.Completion)
		u.Reasoning = &r
	}
	if was.Prompt != u.Prompt || was.Cached != u.Cached || was.Completion != u.Completion {
		x.e.log.Error("ALARM: usage out of bounds was clamped", "request", x.call.ID,
			"prompt", was.Prompt, "cached", was.Cached, "completion", was.Completion)
	}
	u.Prompt = x.prompted(u)
	return u
}

// promptMax bounds the tokens of a prompt by the bytes of its request: a token is at
// least a byte, of what a template writes anew perhaps half of one, and what templates
// add is short. An image's tokens follow its pixels, of which a small file may hold many.
func promptMax(bytes, media int) int64 {
	return TokensPerByteMax*int64(bytes) + TemplateTokensMax + MediaTokensMax*int64(media)
}

// media counts the images and sounds of a prompt.
func media(req *llm.Request) (n int) {
	for i := range req.Items {
		for j := range req.Items[i].Parts {
			if req.Items[i].Parts[j].Media != nil {
				n++
			}
		}
	}
	return n
}

// prompted gives the tokens of the prompt, of which none is empty: where the worker
// has no count for work that is paid for, they are what the hold was asked for.
func (x *exchange) prompted(u llm.Usage) int64 {
	end := x.job.Result().End
	switch {
	case u.Prompt > 0 || end == nil || end.Outcome == pricing.Failed:
		return u.Prompt
	case end.Outcome == pricing.Left && u.Completion == 0:
		return 0 // as far as anybody knows the engine had not begun
	}
	return min(x.a.Ticket.PromptTokens, x.a.Model.Window)
}

// charge decides what is recorded. A charge above the hold raises the hold
// first, and of a hold that may be over the ledger is asked, so that what the caller
// is shown is what the ledger books.
func (x *exchange) charge(o pricing.Outcome, tokens llm.Usage, r offer.Result) {
	charged, err := pricing.Charge(x.a.Rates, o, tokens)
	if err != nil {
		x.e.log.Error("ALARM: charge not computed", "request", x.call.ID, "error", err)
		o, charged = pricing.Failed, 0
	}
	if charged > x.answer.Micro || x.e.lease.doubtful(x.start) {
		charged = x.raise(charged)
	}
	x.usage = bus.Usage{
		Job: x.call.ID, Account: x.call.Principal.Account, Key: x.call.Principal.Key,
		Model: x.a.Model.ID, Region: x.a.Ticket.Region, Worker: r.Worker, Attempt: r.Attempt,
		Route: x.call.Route, Outcome: o, Tokens: tokens, Rates: x.a.Rates, ChargedMicro: charged,
	}
	x.known = true
}

// raise has the hold cover a charge, and gives what can be charged: less when the
// balance does not have it, or when the ledger has ended the job already.
func (x *exchange) raise(charged money.Micro) money.Micro {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.call.Context), bus.HoldWait)
	defer cancel()
	h := x.a.Hold
	// What the balance has is taken, when it does not have all.
	h.Micro, h.FloorMicro, h.Raise = max(charged, x.answer.Micro), x.answer.Micro, true
	answer, err := x.e.bus.Hold(ctx, h)
	if err == nil && answer.Settled {
		x.settled = true
		x.e.log.Error("ALARM: request was settled without its edge", "request", x.call.ID,
			"charge_micro", charged, "charged_micro", answer.Micro)
		return answer.Micro
	}
	if err == nil && answer.Code == "" {
		if x.answer.Micro = answer.Micro; answer.Micro >= charged {
			return charged
		}
	}
	if cut := min(charged, x.answer.Micro); cut < charged {
		x.e.log.Error("ALARM: charge cut to its hold", "request", x.call.ID,
			"charge_micro", charged, "held_micro", cut, "error", err)
		return cut
	}
	return charged // as far as anybody knows the hold stands
}

// leave settles a job whose client does not take the rest of the answer.
func (x *exchange) leave(ctx context.Context) {
	r := x.job.Abandon(ctx)
	if r.End == nil {
		x.e.log.Warn("no account of a job whose client left", "request", x.call.ID, "worker", r.Worker)
		x.charge(pricing.Left, llm.Usage{}, r)
		return
	}
	o := r.End.Outcome
	if o == pricing.Finished {
		o = pricing.Left
	}
	x.charge(o, x.checked(r.End.Usage), r)
}

// Close ends the exchange, however it went: the job is stopped when it runs,
// settled, and recorded. None of that is waited for: the answer may leave.
func (x *exchange) Close(cause error) {
	x.once.Do(func() { x.e.exchanges.Go(func() { x.end(cause) }) })
}

func (x *exchange) end(cause error) {
	<-x.held
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.call.Context), SettleWait)
	defer cancel()
	stands := x.stands()
	switch {
	case x.known && x.usage.Outcome == pricing.Finished && cause != nil && !fault.Is(cause, fault.Canceled):
		// It could not be said in the client's protocol.
		x.charge(pricing.Failed, x.usage.Tokens, x.job.Result())
	case x.known:
	case !stands:
		x.job.Fail(fault.Of(x.refusal).Code, "refused")
	case fault.Is(cause, fault.Canceled) && x.refusal == nil:
		x.leave(ctx)
	case cause != nil:
		x.job.Fail(fault.Of(cause).Code, "ended")
		x.charge(pricing.Failed, llm.Usage{}, x.job.Result())
	default:
		x.leave(ctx)
	}
	x.job.Close(ctx)
	x.body = nil // what is left may wait for the books
	if stands {
		x.e.settling.note(x.a.Hold.Account)
	}
	if x.known && !x.settled {
		x.record(x.job.Booked)
	} else {
		x.job.Booked() // there is nothing to book
	}
	x.log(cause)
	if x.kept != nil && x.known {
		x.e.keeper.keep(context.WithoutCancel(x.call.Context), x.usage, x.start, x.kept)
	}
	x.e.memory.give(x.bytes)
}

// record sends the fact of the exchange on its way; then is called when it is stored.
func (x *exchange) record(then func()) {
	x.usage.TotalMS = time.Since(x.start).Milliseconds()
	if !x.first.IsZero() {
		x.usage.FirstByteMS = x.first.Sub(x.start).Milliseconds()
	}
	if err := x.e.bus.BookUsage(x.usage, then); err != nil {
		x.e.log.Error("ALARM: usage not recorded", "request", x.call.ID, "error", err)
		if then != nil {
			then()
		}
	}
}

// log writes the one line of a request. It holds no content.
func (x *exchange) log(cause error) {
	attrs := []slog.Attr{
		slog.String("request", x.call.ID), slog.String("route", x.call.Route), slog.String("model", x.a.Model.ID),
		slog.String("outcome", string(x.usage.Outcome)), slog.Int64("prompt", x.usage.Tokens.Prompt),
		slog.Int64("cached", x.usage.Tokens.Cached), slog.Int64("completion", x.usage.Tokens.Completion),
		slog.Int64("charged_micro", int64(x.usage.ChargedMicro)), slog.Int("attempt", x.usage.Attempt),
		slog.Duration("took", time.Since(x.start)),
	}
	if cause != nil {
		// Its words may be an engine's, which may repeat the prompt.
		attrs = append(attrs, slog.String("cause", string(fault.Of(cause).Code)))
	}
	if s := trace.SpanContextFromContext(x.call.Context); s.IsValid() {
		attrs = append(attrs, slog.String("trace", s.TraceID().String()))
	}
	x.e.log.LogAttrs(x.call.Context, slog.LevelInfo, "request", attrs...)
}
