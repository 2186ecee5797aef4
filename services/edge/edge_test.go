package edge_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/bus/natsembed"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge"
)

const (
	key      = "sk-engy-test"
	patience = 30 * time.Second
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Goroutines that the framework keeps for the process's life, and one
		// that ends by itself a little after its server.
		goleak.IgnoreAnyFunction("github.com/gofiber/fiber/v2/utils.StartTimeStampUpdater.func1.1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// world is a real edge on a real bus, with billing and a worker of a few lines.
type world struct {
	t      *testing.T
	server *natsembed.Server
	bus    *bus.Bus
	addr   string
	// hold answers holds, nil when nobody does; renew may refuse renewals; serve runs
	// a granted job.
	hold   func(bus.Hold) bus.HoldAnswer
	renew  func(bus.Renewal) error
	serve  func(ctx context.Context, s *bus.Stream, req llm.Request)
	mu     sync.Mutex
	lease  time.Duration // of holds; zero means a minute
	usages []bus.Usage
	holds  []bus.Hold
	jobs   map[string]attempt // that were begun
	stop   func()
	// renewed counts the holds that the edge has renewed.
	renewed atomic.Int64
}

// attempt is what the worker runs of a job.
type attempt struct {
	number int
	stop   context.CancelFunc
}

func newWorld(t *testing.T, set func(*world)) *world {
	t.Helper()
	w := &world{t: t, server: bustest.Server(t), jobs: map[string]attempt{}}
	w.bus = bustest.Connect(t, w.server, bus.Config{Name: "others"})
	w.hold = func(h bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Micro: h.Micro} }
	w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
		_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Text, Text: "hello"}, {Kind: llm.Done, Finish: llm.Stop}},
			bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 10, Completion: 5}})
	}
	if set != nil {
		set(w)
	}
	if w.hold != nil {
		w.run(w.billing)
	}
	w.run(w.renewals)
	w.run(w.usage)
	w.worker("w1")
	hash := sha256.Sum256([]byte(key))
	require.NoError(t, w.bus.PutPrincipal(t.Context(), hex.EncodeToString(hash[:]), bus.Principal{Account: "acct", Key: "k1"}))

	models, err := catalog.Default()
	require.NoError(t, err)
	rates, err := pricing.Default()
	require.NoError(t, err)
	own := bustest.Connect(t, w.server, bus.Config{Name: "edge"})
	ready := make(chan net.Addr, 1)
	w.stop = w.run(func(ctx context.Context) error {
		return edge.Run(ctx, edge.Config{
			Listen: "127.0.0.1:0", Region: "eu", Deadline: time.Minute, HoldLease: cmp.Or(w.lease, time.Minute),
			KeepAlive: 200 * time.Millisecond, ClaimWait: patience, Grace: 2 * time.Second,
		}, edge.Deps{Bus: own, Log: slog.New(slog.DiscardHandler), Catalog: models, Rates: rates, Ready: func(a net.Addr) { ready <- a }})
	})
	w.addr = "http://" + (<-ready).String()
	return w
}

func (w *world) run(f func(ctx context.Context) error) (stop func()) { return bustest.Run(w.t, f) }

func (w *world) billing(ctx context.Context) error {
	return w.bus.ServeHolds(ctx, func(ask bus.HoldAsk) {
		w.mu.Lock()
		w.holds = append(w.holds, ask.Hold)
		w.mu.Unlock()
		if err := ask.Answer(w.hold(ask.Hold)); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) renewals(ctx context.Context) error {
	return w.bus.ServeRenewals(ctx, func(_ context.Context, r bus.Renewal) (int64, error) {
		if w.renew != nil {
			if err := w.renew(r); err != nil {
				return 0, err
			}
		}
		w.renewed.Add(int64(len(r.Jobs)))
		return int64(len(r.Jobs)), nil
	})
}

func (w *world) usage(ctx context.Context) error {
	return w.bus.Usages(ctx, "test", bus.Batches{Most: 100, Wait: 5 * time.Millisecond, AtOnce: 1}, func(_ context.Context, us []bus.UsageEvent) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, u := range us {
			w.usages = append(w.usages, u.Data)
		}
		return nil
	})
}

// recorded waits for n usage events.
func (w *world) recorded(n int) []bus.Usage {
	w.t.Helper()
	var got []bus.Usage
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		got = append([]bus.Usage(nil), w.usages...)
		return len(got) >= n
	}, patience, 5*time.Millisecond)
	require.Len(w.t, got, n)
	return got
}

func (w *world) worker(id string) {
	beat := func(ctx context.Context) error {
		return w.bus.Beat(ctx, bus.Heartbeat{
			Worker: id, Name: id, Model: "glm-5.2", Region: "eu", Classes: []bus.Class{bus.Open}, Slots: 1000, Modalities: []string{"text", "image"},
			Features: []string{"completions", "token_ids"},
		})
	}
	require.NoError(w.t, beat(w.t.Context()))
	w.run(func(ctx context.Context) error {
		tick := time.NewTicker(bus.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := beat(ctx); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	var jobs sync.WaitGroup
	ready := make(chan struct{})
	w.run(func(ctx context.Context) error {
		return w.bus.Cancels(ctx, id, func(r bus.Running) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if a := w.jobs[r.Job]; a.number == r.Attempt {
				a.stop()
			}
		}, func(string) []bus.Running { return w.runs() }, func() { close(ready) })
	})
	<-ready
	w.run(func(ctx context.Context) error {
		defer jobs.Wait()
		q := bus.Queue{Region: "eu", Model: "glm-5.2", Class: bus.Open}
		return w.bus.Pull(ctx, q, func() int { return 100 }, nil, func(d *bus.Delivery) {
			jobs.Go(func() { w.job(ctx, id, d) })
		})
	})
}

// runs says that every job that was begun still runs.
func (w *world) runs() (list []bus.Running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, a := range w.jobs {
		list = append(list, bus.Running{Job: job, Attempt: a.number})
	}
	return list
}

func (w *world) job(ctx context.Context, id string, d *bus.Delivery) {
	defer func() { _ = d.Ack() }()
	work, verdict, err := w.bus.Claim(ctx, d.Ticket, id)
	if err != nil || verdict != bus.Granted {
		return
	}
	s, err := w.bus.Stream(d.Ticket, id, work.Attempt)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer s.Close()
	body, err := w.bus.Body(ctx, d.Ticket, id, work)
	if err != nil {
		w.t.Error(err)
		return
	}
	var req llm.Request
	if err := bus.Unmarshal(body, &req); err != nil {
		w.t.Error(err)
		return
	}
	job, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.jobs[d.Ticket.Job] = attempt{work.Attempt, cancel}
	w.mu.Unlock()
	w.serve(job, s, req)
}

// wait runs until the job is cancelled, and reports what was produced.
func wait(ctx context.Context, s *bus.Stream, _ llm.Request) {
	<-ctx.Done()
	_, _ = s.Finish(context.WithoutCancel(ctx), []llm.Event{{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Canceled}}},
		bus.End{Outcome: pricing.Left, Usage: llm.Usage{Prompt: 10, Completion: 2}})
}

func (w *world) ask(stream bool) *http.Response {
	w.t.Helper()
	return w.post("/v1/chat/completions", fmt.Sprintf(`{"model":"engy/glm-5.2","max_tokens":100,"stream":%v,"messages":[{"role":"user","content":"hi"}]}`, stream))
}

func (w *world) post(path, body string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.addr+path, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	tr := &http.Transport{}
	w.t.Cleanup(tr.CloseIdleConnections)
	resp, err := (&http.Client{Transport: tr}).Do(req)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (w *world) text(resp *http.Response) string {
	w.t.Helper()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return string(raw)
}

func TestTheChargeIsOneNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	resp := w.ask(false)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "14", resp.Header.Get("X-Engy-Charged-Micro")) // 10 at 0.68 and 5 at 1.50
	require.Contains(t, w.text(resp), `"charged_micro":14`)
	require.Contains(t, w.text(w.ask(true)), `"charged_micro":14`)
	for _, u := range w.recorded(2) {
		require.Equal(t, int64(14), int64(u.ChargedMicro))
		require.Equal(t, pricing.Finished, u.Outcome)
		require.Equal(t, "POST /v1/chat/completions", u.Route)
	}
}

// An answer that cannot be said in the caller's protocol has failed on our side.
func TestAnAnswerThatNoCodecCanSayIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
			_, _ = s.Finish(ctx, []llm.Event{
				{Kind: llm.Text, Text: "hello", Logprobs: json.RawMessage(`[1]`)}, {Kind: llm.Done, Finish: llm.Stop},
			}, bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 10, Completion: 5}})
		}
	})
	resp := w.post("/v1/completions", `{"model":"glm-5.2","max_tokens":100,"logprobs":1,"prompt":"hi"}`)
	require.Equal(t, 502, resp.StatusCode, w.text(resp))
	u := w.recorded(1)[0]
	require.Equal(t, pricing.Failed, u.Outcome)
	require.Zero(t, u.ChargedMicro)
}

func TestNothingPassesBeforeTheHold(t *testing.T) {
	t.Parallel()
	for code, status := range map[fault.Code]int{fault.NoFunds: 402, fault.Busy: 429, fault.Unauthorized: 401} {
		w := newWorld(t, func(w *world) {
			w.hold = func(bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Code: code, Message: "no"} }
		})
		for _, stream := range []bool{false, true} {
			resp := w.ask(stream)
			require.Equal(t, status, resp.StatusCode)
			require.NotContains(t, w.text(resp), "hello")
		}
		w.stop()
		require.Empty(t, w.recorded(0), "a refused request is no fact")
	}
}

func TestALongJobsHoldIsRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.lease = 400 * time.Millisecond; w.serve = wait })
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.addr+"/v1/chat/completions",
		strings.NewReader(`{"model":"glm-5.2","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Eventually(t, func() bool { return w.renewed.Load() >= 3 }, patience, 10*time.Millisecond)
	leave()
	w.recorded(1)
}

// The hold of an edge that nobody heard for long may be over: the ledger's word counts,
// and then there is nothing more to book.
func TestAHoldThatMayBeOverIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		word     bus.HoldAnswer
		charged  int64
		recorded int
	}{
		"it is over":       {bus.HoldAnswer{Code: fault.Invalid, Message: "request is settled", Settled: true, Micro: 3}, 3, 0},
		"it stands":        {bus.HoldAnswer{Micro: 100_000}, 14, 1},
		"nobody can tell":  {bus.HoldAnswer{Code: fault.Unavailable, Message: "not now"}, 14, 1},
		"it was free, too": {bus.HoldAnswer{Code: fault.Invalid, Message: "request is settled", Settled: true}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			var lost, asked atomic.Bool
			w := newWorld(t, func(w *world) {
				w.lease = time.Second // which passes while an answer is waited for in vain
				w.renew = func(r bus.Renewal) error {
					if len(r.Jobs) > 0 && lost.CompareAndSwap(false, true) {
						return fault.New(fault.Unavailable, "not now")
					}
					return nil
				}
				w.hold = func(h bus.Hold) bus.HoldAnswer {
					if h.Raise {
						asked.Store(true)
						return c.word
					}
					return bus.HoldAnswer{Micro: h.Micro}
				}
				served := w.serve
				w.serve = func(ctx context.Context, s *bus.Stream, req llm.Request) {
					<-over
					served(ctx, s, req)
				}
			})
			// Only what was renewed before can lapse.
			w.ready()
			got := make(chan string, 1)
			go func() { got <- w.text(w.ask(false)) }()
			require.Eventually(t, func() bool { return w.renewed.Load() > 0 }, patience, 10*time.Millisecond)
			close(over)
			require.Contains(t, <-got, fmt.Sprintf(`"charged_micro":%d`, c.charged))
			w.stop()
			w.recorded(c.recorded)
			require.True(t, asked.Load())
		})
	}
}

func TestAnEdgeIsReadyWhenBillingAnswers(t *testing.T) {
	t.Parallel()
	newWorld(t, nil).ready()
}

// ready waits until billing has answered the edge.
func (w *world) ready() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		resp, err := http.Get(w.addr + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	}, patience, 10*time.Millisecond)
}

func TestAnImpossibleReportIsClamped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
			_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Done, Finish: llm.Stop}},
				bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 1 << 40, Cached: 1 << 50, Completion: -5}})
		}
	})
	require.Equal(t, 200, w.ask(false).StatusCode)
	u := w.recorded(1)[0]
	// A short request has a short prompt, whatever its model could take.
	require.Less(t, u.Tokens.Prompt, int64(edge.TemplateTokensMax+1000))
	require.Equal(t, llm.Usage{Prompt: u.Tokens.Prompt, Cached: u.Tokens.Prompt}, u.Tokens)
}

// The file of an image says little of its tokens.
func TestATinyImageMayHaveManyTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.serve = func(ctx context.Context, s *bus.Stream, _ llm.Request) {
			_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Text, Text: "hello"}, {Kind: llm.Done, Finish: llm.Stop}},
				bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 30_000, Completion: 5}})
		}
	})
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`
	resp := w.post("/v1/chat/completions", `{"model":"glm-5.2","max_tokens":100,"messages":[{"role":"user","content":[`+image+`,`+image+`]}]}`)
	require.Equal(t, 200, resp.StatusCode, w.text(resp))
	require.Equal(t, llm.Usage{Prompt: 30_000, Completion: 5}, w.recorded(1)[0].Tokens)
}

func TestAChargeAboveTheHoldRaisesItFirst(t *testing.T) {
	t.Parallel()
	var raised atomic.Int64
	usage := func(ctx context.Context, s *bus.Stream, _ llm.Request) {
		// The estimate was too low: the prompt is 16 tokens by characters.
		_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Done, Finish: llm.Stop}},
			bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 1000, Completion: 100}})
	}
	w := newWorld(t, func(w *world) {
		w.serve = usage
		w.hold = func(h bus.Hold) bus.HoldAnswer {
			if h.Raise {
				raised.Store(int64(h.Micro))
			}
			return bus.HoldAnswer{Micro: h.Micro}
		}
	})
	require.Equal(t, "830", w.ask(false).Header.Get("X-Engy-Charged-Micro"))
	require.Equal(t, int64(830), raised.Load())

	poor := newWorld(t, func(w *world) {
		w.serve = usage
		w.hold = func(h bus.Hold) bus.HoldAnswer {
			if h.Raise {
				return bus.HoldAnswer{Code: fault.NoFunds}
			}
			return bus.HoldAnswer{Micro: h.Micro}
		}
	})
	held := poor.ask(false).Header.Get("X-Engy-Charged-Micro")
	require.Equal(t, fmt.Sprint(int64(poor.holds[0].Micro)), held, "no more than the hold")
	require.Equal(t, held, fmt.Sprint(int64(poor.recorded(1)[0].ChargedMicro)))
}

func TestAThinHoldLowersTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.hold = func(h bus.Hold) bus.HoldAnswer { return bus.HoldAnswer{Micro: h.Micro - 75} } // 50 output tokens less
		w.serve = func(ctx context.Context, s *bus.Stream, req llm.Request) {
			_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Text, Text: fmt.Sprintf("limit %d", req.MaxTokens)}, {Kind: llm.Done, Finish: llm.Stop}},
				bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 10, Completion: 5}})
		}
	})
	// An attempt with the old limit may have begun, and even ended: what the client
	// gets is of the new one.
	resp := w.ask(false)
	require.Equal(t, 200, resp.StatusCode)
	require.Contains(t, w.text(resp), `"limit 49"`, "what 75 micro-USD at 1.50 are, rounded up, is gone")
}

func TestTwoHundredClientsLeaveNothingBehind(t *testing.T) {
	// Serial: it counts the goroutines of the process.
	w := newWorld(t, func(w *world) { w.serve = wait })
	round := func(stream bool) {
		body := fmt.Sprintf(`{"model":"glm-5.2","stream":%v,"messages":[{"role":"user","content":"hi"}]}`, stream)
		c, err := net.Dial("tcp", strings.TrimPrefix(w.addr, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.holds) > len(w.usages)
		}, patience, time.Millisecond)
		require.NoError(t, c.Close())
	}
	round(true)
	w.recorded(1)
	goroutines, subscriptions := runtime.NumGoroutine(), w.server.Subscriptions()
	for i := range 200 {
		round(i%2 == 0)
		w.recorded(i + 2)
	}
	for _, u := range w.recorded(201) {
		require.Contains(t, []pricing.Outcome{pricing.Left}, u.Outcome)
	}
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= goroutines+5 && w.server.Subscriptions() <= subscriptions
	}, patience, 20*time.Millisecond, "%d goroutines before", goroutines)
}

func TestManyRequestsKeepTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.serve = func(ctx context.Context, s *bus.Stream, req llm.Request) {
			text, err := req.Items[0].Parts[0].Text.Decode()
			if err != nil {
				t.Error(err)
			}
			_, _ = s.Finish(ctx, []llm.Event{{Kind: llm.Text, Text: "echo " + text}, {Kind: llm.Done, Finish: llm.Stop}},
				bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 1, Completion: 1}})
		}
	})
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr}
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("caller-%d-%d-%s", g, i, strings.Repeat("x", i*7))
				body := fmt.Sprintf(`{"model":"v%d/glm-5.2","stream":%v,"messages":[{"role":"user","content":"%s"}]}`, g, i%2 == 0, name)
				req, err := http.NewRequest(http.MethodPost, w.addr+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+key)
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				raw, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				id := resp.Header.Get("X-Engy-Request-Id")
				if err != nil || !strings.Contains(string(raw), "echo "+name) || !strings.Contains(string(raw), id) ||
					!strings.Contains(string(raw), fmt.Sprintf(`"model":"v%d/glm-5.2"`, g)) {
					t.Errorf("%s: %v %s", name, err, raw)
				}
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, u := range w.recorded(800) {
		require.False(t, seen[u.Job])
		seen[u.Job] = true
	}
}

func TestASettingIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	good := edge.Config{Listen: ":0", Region: "eu", Deadline: 1, HoldLease: 1, KeepAlive: 1, ClaimWait: 1, Grace: 1}
	require.NoError(t, good.Validate())
	for _, bad := range []func(*edge.Config){
		func(c *edge.Config) { c.Listen = "" },
		func(c *edge.Config) { c.Region = "mars" },
		func(c *edge.Config) { c.KeepAlive = 16 * time.Second },
		func(c *edge.Config) { c.Deadline = 0 },
	} {
		c := good
		bad(&c)
		require.Error(t, c.Validate())
	}
}
