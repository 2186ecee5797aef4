package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/fault"
)

// relation is how a metric of the product is held against the direct one.
type relation int

const (
	absolute relation = iota
	added
	ratio
	// shown puts both figures there without holding one against the other.
	shown
)

// metric is one line of the report. Several keys make one cell, of medians.
type metric struct {
	keys     []string
	title    string
	relation relation
}

// scenario is one way to load the product.
type scenario struct {
	name, title string
	metrics     []metric
	// alone leaves the direct way out: there is nothing to hold against.
	alone bool
	// bare tells that the prototype can do it too.
	bare bool
	run  func(ctx context.Context, l *lab, t target) (values, error)
}

func one(key, title string, r relation) metric { return metric{[]string{key}, title, r} }

func scenarios() []scenario {
	per := func(unit string) []metric {
		return []metric{
			one("cpu", "CPU us/"+unit+", edge + nats + worker + billing", absolute),
			{[]string{"cpu_edge", "cpu_nats", "cpu_worker", "cpu_billing"}, "CPU us/" + unit + ": edge · nats · worker · billing", absolute},
			one("cpu_postgres", "CPU us/"+unit+", postgres", absolute),
			one("cpu_sim", "CPU us/"+unit+", the engine, for what it is worth", shown),
		}
	}
	unary := []metric{one("p50_ms", "p50 ms", added), one("p99_ms", "p99 ms", added)}
	stream := append([]metric{
		one("ttft_p50_ms", "TTFT p50 ms", added), one("ttft_p99_ms", "TTFT p99 ms", added),
		one("gap_p99_ms", "gap p99 ms", ratio), one("tokens_s", "tokens/s", ratio),
		one("cpu_path", "CPU us/token, edge + nats + worker", absolute),
		one("tokens_s_core", "tokens/s/core", absolute),
	}, per("token")...)
	with := func(list []metric, more ...metric) []metric { return append(list[:len(list):len(list)], more...) }
	return []scenario{
		{name: "idle", title: "nothing to do", alone: true, metrics: []metric{
			{[]string{"cpu_edge", "cpu_nats", "cpu_worker", "cpu_billing", "cpu_postgres"}, "CPU ms a second: edge · nats · worker · billing · postgres", absolute},
		}, run: runIdle},
		{name: "r100", bare: true, title: "unary, 100 requests/s, engine takes 5 ms", metrics: with(unary, per("request")...), run: runR100("r100", unaryTokens)},
		{name: "r100one", bare: true, title: "the same, answers of 1 token", metrics: with(unary, per("request")...), run: runR100("r100one", 1)},
		{name: "c64", bare: true, title: "unary, 64 clients in a closed loop, engine at once, 100 tokens", metrics: with(per("request"),
			append([]metric{one("rps", "requests/s", ratio)}, unary...)...), run: runBusy(work{name: "c64", tokens: unaryTokens})},
		{name: "c64one", bare: true, title: "the same, answers of 1 token: the walk without the answer", metrics: with(per("request"),
			append([]metric{one("rps", "requests/s", ratio)}, unary...)...), run: runBusy(work{name: "c64one", tokens: 1})},
		{name: "stream1", bare: true, title: "1 stream, TTFT 5 ms, 2 ms/token, 100 tokens", metrics: stream[:3], run: runStream(streams{
			work: work{name: "stream1", tokens: 100, ttft: 5 * time.Millisecond, itl: 2 * time.Millisecond}, clients: 1, each: 25, quick: 5,
		})},
		{name: "stream500", bare: true, title: "500 streams, 20 ms/token, 100 tokens", metrics: stream, run: runStream(streams{
			work: work{name: "stream500", tokens: 100, ttft: 20 * time.Millisecond, itl: 20 * time.Millisecond}, clients: 500, each: 3, quick: 1,
		})},
		{name: "messages500", title: "the same in Messages", alone: true, metrics: stream, run: runStream(streams{
			work: work{name: "messages500", tokens: 100, ttft: 20 * time.Millisecond, itl: 20 * time.Millisecond, dialect: messages}, clients: 500, each: 3, quick: 1,
		})},
		{name: "responses500", title: "the same in Responses", alone: true, metrics: stream, run: runStream(streams{
			work: work{name: "responses500", tokens: 100, ttft: 20 * time.Millisecond, itl: 20 * time.Millisecond, dialect: responses}, clients: 500, each: 3, quick: 1,
		})},
		{name: "stream100", bare: true, title: "100 streams, 5 ms/token, 100 tokens", metrics: stream, run: runStream(streams{
			work: work{name: "stream100", tokens: 100, ttft: 20 * time.Millisecond, itl: 5 * time.Millisecond}, clients: 100, each: 6, quick: 2,
		})},
		{name: "stream1000", bare: true, title: "1,000 streams, 50 ms/token, 100 tokens", metrics: with(stream,
			one("streams_core", "streams/core at 20 tokens/s", absolute)), run: runStream(streams{
			work: work{name: "stream1000", tokens: 100, ttft: 50 * time.Millisecond, itl: 50 * time.Millisecond}, clients: 1000, each: 2, quick: 1,
		})},
		{name: "memory", title: "memory a stream", alone: true, metrics: []metric{
			one("idle_kib", "edge, KiB per idle stream (1,000)", absolute),
			one("flow_kib", "edge + nats + worker + billing, KiB a stream, 500 against 100", absolute),
			{[]string{"peak100_mib", "peak500_mib"}, "peak MiB at 100 · 500 streams", absolute},
		}, run: runMemory},
		{name: "images", title: "50 requests at once, each with 20 MiB of images", alone: true, metrics: []metric{
			one("peak_x", "edge at its peak, × the bodies", absolute), one("after_x", "edge 15 s later, × the bodies", absolute),
			{[]string{"body_mib", "peak_mib", "after_mib"}, "MiB: a body · edge at its peak · later", absolute},
		}, run: runImages},
		{name: "leave", title: "20 clients leave while the engine is silent", metrics: []metric{
			one("stream_p50_ms", "streaming, engine free after, p50 ms", added), one("stream_p99_ms", "streaming, p99 ms", added),
			one("whole_p50_ms", "not streaming, p50 ms", added), one("whole_p99_ms", "not streaming, p99 ms", added),
		}, run: runLeave},
		{name: "body300k", bare: true, title: "bodies of 300 KB, 50/s, engine takes 5 ms", metrics: with(unary, per("request")...), run: runBodies("body300k", 300_000, 50)},
		{name: "body4m", title: "bodies of 4 MB, 5/s, engine takes 5 ms", metrics: with(unary, per("request")...), run: runBodies("body4m", 4_000_000, 5)},
		{name: "ledger", title: "usage events straight to the bus, until the balances show them", alone: true, metrics: []metric{
			one("hot_s", "events/s, 1 account", absolute), one("many_s", "events/s, 100 accounts", absolute),
			one("hot_many", "1 account against 100", absolute),
			one("single_s", "events/s, 100 accounts, a transaction an event", absolute),
			one("visible_p50_ms", "one event to the balance, idle, p50 ms", absolute), one("visible_p99_ms", "the same, p99 ms", absolute),
			one("cpu_billing", "billing, CPU us/event", absolute), one("cpu_postgres", "postgres, CPU us/event", absolute),
		}, run: runLedger},
		{name: "hold", title: "holds one after the other, idle", alone: true, metrics: []metric{
			one("mean_ms", "answer after, mean ms", absolute), one("p50_ms", "p50 ms", absolute), one("p99_ms", "p99 ms", absolute),
		}, run: runHold},
	}
}

// brief shows the first few numbers of a run.
func (s scenario) brief(v values) string {
	var parts []string
	for _, m := range s.metrics {
		for _, k := range m.keys {
			if n, ok := v[k]; ok && len(parts) < 6 {
				parts = append(parts, k+" "+number(n))
			}
		}
	}
	return strings.Join(parts, "  ")
}

// fold turns a tally into values, and fails when an answer was not what the
// engine said or did not come: no number is worth anything then.
func (l *lab) fold(t target, seen tally) (values, error) {
	if t.product() {
		l.settled += int64(seen.answered)
	}
	if seen.failed+seen.wrong+seen.endless > 0 {
		return nil, fault.New(fault.Internal, fmt.Sprintf("%d answered; %d failed, %d with lost, doubled or other tokens, %d without an end; %s",
			seen.answered, seen.failed, seen.wrong, seen.endless, strings.Join(seen.failures, "; ")))
	}
	if seen.answered == 0 {
		return nil, fault.New(fault.Internal, "nothing was answered")
	}
	v := values{"answered": float64(seen.answered), "failed": 0, "wrong": 0, "endless": 0}
	v["p50_ms"], v["p99_ms"] = ms(percentile(seen.took, 50)), ms(percentile(seen.took, 99))
	v["rps"] = float64(seen.answered) / seen.span.Seconds()
	v["tokens_s"] = float64(seen.tokens) / seen.span.Seconds()
	if len(seen.first) > 0 {
		v["ttft_p50_ms"], v["ttft_p99_ms"] = ms(percentile(seen.first, 50)), ms(percentile(seen.first, 99))
		v["gap_p99_ms"] = ms(percentile(seen.gaps, 99))
	}
	return v, nil
}

// settleWait is how long after a load its bookings may take, before the CPU
// that it caused is read.
const settleWait = 400 * time.Millisecond

// loaded runs a load and adds what each process took for one unit of it.
func (l *lab) loaded(ctx context.Context, t target, run func() tally, units func(tally) int) (values, error) {
	begun := time.Now()
	before, err := l.rig.cpu()
	if err != nil {
		return nil, err
	}
	seen := run()
	if err := rest(ctx, settleWait); err != nil {
		return nil, err
	}
	after, err := l.rig.cpu()
	if err != nil {
		return nil, err
	}
	v, err := l.fold(t, seen)
	if err != nil {
		return nil, err
	}
	v[strangers] = (after[strangers] - before[strangers]).Seconds() / time.Since(begun).Seconds()
	us := func(name string) float64 {
		return float64((after[name] - before[name]).Microseconds()) / float64(units(seen))
	}
	v["cpu_"+engineName] = us(engineName)
	if t.direct {
		return v, nil
	}
	if t.bare {
		v["cpu_"+edgeName], v["cpu_"+busName], v["cpu_"+workerName] = us(bareEdgeName), us(busName), us(bareWorkerName)
		v["cpu_path"] = v["cpu_"+edgeName] + v["cpu_"+busName] + v["cpu_"+workerName]
		v["cpu"] = v["cpu_path"]
		return v, nil
	}
	for _, name := range []string{edgeName, busName, workerName, billingName, postgresName} {
		v["cpu_"+name] = us(name)
	}
	v["cpu_path"] = us(edgeName) + us(busName) + us(workerName)
	v["cpu"] = v["cpu_path"] + us(billingName)
	return v, nil
}

// rest lets time pass.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func answers(t tally) int { return t.answered }
func tokens(t tally) int  { return t.tokens }

const unaryTokens = 100

func (l *lab) openLoop(ctx context.Context, t target, w work, rate float64, warm, during time.Duration) (values, error) {
	p := &pool{addr: t.addr}
	defer p.close()
	ld := l.load(w, t)
	if err := l.warm(t, ld.open(ctx, p, rate, warm)); err != nil {
		return nil, err
	}
	return l.loaded(ctx, t, func() tally { return ld.open(ctx, p, rate, during) }, answers)
}

// warm discards what a load saw, but not that it went wrong.
func (l *lab) warm(t target, seen tally) error {
	if _, err := l.fold(t, seen); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	return nil
}

func runR100(name string, tokens int) func(context.Context, *lab, target) (values, error) {
	return func(ctx context.Context, l *lab, t target) (values, error) {
		w := work{name: name, tokens: tokens, ttft: 5 * time.Millisecond}
		return l.openLoop(ctx, t, w, 100, l.span(time.Second, time.Second/2), l.span(6*time.Second, 2*time.Second))
	}
}

// runBusy keeps 64 clients busy.
func runBusy(w work) func(context.Context, *lab, target) (values, error) {
	const clients = 64
	return func(ctx context.Context, l *lab, t target) (values, error) {
		cs := newClients(t.addr, clients)
		defer closeAll(cs)
		ld := l.load(w, t)
		if err := l.warm(t, ld.closed(ctx, cs, closed{clients: clients, during: l.span(time.Second, time.Second/2)})); err != nil {
			return nil, err
		}
		return l.loaded(ctx, t, func() tally {
			return ld.closed(ctx, cs, closed{clients: clients, during: l.span(5*time.Second, 1500*time.Millisecond)})
		}, answers)
	}
}

func runBodies(name string, bytes int, rate float64) func(context.Context, *lab, target) (values, error) {
	return func(ctx context.Context, l *lab, t target) (values, error) {
		w := work{name: name, tokens: unaryTokens, ttft: 5 * time.Millisecond, bytes: bytes}
		return l.openLoop(ctx, t, w, rate, l.span(time.Second, time.Second), l.span(6*time.Second, 2*time.Second))
	}
}

// streams is a load of so many streams at once, each so often.
type streams struct {
	work                 work
	clients, each, quick int
}

func runStream(s streams) func(context.Context, *lab, target) (values, error) {
	return func(ctx context.Context, l *lab, t target) (values, error) {
		cs := newClients(t.addr, s.clients)
		defer closeAll(cs)
		short := s.work
		short.name, short.stream = s.work.name+" warming up", true
		short.tokens = 10
		if err := l.warm(t, l.load(short, t).closed(ctx, cs, closed{clients: s.clients, each: 2})); err != nil {
			return nil, err
		}
		w := s.work
		w.stream = true
		ld := l.load(w, t)
		v, err := l.loaded(ctx, t, func() tally {
			return ld.closed(ctx, cs, closed{clients: s.clients, each: l.times(s.each, s.quick)})
		}, tokens)
		if v["cpu_path"] > 0 {
			v["tokens_s_core"] = 1e6 / v["cpu_path"]
			v["streams_core"] = v["tokens_s_core"] / 20
		}
		return v, err
	}
}
