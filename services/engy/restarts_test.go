package main_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pgtest"
)

// What was on its way goes again, and what is away for a moment is waited for: a
// client that repeats what is refused for the moment, as they all do, notices
// nothing.
func TestRestartsLoseNoRequest(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*cluster){
		"of the bus": func(c *cluster) {
			c.nats.kill()
			c.startBus(strings.TrimPrefix(c.bus, "nats://"))
		},
		"of billing": func(c *cluster) {
			c.books.kill()
			c.startBilling()
		},
		"of billing in good order": func(c *cluster) {
			require.Zero(c.t, c.books.stop())
			c.startBilling()
		},
		"of the database": (*cluster).cutDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{})
			c.addWorker()
			before := c.balance()
			load := c.load(8)
			for n := range int64(2) {
				c.eventually("requests are served", func() bool { return load.served.Load() >= 100*(n+1) })
				restart(c)
			}
			c.eventually("requests are served again", func() bool { return load.served.Load() >= 300 })
			load.stop()
			require.Positive(t, int64(c.settled(before)))
		})
	}
}

// A billing that hangs takes its share of the questions and answers none of them. The
// other one is enough.
func TestOneOfTwoBillingsHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{edgeEnv: []string{"EDGE_HOLD_LEASE=4s"}})
	before := c.balance()
	hung := c.books
	c.startBilling()
	c.eventually("the second one serves", func() bool { return strings.Count(c.books.log.String(), "questions are answered") == 2 })
	// Its hold must be renewed by the one that is left.
	long := make(chan reply, 1)
	go func() { long <- c.fold(c.chat(c.key, hello("[[sim tokens=5 ttft=10s]]", false))) }()
	c.running(1)
	require.NoError(t, hung.cmd.Process.Signal(syscall.SIGSTOP))
	var charged int64
	for i := range 60 {
		resp := c.chat(c.key, hello("[[sim tokens=5]]", false))
		require.Equal(t, 200, resp.StatusCode, i)
		charged += c.fold(resp).Engy.ChargedMicro
	}
	r := <-long
	require.Nil(t, r.Error)
	charged += r.Engy.ChargedMicro
	require.Equal(t, charged, int64(c.settled(before)))
	require.NoError(t, hung.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, int64(5), c.fold(c.chat(c.key, hello("[[sim tokens=5]]", false))).Usage.Completion)
	require.NotContains(t, c.books.log.String()+hung.log.String(), "ALARM")
}

// While the bus is away engines go on, and nobody takes anybody for dead who is only
// cut off: what is finished meanwhile is delivered, shown and booked as one number.
func TestABusThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	c.addWorker()
	before := c.balance()
	const clients = 6
	replies := make(chan reply, clients)
	for i := range clients {
		go func() {
			var r reply
			defer func() { replies <- r }()
			resp := c.insist(hello(fmt.Sprintf("[[sim tokens=5 ttft=%dms]]", 6000+300*i), false))
			if resp.StatusCode != 200 {
				c.t.Errorf("%d", resp.StatusCode)
			}
			r = c.fold(resp)
		}()
	}
	c.running(clients)
	c.nats.kill()
	c.eventually("some answers end while the bus is away", func() bool { return c.counters().Finished >= 2 })
	c.startBus(strings.TrimPrefix(c.bus, "nats://"))
	var charged int64
	for range clients {
		r := <-replies
		require.Nil(t, r.Error)
		require.Equal(t, "stop", r.Finish)
		charged += r.Engy.ChargedMicro
	}
	require.Equal(t, charged, int64(c.settled(before)))
}

// load is many clients that ask one question after the other.
type load struct {
	served atomic.Int64
	stop   func()
}

func (c *cluster) load(clients int) *load {
	var l load
	var all sync.WaitGroup
	var over atomic.Bool
	l.stop = func() {
		over.Store(true)
		all.Wait()
	}
	for range clients {
		all.Go(func() {
			for !over.Load() {
				resp := c.insist(hello("[[sim tokens=5 itl=5ms]]", false))
				if body := c.body(resp); resp.StatusCode != 200 {
					c.t.Errorf("%d %s", resp.StatusCode, body)
				}
				l.served.Add(1)
			}
		})
	}
	c.t.Cleanup(l.stop)
	return &l
}

// insist asks again, a few times, when it is told to.
func (c *cluster) insist(a ask) *http.Response {
	for try := 0; ; try++ {
		resp := c.chat(c.key, a)
		if resp.StatusCode != 503 || try == 5 {
			return resp
		}
		c.t.Log("told to ask again: ", c.body(resp))
	}
}

// cutDatabase ends all connections of billing to the database, for a while; those of
// the test itself stay.
func (c *cluster) cutDatabase() {
	c.t.Helper()
	at, err := url.Parse(c.dsn)
	require.NoError(c.t, err)
	name := strings.TrimPrefix(at.Path, "/")
	at.Path = "/postgres"
	pool := pgtest.Open(c.t, pg.Config{DSN: at.String(), Name: "cut"})
	for range 30 {
		_, err := pool.Exec(c.t.Context(),
			"select pg_terminate_backend(pid), pg_sleep(0.01) from pg_stat_activity where datname = $1 and application_name in ('billing holds', 'billing books', 'billing accounts')", name)
		require.NoError(c.t, err)
	}
}
