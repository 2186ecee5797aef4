package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// masked is the simulator behind the name of another kind of engine. It counts what
// it is asked.
type masked struct {
	*httptest.Server
	chats, raws, scores atomic.Int64
}

func newMasked(t *testing.T, sim, owner string) *masked {
	t.Helper()
	l := &masked{}
	behind, err := url.Parse(sim)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.FlushInterval = -1
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"glm-5.2","object":"model","owned_by":"`+owner+`"}]}`)
			return
		case "/v1/chat/completions":
			l.chats.Add(1)
		case "/v1/completions":
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			l.raws.Add(1)
			if bytes.Contains(body, []byte(`"echo"`)) || bytes.Contains(body, []byte(`"prompt_logprobs"`)) {
				l.scores.Add(1)
			}
		case "/generate":
			l.scores.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(l.Close)
	return l
}

// joins waits until a worker is one of those that the edge would choose.
func (c *cluster) joins(model string, env ...string) *process {
	c.t.Helper()
	w := c.addWorker(env...)
	c.eventually("the worker is known", func() bool {
		return strings.Contains(c.body(c.do("GET", "/v1/models", "", nil)), model)
	})
	return w
}

func TestOnlyWhoCanScoreIsAskedTo(t *testing.T) {
	t.Parallel()
	// Short enough for a job that is sent to a dead worker to end soon.
	c := newCluster(t, shape{edgeEnv: []string{"EDGE_CLAIM_WAIT=10s"}})
	other := newMasked(t, c.sim, "llamacpp") // which cannot score
	c.joins("deepseek-v4.1-flash", "WORKER_ENGINE="+other.URL, "WORKER_MODELS=glm-5.2,deepseek-v4.1-flash=glm-5.2")
	ids := c.encode("The capital of France is")
	score := func() *rawReply {
		return c.complete(object{"model": "glm-5.2", "prompt": ids, "max_tokens": 1, "logprob_start_len": 1})
	}
	echo := object{"model": "glm-5.2", "prompt": "The capital of France is", "max_tokens": 1, "echo": true, "logprobs": 1}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for _, r := range []*rawReply{score(), c.complete(echo)} {
				if r.status != 200 || r.Engy.Worker != "worker-1" {
					t.Errorf("status %d of %s: %v", r.status, r.Engy.Worker, r.Error)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, other.scores.Load()+other.raws.Load())
	// What both can do, both do.
	c.eventually("the other one works as well", func() bool {
		c.fold(c.chat(c.key, hello("hi [[sim tokens=1]]", false)))
		c.complete(object{"model": "glm-5.2", "prompt": ids, "max_tokens": 1})
		return other.chats.Load() > 0 && other.raws.Load() > 0
	})
	require.Zero(t, other.scores.Load())

	// No other attempt goes to who cannot: this one fails wherever it runs.
	c.settled(c.balance())
	before := c.balance()
	failing := c.complete(object{"model": "glm-5.2", "prompt": "x [[sim status=500]]", "max_tokens": 1, "logprob_start_len": 0})
	require.Equal(t, 502, failing.status)
	require.Zero(t, other.scores.Load())
	require.Zero(t, c.settled(before))

	// A second one that can takes over from one that dies.
	c.joins("glm-5.3", "WORKER_MODELS=glm-5.2,glm-5.3=glm-5.2")
	got := make(chan *rawReply, 1)
	go func() {
		got <- c.complete(object{"model": "glm-5.2", "prompt": "a b c [[sim ttft=5s]]", "max_tokens": 1, "logprob_start_len": 1})
	}()
	c.running(1)
	c.workers[0].kill()
	r := <-got
	require.Equal(t, 200, r.status, "%v", r.Error)
	require.Equal(t, "worker-3", r.Engy.Worker, "whoever had it first")
	require.Zero(t, other.scores.Load())

	// When nobody can any more, that is said, and the rest goes on.
	c.workers[2].kill()
	c.eventually("the dead workers are out of the fleet", func() bool { return score().status == 400 })
	r = score()
	require.Equal(t, "no live worker of model 'glm-5.2' can score prompts", r.Error.Message)
	require.Equal(t, 400, c.complete(echo).status)
	plain := c.complete(object{"model": "glm-5.2", "prompt": "The sea is [[sim tokens=2]]", "max_tokens": 5, "echo": true})
	require.Equal(t, 200, plain.status, "%v", plain.Error)
	require.True(t, strings.HasPrefix(plain.Choices[0].Text, "The sea is"), "an echo that is not scored needs nobody who scores")
}

// Engines are asked in different ways and answer in different forms.
func TestEveryKindOfEngineScoresAlike(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	kinds := map[string]*masked{"glm-5.2": nil, "glm-5.3": newMasked(t, c.sim, "sglang"), "deepseek-v4.1-flash": newMasked(t, c.sim, "vllm")}
	for model, m := range kinds {
		if m != nil {
			c.joins(model, "WORKER_ENGINE="+m.URL, "WORKER_MODELS="+model+"=glm-5.2")
		}
	}
	ids := c.encode("The capital of France is a large city.")
	for name, body := range map[string]object{
		"a span":                  {"prompt": ids, "logprob_start_len": 4},
		"from the start":          {"prompt": ids, "logprob_start_len": 0},
		"a span of a string":      {"prompt": "The capital of France is", "logprob_start_len": 3},
		"a string as a whole":     {"prompt": "The capital of France is", "logprob_start_len": 0},
		"an echo":                 {"prompt": "The capital of France is", "echo": true, "logprobs": 3},
		"an echo of ids":          {"prompt": ids, "echo": true, "logprobs": 1},
		"ids that are not scored": {"prompt": ids, "echo": true},
		"generated":               {"prompt": ids, "logprobs": 2},
		"plain":                   {"prompt": ids},
	} {
		body["max_tokens"] = 2
		answers := map[string]*rawReply{}
		for model := range kinds {
			body["model"] = model
			r := c.complete(body)
			require.Equal(t, 200, r.status, "%s of %s: %v", name, model, r.Error)
			answers[model] = r
		}
		for model, r := range answers {
			require.JSONEq(t, string(answers["glm-5.2"].Choices[0].Logprobs), string(r.Choices[0].Logprobs), "%s of %s", name, model)
			require.Equal(t, answers["glm-5.2"].Choices[0].Text, r.Choices[0].Text, name)
			require.Equal(t, answers["glm-5.2"].Usage.Completion, r.Usage.Completion, name)
			require.Equal(t, answers["glm-5.2"].Usage.Prompt, r.Usage.Prompt, name)
		}
	}
	require.Positive(t, kinds["glm-5.3"].scores.Load())
	require.Positive(t, kinds["deepseek-v4.1-flash"].scores.Load())
}

func TestAnImageGoesOnlyToWhoSees(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{simEnv: []string{"SIM_MODELS=glm-5.2,kimi-k3=1048576+image"}})
	blind := c.spawn("blind", []string{"SIM_LISTEN=127.0.0.1:0", "SIM_MODELS=kimi-k3=1048576,deepseek-v4.1-flash"}, "sim")
	url := blind.address()
	c.joins("deepseek-v4.1-flash", "WORKER_ENGINE="+url)
	seen := func() int64 {
		resp, err := http.Get(url + "/sim/requests")
		require.NoError(t, err)
		var n counters
		require.NoError(t, json.Unmarshal([]byte(c.body(resp)), &n))
		return n.Total
	}
	image := hello("", false)
	image.Model = "kimi-k3"
	image.Messages = []map[string]any{{"role": "user", "content": []object{
		{"type": "text", "text": "What is in this image? [[sim tokens=1]]"},
		{"type": "image_url", "image_url": object{"url": "data:image/png;base64,iVBORw0KGgo="}},
	}}}
	for range 30 {
		r := c.fold(c.chat(c.key, image))
		require.Nil(t, r.Error)
		require.Equal(t, "worker-1", r.Engy.Worker)
	}
	require.Zero(t, seen())
	text := hello("hi [[sim tokens=1]]", false)
	text.Model = "kimi-k3"
	c.eventually("the blind one reads", func() bool {
		c.fold(c.chat(c.key, text))
		return seen() > 0
	})
}

func TestAPromptGoesToAWindowThatHoldsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{simEnv: []string{"SIM_MODELS=glm-5.2=262144"}})
	narrow := c.spawn("narrow", []string{"SIM_LISTEN=127.0.0.1:0", "SIM_MODELS=glm-5.2=8192,deepseek-v4.1-flash"}, "sim")
	c.joins("deepseek-v4.1-flash", "WORKER_ENGINE="+narrow.address())
	long := hello(strings.Repeat("word ", 9000)+" [[sim tokens=1]]", false)
	generous := hello("hi [[sim tokens=9000]]", false)
	generous.MaxTokens = 9000
	for range 10 {
		for _, a := range []ask{long, generous} {
			r := c.fold(c.chat(c.key, a))
			require.Nil(t, r.Error)
			require.Equal(t, "worker-1", r.Engy.Worker)
			require.Equal(t, "stop", r.Finish)
		}
	}
	c.eventually("the narrow one serves what fits", func() bool {
		return c.fold(c.chat(c.key, hello("hi [[sim tokens=1]]", false))).Engy.Worker == "worker-2"
	})
}
