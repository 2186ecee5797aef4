package bench

import "fmt"

// goal is what a figure should be. Figures come as spreads; medians are judged.
type goal struct {
	title string
	// of finds the figure; the second result is false when nothing measured it.
	of func(found) (spread, bool)
	// must and should are bounds, upper ones unless least is set.
	must, should float64
	least        bool
	unit         string
	// bare leaves the bounds out: the figure is shown and not judged.
	bare bool
}

// found looks up results by scenario.
type found map[string]result

func fullOf(scenario, key string) func(found) (spread, bool) {
	return func(f found) (spread, bool) {
		s := f[scenario].product(key)
		return s, s.Rounds > 0
	}
}

func againstOf(scenario, key string, how relation) func(found) (spread, bool) {
	return func(f found) (spread, bool) {
		s := f[scenario].against(key, how)
		return s, s.Rounds > 0
	}
}

func overBareOf(scenario, key string) func(found) (spread, bool) {
	return func(f found) (spread, bool) {
		s := f[scenario].overBare(key)
		return s, s.Rounds > 0
	}
}

func addedOverBareOf(scenario, key string) func(found) (spread, bool) {
	return func(f found) (spread, bool) {
		s := f[scenario].addedOverBare(key)
		return s, s.Rounds > 0
	}
}

// beside relates a figure of one scenario to the same of another, round by round.
func beside(scenario, other, key string) func(found) (spread, bool) {
	return func(f found) (spread, bool) {
		a, b := f[scenario].Rounds, f[other].Rounds
		var list []float64
		for i := range min(len(a), len(b)) {
			if x, y := a[i].Product[key], b[i].Product[key]; x > 0 && y > 0 {
				list = append(list, x/y)
			}
		}
		return spreadOf(list), len(list) > 0
	}
}

// scaled gives a figure times a factor.
func scaled(of func(found) (spread, bool), by float64) func(found) (spread, bool) {
	return func(f found) (spread, bool) {
		s, ok := of(f)
		s.Median, s.Min, s.Max = s.Median*by, s.Min*by, s.Max*by
		return s, ok
	}
}

// lost sums what went wrong with tokens over all scenarios. A run stops at the
// first, so what is reported is zero or nothing.
func lost(f found) (spread, bool) {
	var sum float64
	any := false
	for _, r := range f {
		for _, key := range []string{"failed", "wrong", "endless"} {
			if s := r.product(key); s.Rounds > 0 {
				sum, any = sum+s.Max, true
			}
		}
	}
	return spread{Median: sum, Min: sum, Max: sum, Rounds: 1}, any
}

// goals of performance. Absolute figures were set on a machine of another day,
// where the bare prototype added 0.86 ms at 100 requests/s and took 144 us a
// request and 24.5 us a token; goals against it are those same bounds as ratios.
// D are those of the whole walk of a request, P those of
// streams and of the ledger.
func goals() []goal {
	return []goal{
		{title: "D1 unary r100, 5 ms engine: added p50", of: againstOf("r100", "p50_ms", added), must: 2.0, should: 1.4, unit: "ms"},
		{title: "D1 the same, × what the bare prototype adds", of: addedOverBareOf("r100", "p50_ms"), must: 2.3, should: 1.6, unit: "×"},
		{title: "D1 the same, answers of 1 token", of: addedOverBareOf("r100one", "p50_ms"), must: 2.3, should: 1.6, unit: "×"},
		{title: "D2 the same: added p99", of: againstOf("r100", "p99_ms", added), must: 6, should: 3, unit: "ms"},
		{title: "D3 unary c64, 1 token: requests/s against the bare prototype", of: overBareOf("c64one", "rps"), must: 0.42, should: 0.55, least: true, unit: "×"},
		{title: "D3 the same, 100 tokens", of: overBareOf("c64", "rps"), must: 0.42, should: 0.55, least: true, unit: "×"},
		{title: "D4 unary c64, 1 token: CPU a request, edge + nats + worker + billing", of: fullOf("c64one", "cpu"), must: 320, should: 240, unit: "us"},
		{title: "D4 the same against the bare prototype", of: overBareOf("c64one", "cpu"), must: 2.2, should: 1.6, unit: "×"},
		{title: "D4 the same, 100 tokens", of: overBareOf("c64", "cpu"), must: 2.2, should: 1.6, unit: "×"},
		{title: "D5 the same: PostgreSQL", of: fullOf("c64one", "cpu_postgres"), must: 90, should: 55, unit: "us"},
		{title: "D6 a hold is answered, idle, mean", of: fullOf("hold", "mean_ms"), must: 2, should: 1.2, unit: "ms"},
		{title: "D7 burst of 500 streams: added TTFT p50", of: againstOf("stream500", "ttft_p50_ms", added), must: 45, should: 25, unit: "ms"},
		{title: "D7 the same, × what the bare prototype adds", of: addedOverBareOf("stream500", "ttft_p50_ms"), must: 3.4, should: 1.9, unit: "×"},
		{title: "D7 the same: p99", of: againstOf("stream500", "ttft_p99_ms", added), must: 80, should: 50, unit: "ms"},
		{title: "D8 300 KB body: added p50", of: againstOf("body300k", "p50_ms", added), must: 4.5, should: 3, unit: "ms"},
		{title: "D8 the same, × what the bare prototype adds", of: addedOverBareOf("body300k", "p50_ms"), must: 2.3, should: 1.55, unit: "×"},
		{title: "D8 4 MB body: added p50", of: againstOf("body4m", "p50_ms", added), must: 25, should: 15, unit: "ms"},
		{title: "P5 stream c1: added TTFT p50", of: againstOf("stream1", "ttft_p50_ms", added), must: 1.2, should: 0.8, unit: "ms"},
		{title: "P5 the same, × what the bare prototype adds", of: addedOverBareOf("stream1", "ttft_p50_ms"), must: 1.62, should: 1.08, unit: "×"},
		{title: "P7 stream c500: gap p99 against direct", of: againstOf("stream500", "gap_p99_ms", ratio), must: 1.6, should: 1.3, unit: "×"},
		{title: "P7 the same against the bare prototype", of: overBareOf("stream500", "gap_p99_ms"), must: 1.27, should: 1.03, unit: "×"},
		{title: "P8 the same: CPU a token, edge + nats + worker", of: fullOf("stream500", "cpu_path"), must: 30, should: 18, unit: "us"},
		{title: "P9 stream c100, 5 ms/token: CPU a token", of: fullOf("stream100", "cpu_path"), bare: true, unit: "us"},
		{title: "P8 the same against the bare prototype", of: overBareOf("stream500", "cpu_path"), must: 1.22, should: 0.73, unit: "×"},
		{title: "Messages: CPU a token, edge + nats + worker, × chat", of: beside("messages500", "stream500", "cpu_path"), must: 1.3, should: 1.15, unit: "×"},
		{title: "Responses: the same", of: beside("responses500", "stream500", "cpu_path"), must: 1.3, should: 1.15, unit: "×"},
		{title: "P10 streams a core at 50 tokens/s", of: scaled(fullOf("stream500", "tokens_s_core"), 1.0/50), must: 650, should: 1100, least: true},
		{title: "P11 memory a stream, edge alone, idle", of: fullOf("memory", "idle_kib"), must: 64, should: 40, unit: "KiB"},
		{title: "P12 memory a stream, all processes, c500 − c100", of: fullOf("memory", "flow_kib"), must: 250, should: 120, unit: "KiB"},
		{title: "images: edge's memory at its peak, × the bodies", of: fullOf("images", "peak_x"), must: 3, should: 2, unit: "×"},
		{title: "images: the same 15 s after the last", of: fullOf("images", "after_x"), must: 0.1, should: 0.05, unit: "×"},
		{title: "P13 client gone while silent, engine free, p99, streaming", of: fullOf("leave", "stream_p99_ms"), must: 250, should: 100, unit: "ms"},
		{title: "P13 the same, not streaming", of: fullOf("leave", "whole_p99_ms"), must: 250, should: 100, unit: "ms"},
		{title: "P14 lost or doubled tokens, streams without an end, failed requests", of: lost},
		{title: "P15 ledger from the bus, 1 hot account", of: fullOf("ledger", "hot_s"), must: 20_000, should: 50_000, least: true, unit: "/s"},
		{title: "P15 the same, 100 accounts", of: fullOf("ledger", "many_s"), must: 20_000, should: 50_000, least: true, unit: "/s"},
		{title: "P15 the same, × a transaction an event", of: fullOf("ledger", "many_single"), must: 5, should: 20, least: true, unit: "×"},
		{title: "P16 one hot account against 100", of: fullOf("ledger", "hot_many"), must: 0.8, should: 1, least: true, unit: "×"},
		{title: "P17 usage to visible balance, p99, idle", of: fullOf("ledger", "visible_p99_ms"), must: 250, should: 60, unit: "ms"},
	}
}

// leftOut says which goals need something that is not here.
func leftOut() []string {
	return []string{
		"ratios against other gateways (P6, P9): none runs here",
		"a worker that dies or hangs (D9 to D11): that is for the end-to-end tests",
	}
}

// judged is a goal with its figure.
type judged struct {
	Title    string `json:"title"`
	Must     string `json:"must"`
	Should   string `json:"should"`
	Measured string `json:"measured"`
	Verdict  string `json:"verdict"`
	Figure   spread `json:"figure"`
}

func judge(results []result) []judged {
	f := found{}
	for _, r := range results {
		f[r.Name] = r
	}
	var list []judged
	for _, g := range goals() {
		s, ok := g.of(f)
		if !ok {
			continue
		}
		j := judged{Title: g.title, Measured: unit(s.String(), g.unit), Figure: s, Verdict: "shown only"}
		if !g.bare {
			j.Must, j.Should, j.Verdict = g.bound(g.must), g.bound(g.should), g.verdict(s.Median)
		}
		list = append(list, j)
	}
	return list
}

func unit(s, u string) string {
	if u == "" {
		return s
	}
	return s + " " + u
}

func (g goal) bound(n float64) string {
	sign := "≤"
	if g.least {
		sign = "≥"
	}
	return unit(fmt.Sprintf("%s %s", sign, number(n)), g.unit)
}

func (g goal) verdict(n float64) string {
	meets := func(bound float64) bool {
		if g.least {
			return n >= bound
		}
		return n <= bound
	}
	switch {
	case meets(g.should):
		return "good"
	case meets(g.must):
		return "ok"
	}
	return "**MISSED**"
}
