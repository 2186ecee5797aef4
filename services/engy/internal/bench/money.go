package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"syscall"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

const (
	factsPerRun = 20_000
	factsFlying = 1_000
	factsQuick  = 5_000
	manyOwners  = 100
	singles     = 50
	holdsAsked  = 200
	bookedWait  = 60 * time.Second
	bookedPoll  = 25 * time.Millisecond
	singlePoll  = 500 * time.Microsecond
	holdLife    = time.Minute
	holdPause   = 10 * time.Millisecond
)

// payer is an account that usage is recorded for.
type payer struct{ account, key string }

func newJob() string {
	var raw [32]byte
	// The standard reader never fails; it would end the process first.
	_, _ = rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

func (l *lab) payers(ctx context.Context, n int) ([]payer, error) {
	list := make([]payer, n)
	for i := range list {
		var err error
		if list[i].account, list[i].key, _, err = l.rig.customer(ctx, "payer-"+bus.NewID()); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func modelRates() (pricing.Rates, error) {
	list, err := pricing.Default()
	if err != nil {
		return pricing.Rates{}, err
	}
	rates, ok := list.Of(model)
	if !ok {
		return rates, fault.New(fault.Internal, "the model has no price")
	}
	return rates, nil
}

// fact is a usage event like those of an edge.
func fact(p payer, rates pricing.Rates) (bus.Usage, error) {
	used := llm.Usage{Prompt: 700, Completion: 100}
	charged, err := pricing.Charge(rates, pricing.Finished, used)
	return bus.Usage{
		Job: newJob(), Account: p.account, Key: p.key, Model: model, Region: "us", Route: "POST /v1/chat/completions",
		Outcome: pricing.Finished, Tokens: used, Rates: rates, ChargedMicro: charged,
	}, err
}

// runLedger books events that nothing was held for, of one account and of many,
// and then single ones while nothing else happens.
func runLedger(ctx context.Context, l *lab, _ target) (values, error) {
	rates, err := modelRates()
	if err != nil {
		return nil, err
	}
	many, err := l.payers(ctx, manyOwners)
	if err != nil {
		return nil, err
	}
	hot, err := l.payers(ctx, 1)
	if err != nil {
		return nil, err
	}
	v, n := values{}, l.times(factsPerRun, factsQuick)
	// The first events warm up, for nobody.
	if _, err := l.books(ctx, many, rates, n/10); err != nil {
		return nil, err
	}
	before, err := l.rig.cpu()
	if err != nil {
		return nil, err
	}
	if v["hot_s"], err = l.books(ctx, hot, rates, n); err != nil {
		return nil, err
	}
	if v["many_s"], err = l.books(ctx, many, rates, n); err != nil {
		return nil, err
	}
	after, err := l.rig.cpu()
	if err != nil {
		return nil, err
	}
	v["hot_many"] = v["hot_s"] / v["many_s"]
	for _, name := range []string{billingName, postgresName} {
		v["cpu_"+name] = float64((after[name] - before[name]).Microseconds()) / float64(2*n)
	}
	var took []time.Duration
	for range l.times(singles, singles/2) {
		if err := rest(ctx, pollEvery); err != nil {
			return nil, err
		}
		d, err := l.books1(ctx, hot[0], rates)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	v["visible_p50_ms"], v["visible_p99_ms"] = ms(percentile(took, 50)), ms(percentile(took, 99))
	if err := l.rig.rebill(ctx, "BILLING_USAGE_BATCH=1"); err != nil {
		return nil, err
	}
	if v["single_s"], err = l.books(ctx, many, rates, n/20); err != nil {
		return nil, err
	}
	v["many_single"] = v["many_s"] / v["single_s"]
	return v, l.rig.rebill(ctx)
}

// books records n events of the payers in turn while billing stands still, and
// gives how many a second it books once it goes on, until the balances show the
// last: who makes the events takes no part.
func (l *lab) books(ctx context.Context, payers []payer, rates pricing.Rates, n int) (float64, error) {
	facts, owed := make([]bus.Usage, n), money.Micro(0)
	for i := range facts {
		var err error
		if facts[i], err = fact(payers[i%len(payers)], rates); err != nil {
			return 0, err
		}
		owed += facts[i].ChargedMicro
	}
	start, err := l.owned(ctx, payers)
	if err != nil {
		return 0, err
	}
	if err := l.store(ctx, facts); err != nil {
		return 0, err
	}
	begun := time.Now()
	every := time.NewTicker(bookedPoll)
	defer every.Stop()
	for time.Since(begun) < bookedWait {
		now, err := l.owned(ctx, payers)
		if err != nil {
			return 0, err
		}
		if now == start-owed {
			return float64(n) / time.Since(begun).Seconds(), nil
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return 0, fmt.Errorf("%d usage events were not booked within %s", n, bookedWait)
}

// store puts events on the bus while billing stands still, and lets it go on when
// all are there.
func (l *lab) store(ctx context.Context, facts []bus.Usage) error {
	billing := l.rig.procs[billingName].cmd.Process
	if err := billing.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("halt billing: %w", err)
	}
	defer func() { _ = billing.Signal(syscall.SIGCONT) }() // one that is gone ends the run elsewhere
	flying := make(chan struct{}, factsFlying)
	for i := range facts {
		select {
		case flying <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := l.rig.bus.BookUsage(facts[i], func() { <-flying }); err != nil {
			return err
		}
		l.settled++
	}
	for range factsFlying {
		select {
		case flying <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// owned is what the payers own together.
func (l *lab) owned(ctx context.Context, payers []payer) (money.Micro, error) {
	if len(payers) == 1 {
		b, err := l.rig.admin.Balance(ctx, payers[0].account)
		return b.Micro, err
	}
	ours := make(map[string]bool, len(payers))
	for _, p := range payers {
		ours[p.account] = true
	}
	list, err := l.rig.admin.ListAccounts(ctx)
	var sum money.Micro
	for _, a := range list {
		if ours[a.ID] {
			sum += a.Micro
		}
	}
	return sum, err
}

// books1 records one event and gives how long its balance takes to show it.
func (l *lab) books1(ctx context.Context, p payer, rates pricing.Rates) (time.Duration, error) {
	one, err := fact(p, rates)
	if err != nil {
		return 0, err
	}
	start, err := l.rig.admin.Balance(ctx, p.account)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := l.rig.bus.RecordUsage(one); err != nil {
		return 0, err
	}
	l.settled++
	every := time.NewTicker(singlePoll)
	defer every.Stop()
	for time.Since(begun) < bookedWait {
		now, err := l.rig.admin.Balance(ctx, p.account)
		if err != nil {
			return 0, err
		}
		if now.Micro == start.Micro-one.ChargedMicro {
			return time.Since(begun), nil
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return 0, fmt.Errorf("a usage event was not booked within %s", bookedWait)
}

// runHold asks for holds one after the other, and settles them as refused so
// that none stays.
func runHold(ctx context.Context, l *lab, _ target) (values, error) {
	rates, err := modelRates()
	if err != nil {
		return nil, err
	}
	payers, err := l.payers(ctx, 10)
	if err != nil {
		return nil, err
	}
	n := l.times(holdsAsked, holdsAsked/4)
	var took []time.Duration
	for i := range n + n/10 {
		p := payers[i%len(payers)]
		h := bus.Hold{
			Job: newJob(), Account: p.account, Key: p.key, Model: model, Micro: 1000, FloorMicro: 1000,
			Rates: rates, Expires: time.Now().Add(holdLife),
		}
		begun := time.Now()
		a, err := l.rig.bus.Hold(ctx, h)
		d := time.Since(begun)
		if err == nil && a.Code != "" {
			err = fault.New(a.Code, a.Message)
		}
		if err == nil {
			err = l.rig.bus.RecordUsage(bus.Usage{
				Job: h.Job, Account: p.account, Key: p.key, Model: model, Region: "us",
				Route: "POST /v1/chat/completions", Outcome: pricing.Refused, Rates: rates,
			})
		}
		if err != nil {
			return nil, err
		}
		l.settled++
		if i >= n/10 {
			took = append(took, d)
		}
		// What settles the last hold must not share its time with the next.
		if err := rest(ctx, holdPause); err != nil {
			return nil, err
		}
	}
	return values{"mean_ms": ms(mean(took)), "p50_ms": ms(percentile(took, 50)), "p99_ms": ms(percentile(took, 99))}, nil
}
