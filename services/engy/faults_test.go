package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
)

// running waits until exactly n requests run at the engine.
func (c *cluster) running(n int64) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d requests run at the engine", n), func() bool { return c.counters().Running == n })
}

// second adds a worker and waits until the edge would choose it. It serves a
// model that the first does not, which is how the edge's list tells.
func (c *cluster) second() {
	c.t.Helper()
	c.addWorker("WORKER_MODELS=glm-5.2,deepseek-v4.1-flash=glm-5.2")
	c.eventually("the second worker is known", func() bool {
		return strings.Contains(c.body(c.do("GET", "/v1/models", "", nil)), "deepseek-v4.1-flash")
	})
}

// open starts a stream and gives its lines.
func (c *cluster) open(a ask) (*http.Response, *bufio.Scanner, context.CancelFunc) {
	c.t.Helper()
	a.Stream = true
	raw, err := json.Marshal(a)
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(c.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+"/v1/chat/completions", bytes.NewReader(raw))
	require.NoError(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	return resp, lines, cancel
}

// chunks reads n pieces of text.
func chunks(t *testing.T, lines *bufio.Scanner, n int) {
	t.Helper()
	for n > 0 && lines.Scan() {
		if strings.Contains(lines.Text(), `"content":"`) && !strings.Contains(lines.Text(), `"content":""`) {
			n--
		}
	}
	require.Zero(t, n)
}

// bothWays tests a platform whose jobs are dispatched, and one whose jobs all pass
// through the queue.
func bothWays(t *testing.T, test func(t *testing.T, c *cluster)) {
	for name, dispatch := range map[string]string{"dispatched": "true", "queued": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newCluster(t, shape{edgeEnv: []string{"EDGE_DISPATCH=" + dispatch}}))
		})
	}
}

func TestAWorkerDiesBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		before := c.balance()
		const jobs = 5
		replies := make([]reply, jobs)
		var all sync.WaitGroup
		for i := range jobs {
			// The answer is the same wherever it is made, and its beginning slow: another
			// worker starts meanwhile.
			all.Go(func() { replies[i] = c.fold(c.chat(c.key, hello("hi [[sim tokens=5 ttft=8s]]", i%2 == 0))) })
		}
		c.running(jobs)
		c.second()
		c.workers[0].kill()
		all.Wait()
		for _, r := range replies {
			require.Nil(t, r.Error)
			require.Equal(t, int64(5), r.Usage.Completion)
			require.Equal(t, "worker-2", r.Engy.Worker)
			require.Equal(t, replies[0].Text, r.Text)
		}
		var charged int64
		for _, r := range replies {
			charged += r.Engy.ChargedMicro
		}
		require.Equal(t, charged, int64(c.settled(before)))
	})
}

// A supervisor starts a worker anew, and those whose answers had not begun wait.
func TestTheOnlyWorkerDiesAndComesAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{edgeEnv: []string{"EDGE_CLAIM_WAIT=30s"}})
	before := c.balance()
	replies := make([]reply, 4)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = c.fold(c.chat(c.key, hello("hi [[sim tokens=5 ttft=5s]]", i%2 == 0))) })
	}
	c.running(int64(len(replies)))
	c.workers[0].kill()
	c.addWorker()
	all.Wait()
	var charged int64
	for _, r := range replies {
		require.Nil(t, r.Error)
		require.Equal(t, int64(5), r.Usage.Completion)
		require.Equal(t, "worker-2", r.Engy.Worker)
		charged += r.Engy.ChargedMicro
	}
	require.Equal(t, charged, int64(c.settled(before)))
}

func TestAWorkerDiesAfterTheFirstByte(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		before := c.balance()
		_, lines, _ := c.open(hello("hi [[sim tokens=200 itl=50ms]]", true))
		chunks(t, lines, 3)
		c.workers[0].kill()
		r := failed(t, lines)
		require.Empty(t, r.Finish)
		require.Zero(t, c.settled(before))
	})
}

// failed reads the rest of a stream that its engine or worker has failed.
func failed(t *testing.T, lines *bufio.Scanner) (r reply) {
	t.Helper()
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			r.add(t, []byte(data))
		}
	}
	require.NoError(t, lines.Err(), "the connection ends cleanly")
	require.NotNil(t, r.Error)
	require.Equal(t, 502, r.Error.Code)
	return r
}

func TestAWorkerThatHangsIsFenced(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		before := c.balance()
		got := make(chan reply, 1)
		go func() { got <- c.fold(c.chat(c.key, hello("hi [[sim tokens=5 ttft=8s]]", true))) }()
		c.running(1)
		c.second()
		require.NoError(t, c.workers[0].cmd.Process.Signal(syscall.SIGSTOP))
		r := <-got
		require.NoError(t, c.workers[0].cmd.Process.Signal(syscall.SIGCONT))
		require.Nil(t, r.Error)
		require.Equal(t, "worker-2", r.Engy.Worker)
		require.Equal(t, 5, r.Chunks)
		require.Equal(t, r.Engy.ChargedMicro, int64(c.settled(before)))
		// The woken worker is as good as any other again, and its old attempt is
		// stopped.
		c.running(0)
		require.Equal(t, int64(5), c.fold(c.chat(c.key, hello("again [[sim tokens=5]]", false))).Usage.Completion)
	})
}

func TestTheEdgeDiesInMidStream(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		before := c.balance()
		_, lines, _ := c.open(hello("hi [[sim tokens=900 itl=50ms]]", true))
		chunks(t, lines, 3)
		require.Equal(t, int64(1), c.balance().OpenHolds)
		c.edge.kill()
		c.running(0) // the worker stopped the engine
		require.Zero(t, c.settled(before), "an answer that failed on our side is free")
		require.Equal(t, int64(1), c.counters().Aborted)
		c.addEdge()
		require.Equal(t, int64(3), c.fold(c.chat(c.key, hello("again [[sim tokens=3]]", true))).Usage.Completion)
	})
}

func TestWorkThatWasDoneForADeadEdgeIsCharged(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		before := c.balance()
		// Nothing reaches the client before the end, and the end comes right after
		// the edge has died: the worker's report is all that there is.
		raw, err := json.Marshal(hello("hi [[sim tokens=5 ttft=4s]]", false))
		require.NoError(t, err)
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.api, "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", c.key, len(raw), raw)
		require.NoError(t, err)
		c.running(1)
		c.eventually("its money is held", func() bool { return c.balance().OpenHolds == 1 })
		require.NoError(t, c.edge.cmd.Process.Signal(syscall.SIGSTOP))
		c.eventually("the engine has finished", func() bool { return c.counters().Finished == 1 })
		c.edge.kill()
		require.Positive(t, int64(c.settled(before)))
	})
}

// An answer may be whole at the edge long before its client has read it.
func TestAnAnswerThatItsEdgeDiesWithIsCharged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	// More than the sockets take, less than the edge keeps for a slow client.
	a := hello("hi [[sim tokens=20000 itl=0s]]", true)
	a.MaxTokens = 20_000
	raw, err := json.Marshal(a)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.api, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", c.key, len(raw), raw)
	require.NoError(t, err)
	c.eventually("the engine has finished", func() bool { return c.counters().Finished == 1 })
	second := c.addWorker() // which takes a while
	c.eventually("a second worker has joined", func() bool { return strings.Contains(second.log.String(), "joining the fleet") })
	c.eventually("its money is held", func() bool { return c.balance().OpenHolds == 1 })
	c.edge.kill()
	require.Positive(t, int64(c.settled(before)))
}

func TestAClientLeaves(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		t.Run("in a stream", func(t *testing.T) {
			before := c.balance()
			_, lines, leave := c.open(hello("hi [[sim tokens=900 itl=50ms]]", true))
			chunks(t, lines, 5)
			leave()
			c.running(0)
			spent := int64(c.settled(before))
			// At least the five tokens and the prompt, far fewer than all.
			require.Greater(t, spent, int64(5*1500/1000))
			require.Less(t, spent, int64(900*1500/1000))
		})
		t.Run("while nothing flows, streaming and not", func(t *testing.T) {
			before := c.balance()
			for _, stream := range []bool{true, false} {
				for range 10 {
					raw, err := json.Marshal(hello("hi [[sim ttft=60s]]", stream))
					require.NoError(t, err)
					conn, err := net.Dial("tcp", strings.TrimPrefix(c.api, "http://"))
					require.NoError(t, err)
					_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", c.key, len(raw), raw)
					require.NoError(t, err)
					c.running(1)
					require.NoError(t, conn.Close())
					c.running(0)
				}
			}
			c.settled(before)
		})
	})
}

func TestASoftStopLosesNothing(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, c *cluster) {
		before := c.balance()
		_, lines, _ := c.open(hello("hi [[sim tokens=40 itl=50ms]]", true))
		chunks(t, lines, 2)
		stopped := make(chan int, 2)
		go func() { stopped <- c.workers[0].stop() }()
		c.eventually("the worker has left the fleet", func() bool {
			resp := c.do("GET", "/v1/models", "", nil)
			return !strings.Contains(c.body(resp), "glm-5.2")
		})
		go func() { stopped <- c.edge.stop() }()
		var r reply
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "[DONE]" {
				r.add(t, []byte(data))
			}
		}
		require.Nil(t, r.Error)
		require.Equal(t, int64(40), r.Usage.Completion)
		require.Zero(t, <-stopped)
		require.Zero(t, <-stopped)
		require.Equal(t, r.Engy.ChargedMicro, int64(c.settled(before)))
	})
}

func TestBillingIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	// What was served while billing could still answer is booked when it is back.
	_, lines, _ := c.open(hello("hi [[sim tokens=10 itl=500ms]]", true))
	chunks(t, lines, 1)
	c.books.kill()
	for lines.Scan() {
	}
	require.NoError(t, lines.Err())
	resp := c.chat(c.key, hello("hi", true))
	require.Equal(t, 503, resp.StatusCode, c.body(resp))
	c.running(0)
	require.Equal(t, int64(1), c.balance().OpenHolds)
	c.startBilling()
	require.Positive(t, int64(c.settled(before)))
	require.Equal(t, int64(3), c.fold(c.chat(c.key, hello("[[sim tokens=3]]", true))).Usage.Completion)
}

func TestAQueueWithoutWorkersSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{edgeEnv: []string{"EDGE_CLAIM_WAIT=2s"}})
	before := c.balance()
	slots := c.spawn("worker-small", []string{"WORKER_ENGINE=" + c.sim, "WORKER_NAME=small", "WORKER_SLOTS=1", "WORKER_MODELS=qwen3.8-27b"}, "worker")
	c.eventually("the small worker has joined", func() bool { return strings.Contains(slots.log.String(), "joining the fleet") })
	c.workers[0].stop()
	c.eventually("only the small worker is left", func() bool {
		resp := c.do("GET", "/v1/models", "", nil)
		list := c.body(resp)
		return strings.Contains(list, "qwen3.8-27b") && !strings.Contains(list, "glm-5.2")
	})
	busy := hello("[[sim tokens=3 ttft=8s]]", true)
	busy.Model = "qwen3.8-27b"
	got := make(chan reply, 1)
	go func() { got <- c.fold(c.chat(c.key, busy)) }()
	c.running(1)
	quick := hello("[[sim tokens=3]]", false)
	quick.Model = "qwen3.8-27b"
	resp := c.chat(c.key, quick)
	require.Equal(t, 429, resp.StatusCode, c.body(resp))
	require.Equal(t, "2", resp.Header.Get("Retry-After"), "one waits for one slot")
	r := <-got
	require.Nil(t, r.Error)
	// The given-up job is not run later.
	c.eventually("the next is served", func() bool { return c.fold(c.chat(c.key, quick)).Usage.Completion == 3 })
	require.Equal(t, int64(2), c.counters().Total)
	c.settled(before)
}

func TestIdleConnectionsAndStreamsLeaveNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			r := c.fold(c.chat(c.key, hello("[[sim tokens=20 itl=5ms]]", true)))
			if r.Error != nil || r.Chunks != 20 {
				t.Errorf("%d chunks, error %+v", r.Chunks, r.Error)
			}
		})
	}
	all.Wait()
	c.running(0)
	require.Positive(t, int64(c.settled(before)))
	require.Equal(t, int64(200), c.counters().Finished)
	require.Equal(t, 0, c.edge.stop())
}

func TestTheBusIsStartedAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	require.Equal(t, int64(3), c.fold(c.chat(c.key, hello("[[sim tokens=3]]", true))).Usage.Completion)
	// A stream under way ends with an error or whole, never without an end.
	_, lines, _ := c.open(hello("hi [[sim tokens=60 itl=50ms]]", true))
	chunks(t, lines, 2)
	c.nats.kill()
	c.startBus(strings.TrimPrefix(c.bus, "nats://"))
	var r reply
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "[DONE]" {
			r.add(t, []byte(data))
		}
	}
	require.True(t, r.Error != nil || r.Usage.Completion == 60, "%+v", r)
	c.eventually("requests are served again", func() bool {
		resp := c.chat(c.key, hello("[[sim tokens=3]]", false))
		c.body(resp)
		return resp.StatusCode == 200
	})
	_, key := c.customer("later", "1", billing.KeyOptions{})
	require.Equal(t, int64(3), c.fold(c.chat(key, hello("[[sim tokens=3]]", false))).Usage.Completion)
	require.Positive(t, int64(c.settled(before)))
}

func TestEdgeAndWorkerDieTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{edgeEnv: []string{"EDGE_HOLD_LEASE=4s"}})
	before := c.balance()
	_, lines, _ := c.open(hello("hi [[sim tokens=900 itl=50ms]]", true))
	chunks(t, lines, 110) // longer than the lease: it was renewed
	require.Equal(t, int64(1), c.balance().OpenHolds)
	c.edge.kill()
	c.workers[0].kill()
	require.Zero(t, c.settled(before), "the hold ends with its lease")
}

// An edge that stands still for longer than its lease cannot tell from the inside that
// the ledger has ended its jobs.
func TestAnEdgeThatStoodStillShowsWhatIsBooked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{edgeEnv: []string{"EDGE_HOLD_LEASE=2s"}})
	before := c.balance()
	got := make(chan reply, 1)
	go func() { got <- c.fold(c.chat(c.key, hello("hi [[sim tokens=5 ttft=3s]]", false))) }()
	c.running(1)
	c.eventually("its money is held", func() bool { return c.balance().OpenHolds == 1 })
	require.NoError(t, c.edge.cmd.Process.Signal(syscall.SIGSTOP))
	c.running(0) // the answer is on its way to the edge
	second := c.addWorker()
	c.eventually("a second worker has joined", func() bool { return strings.Contains(second.log.String(), "joining the fleet") })
	c.workers[0].kill() // before it reports
	charged := c.settled(before)
	require.NoError(t, c.edge.cmd.Process.Signal(syscall.SIGCONT))
	r := <-got
	require.Nil(t, r.Error)
	require.Equal(t, int64(5), r.Usage.Completion)
	require.Equal(t, int64(charged), r.Engy.ChargedMicro)
	c.edge.stop() // nothing is on its way any more
	require.Equal(t, charged, c.settled(before))
	require.NotContains(t, c.books.log.String(), "ALARM")
}
