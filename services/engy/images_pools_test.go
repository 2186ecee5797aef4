package main_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// blindAndSeeing is a platform of two engines, of which only the second, behind
// the second worker, takes pictures.
func blindAndSeeing(t *testing.T) (c *cluster, eyes *cluster) {
	t.Helper()
	c = newCluster(t, shape{simEnv: []string{"SIM_MODELS=kimi-k3=2000000,glm-5.2=1048576"}})
	require.Equal(t, "text", c.inputs("kimi-k3"))
	sim := c.spawn("seeing sim", []string{"SIM_LISTEN=127.0.0.1:0", seeing}, "sim")
	eyes = &cluster{t: t, sim: sim.address()}
	c.addWorker("WORKER_ENGINE="+eyes.sim, "WORKER_MODELS=kimi-k3")
	c.eventually("pictures are taken", func() bool { return c.inputs("kimi-k3") == "image text" })
	return c, eyes
}

func TestTheListTellsWhatIsTakenNow(t *testing.T) {
	t.Parallel()
	c, _ := blindAndSeeing(t)
	d, small := dialects()[0], [2]string{"image/png", picture(t)}
	status, answer := c.send(d.path, c.key, d.ask("kimi-k3", false, "hi", small))
	require.Equal(t, 200, status, answer)
	require.Equal(t, "text", c.inputs("glm-5.2"))
	require.Contains(t, c.body(c.do("GET", "/v1/models", "", nil)), `"input_modalities":["image","text"]`)

	require.Zero(t, c.workers[1].stop())
	c.eventually("pictures are not taken any more", func() bool { return c.inputs("kimi-k3") == "text" })
	c.untouched(func() {
		status, answer = c.send(d.path, c.key, d.ask("kimi-k3", false, "hi", small))
		require.Equal(t, 400, status, answer)
		require.Contains(t, answer, "image")
	})
	status, answer = c.send(d.path, c.key, d.ask("kimi-k3", false, "hi"))
	require.Equal(t, 200, status, answer)

	// The same of a worker that is told what its engine does not tell.
	c.addWorker("WORKER_MODALITIES=image,audio", "WORKER_MODELS=kimi-k3")
	c.eventually("the new one is known", func() bool { return c.inputs("kimi-k3") == "image text audio" })
	status, answer = c.send(d.path, c.key, d.ask("kimi-k3", false, "hi", small))
	require.Equal(t, 200, status, answer)
}

func TestInAMixedPoolEveryPictureIsSeen(t *testing.T) {
	t.Parallel()
	c, eyes := blindAndSeeing(t)
	before, blind := c.balance(), c.counters()
	small := [2]string{"image/png", picture(t)}
	const each = 10
	var all sync.WaitGroup
	for _, d := range dialects() {
		for i := range 2 * each {
			all.Go(func() {
				if err := c.try(t.Context(), d.path, d.ask("kimi-k3", i%2 == 0, "[[sim tokens=20 itl=2ms]]", small)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	c.settled(before)
	require.Equal(t, blind, c.counters(), "the engine that does not see was shown a picture")
	require.Equal(t, int64(2*each*len(dialects())), eyes.counters().Total)

	// Text goes to both.
	c.eventually("the other engine gets work, too", func() bool {
		c.fold(c.chat(c.key, ask{Model: "kimi-k3", MaxTokens: 9, Messages: hello("hi", false).Messages}))
		return c.counters().Total > blind.Total
	})

	// A picture whose worker fails is not shown to one that does not see.
	blind = c.counters()
	d := dialects()[0]
	status, answer := c.send(d.path, c.key, d.ask("kimi-k3", false, "[[sim status=500]]", small))
	require.Equal(t, 502, status, answer)
	require.Equal(t, blind, c.counters())

	// One whose worker dies is shown to another that sees.
	ended := make(chan error, 1)
	go func() {
		ended <- c.try(t.Context(), d.path, d.ask("kimi-k3", true, "[[sim tokens=2 ttft=8s record=moved]]", small))
	}()
	eyes.running(1)
	c.joins("glm-5.3-flash", "WORKER_ENGINE="+eyes.sim, "WORKER_MODELS=kimi-k3,glm-5.3-flash=kimi-k3")
	c.workers[1].kill()
	require.NoError(t, <-ended)
	sent, _ := eyes.kept("moved")
	require.Equal(t, shown(small[0], small[1]), sent.Messages[0].Content.([]any)[1])
	require.Equal(t, blind, c.counters())
}

// try reads an answer to its end and says what is wrong with it, from any goroutine.
func (c *cluster) try(ctx context.Context, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", path, resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
