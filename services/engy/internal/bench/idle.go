package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	// silence outlasts every scenario in which the engine says nothing.
	silence      = 25 * time.Second
	longSilence  = 5 * time.Minute
	idleStreams  = 1000
	leavers      = 20
	leaveWait    = 20 * time.Second
	leavePoll    = time.Millisecond
	sampleEvery  = 100 * time.Millisecond
	memorySettle = 3 * time.Second
	idleSpan     = 10 * time.Second
)

// runIdle tells what the processes take while nobody asks for anything: at a low
// rate it is a part of what a request seems to cost.
func runIdle(ctx context.Context, l *lab, _ target) (values, error) {
	before, err := l.rig.cpu()
	if err != nil {
		return nil, err
	}
	span := l.span(idleSpan, idleSpan/5)
	if err := rest(ctx, span); err != nil {
		return nil, err
	}
	after, err := l.rig.cpu()
	if err != nil {
		return nil, err
	}
	v := values{}
	for _, name := range []string{edgeName, busName, workerName, billingName, postgresName} {
		v["cpu_"+name] = ms(after[name]-before[name]) / span.Seconds()
	}
	return v, nil
}

// quiet sends one request on each connection and waits until the engine works
// on all of them.
func (l *lab) quiet(ctx context.Context, t target, w work, n int) ([]*client, error) {
	cs := newClients(t.addr, n)
	f := w.form(t)
	for i, c := range cs {
		if err := c.send(f.fill(nil, t.secrets[i%len(t.secrets)], i)); err != nil {
			closeAll(cs)
			return nil, err
		}
	}
	if err := l.running(ctx, n); err != nil {
		closeAll(cs)
		return nil, err
	}
	if !t.direct {
		l.settled += int64(n)
	}
	return cs, nil
}

// running waits until the engine works on so many requests.
func (l *lab) running(ctx context.Context, n int) error {
	return l.rig.until(ctx, fmt.Sprintf("the engine works on %d requests", n), leaveWait, func() (bool, error) {
		now, err := l.rig.engineRunning(ctx)
		return now == n, err
	})
}

// runLeave lets clients leave one by one, and looks when the engine stops
// working for each.
func runLeave(ctx context.Context, l *lab, t target) (values, error) {
	v := values{}
	for _, kind := range []struct {
		key    string
		stream bool
	}{{"stream", true}, {"whole", false}} {
		w := work{name: "leave", tokens: 100, ttft: silence, stream: kind.stream}
		cs, err := l.quiet(ctx, t, w, l.times(leavers, leavers/2))
		if err != nil {
			return nil, err
		}
		took, err := l.leave(ctx, cs)
		closeAll(cs)
		if err != nil {
			return nil, err
		}
		v[kind.key+"_p50_ms"], v[kind.key+"_p99_ms"] = ms(percentile(took, 50)), ms(percentile(took, 99))
	}
	return v, nil
}

func (l *lab) leave(ctx context.Context, cs []*client) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	every := time.NewTicker(leavePoll)
	defer every.Stop()
	var took []time.Duration
	for i, c := range cs {
		left := time.Now()
		c.close()
		for {
			n, err := l.rig.engineRunning(ctx)
			if err != nil {
				return nil, err
			}
			if n <= len(cs)-i-1 {
				break
			}
			select {
			case <-every.C:
			case <-ctx.Done():
				return nil, fmt.Errorf("engine still works for %d of %d who left: %w", n, len(cs), context.Cause(ctx))
			}
		}
		took = append(took, time.Since(left))
	}
	return took, nil
}

// runMemory measures processes that have served nothing before, since a heap
// that was large once stays large.
func runMemory(ctx context.Context, l *lab, _ target) (values, error) {
	v := values{}
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	p100, err := l.peak(ctx, 100)
	if err != nil {
		return nil, err
	}
	p500, err := l.peak(ctx, 500)
	if err != nil {
		return nil, err
	}
	v["peak100_mib"], v["peak500_mib"] = float64(p100)/(1<<20), float64(p500)/(1<<20)
	v["flow_kib"] = float64(p500-p100) / 400 / 1024

	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	edge := l.rig.procs[edgeName].pid()
	before, err := residentBytes(edge)
	if err != nil {
		return nil, err
	}
	cs, err := l.quiet(ctx, l.full, work{name: "idle", tokens: 100, ttft: longSilence, stream: true}, idleStreams)
	if err != nil {
		return nil, err
	}
	defer closeAll(cs)
	if err := rest(ctx, memorySettle); err != nil {
		return nil, err
	}
	with, err := residentBytes(edge)
	if err != nil {
		return nil, err
	}
	v["idle_kib"] = float64(with-before) / idleStreams / 1024
	closeAll(cs)
	return v, l.running(ctx, 0)
}

const (
	imageBytes    = 20 << 20
	imageRequests = 50
	imagesSettle  = 15 * time.Second
)

// runImages sends requests full of images all at once, and looks at what the edge
// takes for them at the most, and has still when they are over.
func runImages(ctx context.Context, l *lab, _ target) (values, error) {
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	edge := l.rig.procs[edgeName].pid()
	before, err := residentBytes(edge)
	if err != nil {
		return nil, err
	}
	w := work{name: "images", tokens: 1, ttft: time.Second, images: imageBytes}
	n := l.times(imageRequests, 2)
	cs := newClients(l.full.addr, n)
	ld := l.load(w, l.full)
	err = l.warm(l.full, ld.closed(ctx, cs, closed{clients: n, each: 1}))
	closeAll(cs)
	if err != nil {
		return nil, err
	}
	most, err := peakBytes(edge)
	if err != nil {
		return nil, err
	}
	if err := rest(ctx, imagesSettle); err != nil {
		return nil, err
	}
	after, err := residentBytes(edge)
	if err != nil {
		return nil, err
	}
	all := float64(n * len(ld.form.raw))
	return values{
		"peak_x": float64(most-before) / all, "after_x": float64(after-before) / all,
		"peak_mib": float64(most) / (1 << 20), "after_mib": float64(after) / (1 << 20), "body_mib": float64(len(ld.form.raw)) / (1 << 20),
	}, nil
}

// renew restarts the product and lets it serve a few requests, so that what
// every process needs once is there before anything is measured.
func (l *lab) renew(ctx context.Context) error {
	if err := l.rig.restart(ctx); err != nil {
		return err
	}
	l.full.addr = l.rig.edge
	cs := newClients(l.full.addr, 1)
	defer closeAll(cs)
	w := work{name: "renew", tokens: 10, stream: true}
	return l.warm(l.full, l.load(w, l.full).closed(ctx, cs, closed{clients: 1, each: 10}))
}

// peak is the most memory that the product has while so many streams flow.
func (l *lab) peak(ctx context.Context, n int) (int64, error) {
	cs := newClients(l.full.addr, n)
	defer closeAll(cs)
	w := work{name: fmt.Sprintf("memory %d", n), tokens: 100, ttft: 20 * time.Millisecond, itl: 20 * time.Millisecond, stream: true}
	ld := l.load(w, l.full)
	done := make(chan tally, 1)
	// The same number of tokens passes however many streams there are, so that each
	// heap has grown as far as its collector lets it.
	go func() { done <- ld.closed(ctx, cs, closed{clients: n, each: l.times(2, 1) * 500 / n}) }()
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	var most int64
	var failed error
	for {
		select {
		case seen := <-done:
			if failed == nil {
				failed = l.warm(l.full, seen)
			}
			return most, failed
		case <-every.C:
			now, err := l.rig.resident()
			if err != nil {
				failed = err
			}
			most = max(most, now)
		}
	}
}
