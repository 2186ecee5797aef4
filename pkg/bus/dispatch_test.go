package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
)

// arrival is a job that was dispatched.
type arrival struct {
	ticket bus.Ticket
	work   bus.Work
}

func arrivals(t *testing.T, b *bus.Bus, worker string, take bool) chan arrival {
	t.Helper()
	got, ready := make(chan arrival, 10), make(chan struct{})
	bustest.Run(t, func(ctx context.Context) error {
		return b.Dispatches(ctx, worker, func(t bus.Ticket, w bus.Work) bool {
			got <- arrival{t, w}
			return take
		}, func() { close(ready) })
	})
	<-ready
	return got
}

// beside gives a bus and a plain connection to its server.
func beside(t *testing.T) (*bus.Bus, *nats.Conn) {
	t.Helper()
	s := bustest.Server(t)
	nc, err := nats.Connect(s.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return bustest.Connect(t, s, bus.Config{}), nc
}

func dispatch(job, worker string, attempt int, body []byte) bus.Dispatch {
	t := ticket(job)
	t.Worker, t.BodyBytes, t.Deadline = worker, int64(len(body)), t.Deadline.UTC().Truncate(0)
	return bus.Dispatch{Ticket: t, Attempt: attempt}
}

func TestADispatchTravels(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"no body": 0, "a small body": 100, "a body of one chunk": bus.ChunkBytes, "a body of many chunks": 4<<20 + 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.New(t)
			body := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
			o := &owner{bodies: map[string][]byte{"j1": body}, declined: make(chan string, 10)}
			serve(t, b, "edge-1", o)
			got := arrivals(t, b, "w.1", true)
			d := dispatch("j1", "w.1", 2, body)
			require.NoError(t, b.Dispatch(d, body))
			a := <-got
			require.Equal(t, 2, a.work.Attempt)
			require.Equal(t, d.Ticket, a.ticket)
			whole, err := b.Body(t.Context(), a.ticket, "w.1", a.work)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, whole))
			require.Empty(t, o.declined)
		})
	}
}

func TestADispatchThatNobodyTakesIsDeclined(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	o := &owner{declined: make(chan string, 10)}
	serve(t, b, "edge.1", o)
	send := func(d bus.Dispatch) {
		d.Ticket.Owner = "edge.1"
		require.NoError(t, b.Dispatch(d, nil))
	}
	send(dispatch("j1", "nobody", 1, nil))
	require.Equal(t, "nobody j1 1 true", <-o.declined)
	arrivals(t, b, "w.1", false)
	send(dispatch("j2", "w.1", 3, nil))
	require.Equal(t, "w.1 j2 3 false", <-o.declined)

	// A body that is not as long as its ticket says is no work.
	taken := arrivals(t, b, "w2", true)
	d := dispatch("j3", "w2", 1, []byte("long"))
	d.Ticket.Owner = "edge.1"
	require.NoError(t, b.Dispatch(d, []byte("longer")))
	require.Equal(t, "w2 j3 1 false", <-o.declined)
	require.Empty(t, taken)
}

// What anybody can send to a worker or an edge must not bring it down.
func TestDispatchesThatAreNoneAreSurvived(t *testing.T) {
	t.Parallel()
	b, nc := beside(t)
	o := &owner{declined: make(chan string, 10)}
	serve(t, b, "edge-1", o)
	got := arrivals(t, b, "w1", true)
	for _, raw := range []string{"", "\n", "{}", "{}\n", `{"ticket":{"body_bytes":-1},"attempt":1}` + "\n", "[]\nbody"} {
		m, err := nc.Request("dispatch.v1.w1", []byte(raw), patience)
		require.NoError(t, err, raw)
		require.Equal(t, "declined", string(m.Data))
	}
	for _, subj := range []string{"declines.v1.edge-1.j1.x.w1", "declines.v1.edge-1.j1.99999999999999999999.w1", "declines.v1.edge-1.j_zz.1.w1", "declines.v1.edge-1.j1.1.w1"} {
		require.NoError(t, nc.Publish(subj, nil))
	}
	require.Equal(t, "w1 j1 1 true", <-o.declined)
	require.Empty(t, o.declined)
	require.Empty(t, got)
}

func TestTheTicketsOfADeadWorkerAreThrownAway(t *testing.T) {
	t.Parallel()
	b, nc := beside(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	for i, worker := range []string{"w.1", "w.2", "", "w.1"} {
		k := ticket(fmt.Sprint("j", i))
		k.Worker = worker
		_, err := b.Offer(k, unexpected(t))
		require.NoError(t, err)
	}
	left := func() uint64 {
		stream, err := js.Stream(t.Context(), "JOBS_eu")
		require.NoError(t, err)
		return stream.CachedInfo().State.Msgs
	}
	require.Eventually(t, func() bool { return left() == 4 }, patience, time.Millisecond)
	b.Forsake("eu", "w.1")
	require.Eventually(t, func() bool { return left() == 2 }, patience, time.Millisecond)
	b.Forsake("eu", "w.9")
	b.Forsake("eu", "w.2")
	require.Eventually(t, func() bool { return left() == 1 }, patience, time.Millisecond)
}
