package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
)

// An agent asks for its next answer at once. What the last one held and did not
// need is about to come back then: the account is not without money.
func TestAThinBalancePaysForOneAnswerAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	// Less than the whole output limit costs, so that each answer holds all of it.
	account, key := c.customer("thin", "0.01", billing.KeyOptions{})
	var paid int64
	for i := range 20 {
		resp := c.do("POST", "/v1/chat/completions", key, strings.NewReader(fmt.Sprintf(
			`{"model":"glm-5.2","stream":%t,"messages":[{"role":"user","content":"turn %d [[sim tokens=5 think=0]]"}]}`, i%2 == 1, i)))
		r := c.fold(resp)
		require.Equal(t, 200, resp.StatusCode, "turn %d: %+v", i, r.Error)
		paid += r.Engy.ChargedMicro
	}
	c.eventually("all is booked", func() bool {
		b, err := c.admin.Balance(t.Context(), account.ID)
		return err == nil && b.OpenHolds == 0 && int64(b.Micro) == 10_000-paid
	})
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
