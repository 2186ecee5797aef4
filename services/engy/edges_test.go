package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
)

// Edges know nothing of each other's answers, and a client that asks one after the
// other must not notice.
func TestTwoEdgesAreOneToAClient(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	apis := []string{c.api}
	c.addEdge()
	apis = append(apis, c.api)
	a := hello("[[sim tokens=3]]", false)
	a.MaxTokens = 200
	// The money is enough for one hold, and for many answers.
	poor, poors := c.customer("poor", "0.0006", billing.KeyOptions{})
	single, singles := c.customer("single", "1", billing.KeyOptions{ConcurrentMax: new(int64(1))})
	for name, who := range map[string]struct{ account, key string }{
		"holds of an account that has little": {poor.ID, poors},
		"a key with one request at a time":    {single.ID, singles},
	} {
		refused := 0
		for i := range 20 {
			c.api = apis[i%2]
			resp := c.chat(who.key, a)
			if c.body(resp); resp.StatusCode == 200 {
				continue
			}
			// The books may be slow on a busy machine, but not always.
			refused++
			c.eventually("what was held is back", func() bool {
				b, err := c.admin.Balance(t.Context(), who.account)
				return err == nil && b.OpenHolds == 0
			})
		}
		require.Less(t, refused, 5, name)
	}
}
