package main_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A conversation stays where its beginning was computed: of every turn but the
// first most is cached.
func TestAConversationStaysWithItsCache(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	for i := range 3 {
		c.addWorker("WORKER_ENGINE=" + c.engine(fmt.Sprintf("sim-%d", i+2)))
	}
	seen := map[string]bool{}
	c.eventually("four workers serve", func() bool {
		// Another conversation each time: each has its own home.
		r := c.fold(c.chat(c.key, hello(rand.Text()+strings.Repeat(" word", 1000)+" [[sim tokens=1 think=0]]", false)))
		seen[r.Engy.Worker] = true
		return len(seen) == 4
	})
	before := c.balance()
	system := strings.Repeat("You are a careful assistant of many rules. ", 150)
	for i := range 6 {
		a := hello("", i%2 == 0)
		a.Messages = []map[string]any{{"role": "system", "content": system}}
		var last reply
		for turn := range 4 {
			a.Messages = append(a.Messages, map[string]any{
				"role": "user", "content": fmt.Sprintf("Conversation %d, question %d. [[sim tokens=20 think=0]]", i, turn),
			})
			r := c.fold(c.chat(c.key, a))
			require.Nil(t, r.Error)
			if turn > 0 {
				require.Equal(t, last.Engy.Worker, r.Engy.Worker, "conversation %d, turn %d", i, turn)
				require.Greater(t, r.Usage.Details.Cached, last.Usage.Prompt*9/10)
			}
			last = r
			a.Messages = append(a.Messages, map[string]any{"role": "assistant", "content": r.Text})
		}
	}
	c.settled(before)
}
