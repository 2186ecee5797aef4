package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// driftMax is how far the direct way may move between rounds before the run
	// is doubted.
	driftMax = 0.2
	// strangersMax is how much of a core others may take meanwhile.
	strangersMax = 0.15
)

// report is everything that a run found.
type report struct {
	Machine Machine `json:"machine"`
	// Yardstick is the machine's speed at the start, YardstickEnd at the end.
	Yardstick    float64   `json:"yardstick"`
	YardstickEnd float64   `json:"yardstick_end"`
	Command      string    `json:"command"`
	Begun        time.Time `json:"begun"`
	Logs         string    `json:"log_level"`
	Rounds       int       `json:"rounds"`
	Quick        bool      `json:"quick"`
	Results      []result  `json:"results"`
	Goals        []judged  `json:"goals"`
	Notes        []string  `json:"notes"`
}

// result is one scenario.
type result struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	Rounds []round `json:"rounds"`

	metrics []metric
}

func newReport(o Options) *report {
	return &report{
		Machine: machine(), Command: strings.Join(o.Command, " "), Begun: time.Now().UTC(),
		Logs: o.LogLevel, Rounds: o.Rounds, Quick: o.Quick,
	}
}

func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *report) add(s scenario, rounds []round) {
	res := result{Name: s.name, Title: s.title, Rounds: rounds, metrics: s.metrics}
	r.Results = append(r.Results, res)
	if most := max(res.direct(strangers).Max, res.product(strangers).Max); most > strangersMax {
		r.note("%s: other processes took up to %s cores meanwhile: latencies and rates are those of a busy machine", s.name, number(most))
	}
	for _, m := range s.metrics {
		if m.relation == absolute || !steady(m.keys[0]) {
			continue
		}
		d := res.direct(m.keys[0])
		if d.Median > 0 && (d.Max-d.Min)/d.Median > driftMax {
			r.note("%s: direct moved by %.0f %% between rounds in %s: run it again on a quieter machine", s.name, 100*(d.Max-d.Min)/d.Median, m.title)
		}
	}
}

// steady tells which figures of the direct way are expected to stay: those of
// the middle. Tails and what happens by the millisecond move on any machine.
func steady(key string) bool { return key == "rps" || key == "ttft_p50_ms" || key == "p50_ms" }

// series gives one number for each round that has it.
func (r result) series(of func(round) (float64, bool)) spread {
	var list []float64
	for _, x := range r.Rounds {
		if v, ok := of(x); ok {
			list = append(list, v)
		}
	}
	return spreadOf(list)
}

func (r result) direct(key string) spread {
	return r.series(func(x round) (float64, bool) { v, ok := x.Direct[key]; return v, ok })
}

func (r result) bare(key string) spread {
	return r.series(func(x round) (float64, bool) { v, ok := x.Bare[key]; return v, ok })
}

// overBare relates each round's product to the same round's prototype.
func (r result) overBare(key string) spread {
	return r.series(func(x round) (float64, bool) {
		b, p := x.Bare[key], x.Product[key]
		return p / b, b > 0 && p > 0
	})
}

// addedOverBare relates what the product adds to the direct way to what the
// prototype adds, round by round.
func (r result) addedOverBare(key string) spread {
	return r.series(func(x round) (float64, bool) {
		d, okD := x.Direct[key]
		b, p := x.Bare[key]-d, x.Product[key]-d
		return p / b, okD && b > 0
	})
}

func (r result) product(key string) spread {
	return r.series(func(x round) (float64, bool) { v, ok := x.Product[key]; return v, ok })
}

// against relates each round's product to the same round's direct way.
func (r result) against(key string, how relation) spread {
	return r.series(func(x round) (float64, bool) {
		d, okD := x.Direct[key]
		p, okP := x.Product[key]
		if !okD || !okP || how == ratio && d == 0 {
			return 0, false
		}
		if how == ratio {
			return p / d, true
		}
		return p - d, true
	})
}

func (r *report) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Bench\n\n")
	fmt.Fprintf(&b, "- machine: %d cores, %s, %s, load average %s at the start\n", r.Machine.Cores, r.Machine.CPU, r.Machine.Go, r.Machine.Load)
	fmt.Fprintf(&b, "- yardstick: %s exchanges/s at the start, %s at the end (64 clients of the load generator on a canned answer; compare microseconds of two runs only as far as these agree)\n",
		number(r.Yardstick), number(r.YardstickEnd))
	fmt.Fprintf(&b, "- command: `%s`\n", r.Command)
	fmt.Fprintf(&b, "- begun %s; %d rounds, direct and product in turn; median (min..max); added and ratios are of the same round\n",
		r.Begun.Format(time.RFC3339), r.Rounds)
	fmt.Fprintf(&b, "- services log at %s; the engine is the simulator; CPU of the engine and of the load generator is not counted\n", r.Logs)
	if r.Quick {
		fmt.Fprintf(&b, "- QUICK: shows that it works, not how fast it is\n")
	}
	b.WriteString("\n| scenario | | direct | bare | product | product against direct | product × bare |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, res := range r.Results {
		res.write(&b)
	}
	r.Goals = judge(r.Results)
	if len(r.Goals) > 0 {
		b.WriteString("\n## Goals\n\n| goal | must | should | measured | verdict |\n| --- | --- | --- | --- | --- |\n")
		for _, g := range r.Goals {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", g.Title, g.Must, g.Should, g.Measured, g.Verdict)
		}
	}
	b.WriteString("\n## Not judged here\n\n")
	for _, s := range leftOut() {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r result) write(b *strings.Builder) {
	name := "**" + r.Name + "**: " + r.Title
	for _, m := range r.metrics {
		var direct, bare, product, against, over []string
		for _, k := range m.keys {
			d, a, p := r.direct(k), r.bare(k), r.product(k)
			if len(m.keys) > 1 {
				d, a, p = middle(d), middle(a), middle(p)
			}
			direct, product = append(direct, d.String()), append(product, p.String())
			if a.Rounds > 0 && k != "cpu_"+billingName && k != "cpu_"+postgresName {
				bare, over = append(bare, a.String()), append(over, number(r.overBare(k).Median))
			}
			switch m.relation {
			case added:
				against = append(against, "+"+r.against(k, added).String())
			case ratio:
				against = append(against, "× "+r.against(k, ratio).String())
			}
		}
		d := strings.Join(direct, " · ")
		if m.relation == absolute {
			d = ""
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", name, m.title, d, strings.Join(bare, " · "),
			strings.Join(product, " · "), strings.Join(against, " · "), strings.Join(over, " · "))
		name = ""
	}
}

// middle leaves the spread away, for cells that hold several figures.
func middle(s spread) spread {
	if s.Rounds > 0 {
		s.Rounds = 1
	}
	return s
}

func (r *report) save(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
