package bus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/bus/natsembed"
	"github.com/engy-ai/engy/pkg/pricing"
)

// restarting is a server that can be started anew at its address.
type restarting struct {
	t      *testing.T
	dir    string
	url    string
	server *natsembed.Server
}

func newRestarting(t *testing.T) *restarting {
	t.Helper()
	r := &restarting{t: t, dir: t.TempDir()}
	// Nobody else gets the port on an address of its own.
	r.start(fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(200), rand.IntN(256), 1+rand.IntN(250)))
	r.url = r.server.URL()
	t.Cleanup(func() { r.server.Close() })
	return r
}

func (r *restarting) start(at string) {
	var err error
	r.server, err = natsembed.Start(natsembed.Config{Dir: r.dir, Listen: at})
	require.NoError(r.t, err)
}

// restart returns when all are connected again.
func (r *restarting) restart(all ...*bus.Bus) {
	r.t.Helper()
	r.server.Close()
	r.start(strings.TrimPrefix(r.url, "nats://"))
	for _, b := range all {
		require.Eventually(r.t, b.Connected, patience, time.Millisecond)
	}
}

func (r *restarting) connect(name string) *bus.Bus {
	r.t.Helper()
	b, err := bus.Connect(r.t.Context(), bus.Config{URL: r.url, Name: name})
	require.NoError(r.t, err)
	r.t.Cleanup(b.Close)
	return b
}

// What is lost with a connection is asked again, and who answers may be back a
// little later than who asks.
func TestHoldsOutliveAConnection(t *testing.T) {
	t.Parallel()
	r := newRestarting(t)
	edge, billing := r.connect("edge"), r.connect("billing")
	for late := 0; ; {
		heard := make(chan bus.HoldAsk, 1)
		deaf := bustest.Run(t, func(ctx context.Context) error {
			return billing.ServeHolds(ctx, func(h bus.HoldAsk) { heard <- h })
		})
		got := make(chan error, 1)
		begun := time.Now()
		edge.AskHold(bus.Hold{Job: "0a", Micro: 7, Expires: time.Now()}, func(a bus.HoldAnswer, err error) {
			if err == nil && a.Micro != 7 {
				err = fmt.Errorf("%+v", a)
			}
			got <- err
		})
		select {
		case <-heard:
		case err := <-got:
			require.Error(t, err, "it was not subscribed yet")
			deaf()
			continue
		}
		deaf()
		r.restart(edge, billing)
		stop := bustest.Run(t, func(ctx context.Context) error {
			return billing.ServeHolds(ctx, func(h bus.HoldAsk) {
				if err := h.Answer(bus.HoldAnswer{Micro: h.Hold.Micro}); err != nil {
					t.Error(err)
				}
			})
		})
		back := time.Since(begun)
		if err := <-got; err == nil {
			return
		}
		if back <= bus.HoldWait/2 {
			late++ // and the machine may still have been busy
		}
		require.Less(t, late, 5, "there was time enough")
		stop()
	}
}

// forgetful takes ends and books none.
type forgetful struct {
	*owner
	heard chan struct{}
}

func (o forgetful) Take(string, bus.Frame, func()) bool {
	o.heard <- struct{}{}
	return true
}

// An end, or the word that it is booked, that went with a connection is sent on the
// next one; nobody waits for the time at which it would be sent anyway.
func TestEndsOutliveAConnection(t *testing.T) {
	t.Parallel()
	r := newRestarting(t)
	edge, worker := r.connect("edge"), r.connect("worker")
	for late := 0; ; {
		o := forgetful{heard: make(chan struct{}, 10)}
		ready := make(chan struct{})
		stop := bustest.Run(t, func(ctx context.Context) error {
			return edge.Own(ctx, "edge-1", o, func() { close(ready) })
		})
		<-ready
		s, err := worker.Stream(ticket("j1"), "w1", 1)
		require.NoError(t, err)
		begun := time.Now()
		finished := make(chan error, 1)
		go func() {
			_, err := s.Finish(t.Context(), nil, bus.End{Outcome: pricing.Finished})
			finished <- err
		}()
		<-o.heard
		stop()
		r.restart(edge, worker)
		stop = serve(t, edge, "edge-1", &owner{})
		back := time.Since(begun)
		require.NoError(t, <-finished)
		s.Close()
		if time.Since(begun) < bus.FinishAgain {
			return
		}
		if back <= bus.FinishAgain/2 {
			late++ // and the machine may still have been busy
		}
		require.Less(t, late, 5, "there was time enough")
		stop()
	}
}
