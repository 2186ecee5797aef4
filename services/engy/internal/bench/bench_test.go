package bench

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARequestIsFilledInWithoutChangingItsLength(t *testing.T) {
	t.Parallel()
	to := target{addr: "127.0.0.1:1", secrets: []string{"sk-engy-aaaaaaaa", "sk-engy-bbbbbbbb"}}
	f := work{tokens: 3, ttft: time.Millisecond, stream: true}.form(to)
	buf := f.fill(nil, to.secrets[0], 7)
	first := string(buf)
	second := string(f.fill(buf, to.secrets[1], 42))
	require.Len(t, second, len(first))
	require.Contains(t, first, "Bearer sk-engy-aaaaaaaa\r\n")
	require.Contains(t, first, ` number 00000007"}]}`)
	require.Contains(t, second, "Bearer sk-engy-bbbbbbbb\r\n")
	require.Contains(t, second, ` number 00000042"}]}`)
	head, body, _ := strings.Cut(second, "\r\n\r\n")
	require.Contains(t, head, fmt.Sprintf("Content-Length: %d\r\n", len(body)))
	require.InDelta(t, bodyBytes, len(body), 100)
}

func TestBodiesAreAboutAsLongAsAsked(t *testing.T) {
	t.Parallel()
	to := target{addr: "127.0.0.1:1", secrets: []string{"k"}}
	for _, n := range []int{300_000, 4_000_000} {
		require.InEpsilon(t, n, len(work{bytes: n}.form(to).raw), 0.01)
	}
}

// serve answers every request with the same bytes.
func serve(t *testing.T, contentType string, chunks ...string) *client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for _, c := range chunks {
			_, _ = w.Write([]byte(c))
			if len(chunks) > 1 {
				_ = http.NewResponseController(w).Flush()
			}
		}
	}))
	t.Cleanup(s.Close)
	c := newClient(strings.TrimPrefix(s.URL, "http://"))
	t.Cleanup(c.close)
	return c
}

const ask = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"

func TestAStreamIsCountedHoweverItIsCut(t *testing.T) {
	t.Parallel()
	whole := `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{"content":"a \"quoted\" word"}}]}` + "\n\n: keep-alive\n\n" +
		`data: {"choices":[{"delta":{"content":" b"}}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"completion_tokens":12,"total_tokens":40}}` + "\n\ndata: [DONE]\n\n"
	var hash uint64
	for cut := 1; cut < len(whole); cut += 3 {
		c := serve(t, "text/event-stream", whole[:cut], whole[cut:])
		for range 2 { // the second time on the same connection
			a, err := c.exchange([]byte(ask), true)
			require.NoError(t, err)
			require.Equal(t, 2, a.texts)
			require.Equal(t, 12, a.tokens)
			require.Len(t, a.gaps, 1)
			require.True(t, a.done)
			require.Positive(t, a.first)
			if hash == 0 {
				hash = a.hash
			}
			require.Equal(t, hash, a.hash)
		}
	}
}

func TestAnAnswerIsReadWhole(t *testing.T) {
	t.Parallel()
	c := serve(t, "application/json", `{"choices":[{"message":{"content":"a b"}}],"usage":{"completion_tokens":2}}`)
	a, err := c.exchange([]byte(ask), false)
	require.NoError(t, err)
	require.Equal(t, 1, a.texts)
	require.Equal(t, 2, a.tokens)
	require.True(t, a.done)
}

func TestWhatGoesWrongIsSeen(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"an error inside a stream": "data: {\"error\":{\"message\":\"no\"}}\n\n",
		"two ends":                 "data: [DONE]\n\ndata: [DONE]\n\n",
		"a text without its end":   "data: {\"content\":\"a\n\n",
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, "text/event-stream", body).exchange([]byte(ask), true)
			require.Error(t, err)
		})
	}
	t.Run("a stream that only stops has no end", func(t *testing.T) {
		t.Parallel()
		a, err := serve(t, "text/event-stream", "data: {\"content\":\"a\"}\n\n").exchange([]byte(ask), true)
		require.NoError(t, err)
		require.False(t, a.done)
	})
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		_, err = newClient(l.Addr().String()).exchange([]byte(ask), true)
		require.Error(t, err)
	})
}

func TestAnAnswerMustBeTheSameOnBothWays(t *testing.T) {
	t.Parallel()
	b := answerBook{texts: map[int]uint64{}}
	require.True(t, b.same(1, 5))
	require.True(t, b.same(1, 5))
	require.False(t, b.same(1, 6))
	require.True(t, b.same(2, 6))
}

func TestTheYardstickAnswersItself(t *testing.T) {
	t.Parallel()
	rate, err := yardstick(t.Context())
	require.NoError(t, err)
	require.Positive(t, rate)
}

func TestFigures(t *testing.T) {
	t.Parallel()
	var list []time.Duration
	for i := 100; i > 0; i-- {
		list = append(list, time.Duration(i))
	}
	require.Equal(t, time.Duration(50), percentile(list, 50))
	require.Equal(t, time.Duration(99), percentile(list, 99))
	require.Equal(t, time.Duration(100), percentile(list, 100))
	require.Zero(t, percentile(nil, 50))
	require.Equal(t, spread{Median: 2, Min: 1, Max: 9, Rounds: 3}, spreadOf([]float64{9, 1, 2}))
	require.Equal(t, "1.50 (1.00..2.00)", spreadOf([]float64{1, 2}).String())
	require.Equal(t, "–", spread{}.String())
	for want, n := range map[string]float64{"1,234,567": 1234567, "-1,234": -1234, "123": 123.4, "12.3": 12.34, "0.12": 0.123, "0.012": 0.0123, "0.00": 0} {
		require.Equal(t, want, number(n))
	}
}

func TestGoalsAreJudgedByTheirMedian(t *testing.T) {
	t.Parallel()
	at := func(name, key string, direct, product float64) result {
		return result{Name: name, Rounds: []round{{Direct: values{key: direct}, Product: values{key: product}}}}
	}
	find := func(list []judged, title string) judged {
		for _, g := range list {
			if strings.HasPrefix(g.Title, title) {
				return g
			}
		}
		return judged{}
	}
	list := judge([]result{at("r100", "p50_ms", 6, 7.5), at("ledger", "hot_s", 0, 60_000)})
	require.Equal(t, "ok", find(list, "D1").Verdict)
	require.Equal(t, "good", find(list, "P15").Verdict)
	require.Empty(t, find(list, "D4").Verdict, "what nobody measured is not judged")
	require.Equal(t, "**MISSED**", find(judge([]result{at("r100", "p50_ms", 6, 9)}), "D1").Verdict)
}

func TestEveryScenarioHasANameAndItsMetricsATitle(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range scenarios() {
		require.False(t, seen[s.name])
		seen[s.name] = true
		require.NotEmpty(t, s.title)
		for _, m := range s.metrics {
			require.NotEmpty(t, m.title)
			require.NotEmpty(t, m.keys)
		}
	}
	_, err := choose([]string{"nothing"})
	require.Error(t, err)
	some, err := choose([]string{"c64"})
	require.NoError(t, err)
	require.Len(t, some, 1)
}

func TestTheReadyLineIsFoundInWhatIsPrinted(t *testing.T) {
	t.Parallel()
	ready := make(chan string, 1)
	r := readyLine{ready: ready}
	for _, part := range []string{"hello\nrea", "dy http://127.0.0.1:1\nready http://127.0.0.1:2\n"} {
		n, err := r.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.Equal(t, "http://127.0.0.1:1", <-ready)
}
