package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/services/edge"
)

// An agent asks for its next answer at once. What the last one held and did not
// need is about to come back then: the account is not without money.
func TestAThinBalancePaysForOneAnswerAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	// Less than the whole output limit costs, so that each answer holds all of it.
	account, key := c.customer("thin", "0.01", billing.KeyOptions{})
	var paid int64
	last := time.Now()
	for i := range 20 {
		r := c.turn(&last, edge.HoldAgainFor, func() *http.Response {
			return c.do("POST", "/v1/chat/completions", key, strings.NewReader(fmt.Sprintf(
				`{"model":"glm-5.2","stream":%t,"messages":[{"role":"user","content":"turn %d [[sim tokens=5 think=0]]"}]}`, i%2 == 1, i)))
		})
		paid += r.Engy.ChargedMicro
	}
	c.eventually("all is booked", func() bool {
		b, err := c.admin.Balance(t.Context(), account.ID)
		return err == nil && b.OpenHolds == 0 && int64(b.Micro) == 10_000-paid
	})
}

// turn asks until it is served, and notes the end. The edge waits so long for what the
// turn before held to come back; only a machine that is too busy to book within that
// may make it refuse.
func (c *cluster) turn(last *time.Time, wait time.Duration, ask func() *http.Response) reply {
	c.t.Helper()
	for tries := 5; ; tries-- {
		resp := ask()
		r := c.fold(resp)
		if resp.StatusCode == 200 {
			*last = time.Now()
			return r
		}
		require.Contains(c.t, []int{402, 429}, resp.StatusCode, "%+v", r.Error)
		require.Greater(c.t, time.Since(*last), wait, "refused at once: %+v", r.Error)
		require.Positive(c.t, tries, "%+v", r.Error)
	}
}

// Nor is an answer under way that has ended: a key for one at a time may ask for
// the next at once, and for no second beside it.
func TestAKeyForOneAtATimeGetsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	one := int64(1)
	account, key := c.customer("single", "1", billing.KeyOptions{ConcurrentMax: &one})
	open := func(n int64) {
		c.eventually(fmt.Sprintf("%d holds are open", n), func() bool {
			b, err := c.admin.Balance(t.Context(), account.ID)
			return err == nil && b.OpenHolds == n
		})
	}
	last := time.Now()
	for i := range 20 {
		c.turn(&last, edge.BookedFor, func() *http.Response {
			return c.chat(key, hello(fmt.Sprintf("turn %d [[sim tokens=3 think=0]]", i), i%2 == 0))
		})
	}
	open(0)
	busy := make(chan reply, 1)
	go func() { busy <- c.fold(c.chat(key, hello("[[sim tokens=3 ttft=5s]]", true))) }()
	open(1)
	resp := c.chat(key, hello("[[sim tokens=3]]", false))
	require.Equal(t, 429, resp.StatusCode, c.body(resp))
	require.Nil(t, (<-busy).Error)
}

// A balance that covers less than was asked for lowers the limit of the answer, and
// the job begins anew: on a worker with one slot no less soon.
func TestAStretchedAnswerBeginsAtOnce(t *testing.T) {
	t.Parallel()
	for _, dispatch := range []string{"true", "false"} {
		t.Run("dispatch "+dispatch, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, shape{edgeEnv: []string{"EDGE_DISPATCH=" + dispatch, "EDGE_CLAIM_WAIT=900ms"}})
			c.workers[0].kill()
			c.workers = nil
			c.addWorker("WORKER_SLOTS=1", "WORKER_MODELS=qwen3.8-27b")
			c.eventually("the small worker is known", func() bool {
				list := c.body(c.do("GET", "/v1/models", "", nil))
				return strings.Contains(list, "qwen3.8-27b") && !strings.Contains(list, "glm-5.2")
			})
			slow := 0
			for i := 0; i < 8; i++ {
				_, key := c.customer(fmt.Sprintf("thin-%d-%d", i, slow), "0.001", billing.KeyOptions{})
				resp := c.do("POST", "/v1/chat/completions", key, strings.NewReader(fmt.Sprintf(
					`{"model":"qwen3.8-27b","stream":%t,"messages":[{"role":"user","content":"go [[sim tokens=5 ttft=%dms think=0]]"}]}`, i%2 == 1, 10*i)))
				r := c.fold(resp)
				// One that is lost until the next offer finds its wait over; on a busy machine
				// one that is not may, too, though few do.
				if resp.StatusCode == 429 && slow < 2 {
					slow++
					i--
					continue
				}
				require.Equal(t, 200, resp.StatusCode, "%d: %+v", i, r.Error)
				require.Nil(t, r.Error)
				require.Equal(t, int64(5), r.Usage.Completion)
			}
		})
	}
}

// An answer that cost more than its hold takes what the balance has, even when
// that is not all.
func TestAnAnswerAboveItsHoldTakesWhatThereIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	account, key := c.customer("short", "0.0012", billing.KeyOptions{})
	resp := c.do("POST", "/v1/chat/completions", key, strings.NewReader(
		`{"model":"glm-5.2","max_tokens":2,"messages":[{"role":"user","content":"go [[sim usage=5000:2:0 tokens=2 think=0]]"}]}`))
	r := c.fold(resp)
	require.Equal(t, 200, resp.StatusCode, r.Error)
	require.EqualValues(t, 1200, r.Engy.ChargedMicro)
	c.eventually("nothing is left", func() bool {
		b, err := c.admin.Balance(t.Context(), account.ID)
		return err == nil && b.OpenHolds == 0 && b.Micro == 0
	})
}

// What engines complain about may repeat the prompt, and is told to the caller
// alone.
func TestAnEnginesWordsAreNotLogged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"} {
		resp := c.do("POST", path, c.key, strings.NewReader(routeBody(path, "[[sim zzMARKERzz=SECRETCONTENT]]", "", false)))
		require.Contains(t, c.body(resp), "zzMARKERzz", path)
		require.Equal(t, 400, resp.StatusCode)
	}
	for _, p := range c.logs {
		require.NotContains(t, p.log.String(), "MARKER", p.name)
		require.NotContains(t, p.log.String(), "SECRET", p.name)
	}
}
