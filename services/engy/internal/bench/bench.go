// Package bench measures the product: the same load goes to an engine directly
// and through edge, bus, worker and billing, in turn within one run, and what
// comes out are medians, spreads and ratios against goals. The services run as
// processes of their own, so that the kernel counts what each of them takes;
// the load generator is this process and is counted nowhere.
//
// What does not live here: how services work (nothing is measured from inside
// them), and comparisons with other products. The invariant: a run fails when a
// token was lost or doubled, when the ledger does not add up or when a hold
// stays open, however good its numbers are.
//
// To add a scenario, write its run function and a line in scenarios; to judge
// it, add a line in goals.
package bench

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/fault"
)

// Options is what the command line sets.
type Options struct {
	// Rounds is how often each scenario runs on each target.
	Rounds int
	// Scenarios limits the run to these names; empty means all.
	Scenarios []string
	// Quick makes every run short: it shows that things work, not how fast.
	Quick bool
	// JSON is a file that gets all numbers of all rounds; empty for none.
	JSON string
	// LogLevel is what the services log at.
	LogLevel string
	// Program is the binary that runs the services, Command how this run was
	// asked for, Environ the environment that services may inherit from.
	Program string
	Command []string
	Environ []string
	// Out gets the report, Progress a line for each run.
	Out, Progress io.Writer
}

// say tells how far the run is. That nobody can hear it ends nothing.
func (o Options) say(format string, args ...any) { _, _ = fmt.Fprintf(o.Progress, format, args...) }

// gcPercent lets the load generator collect garbage less often: its pauses
// would show as latencies of what is measured.
const gcPercent = 400

// lab is a run under way.
type lab struct {
	opt    Options
	rig    *rig
	direct target
	bare   target
	full   target
	// answers holds what each prompt was answered, by scenario.
	answers map[string]*answerBook
	// settled counts the jobs that the ledger must know by now.
	settled int64
}

// values are what one run measured, by metric key.
type values map[string]float64

// Names lists the scenarios in the order in which they run.
func Names() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// Run measures and reports. An error means that it could not, or that what was
// measured is wrong; goals that are missed are no error.
func Run(ctx context.Context, o Options) (err error) {
	chosen, err := choose(o.Scenarios)
	if err != nil {
		return err
	}
	if o.Rounds < 1 {
		return fault.At("rounds", "rounds must be at least 1")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	report := newReport(o)
	if report.Yardstick, err = yardstick(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := openRig(ctx, o, cancel)
	if r != nil {
		defer func() {
			if e := r.close(err != nil); e != nil && err == nil {
				err = e
			}
		}()
	}
	if err != nil {
		return err
	}
	l := &lab{opt: o, rig: r, answers: map[string]*answerBook{}}
	l.direct = target{name: "direct", addr: r.engine, secrets: r.secrets, direct: true}
	l.bare = target{name: "bare", addr: r.bare, secrets: r.secrets, bare: true}
	l.full = target{name: "product", addr: r.edge, secrets: r.secrets}
	for _, s := range chosen {
		res, err := l.measure(ctx, s)
		report.add(s, res)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			report.note("%s: stopped: %s", s.name, err)
			_ = report.write(o.Out)
			return fmt.Errorf("bench %s: %w", s.name, err)
		}
	}
	if report.YardstickEnd, err = yardstick(ctx); err != nil {
		return err
	}
	if err := report.write(o.Out); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if o.JSON != "" {
		return report.save(o.JSON)
	}
	return nil
}

func choose(names []string) ([]scenario, error) {
	all := scenarios()
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fault.At("scenario", fmt.Sprintf("no scenario %q; there are %s", n, strings.Join(Names(), ", ")))
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(names, s.name) }), nil
}

// round is one run on each target: the engine alone, the bare prototype, the
// product.
type round struct {
	Direct  values `json:"direct,omitempty"`
	Bare    values `json:"bare,omitempty"`
	Product values `json:"product,omitempty"`
}

// measure runs a scenario for all rounds. The targets change places from round
// to round, so that what warms up or wears out during a run hits both.
func (l *lab) measure(ctx context.Context, s scenario) ([]round, error) {
	var rounds []round
	for i := range l.opt.Rounds {
		var r round
		order := []target{l.direct, l.bare, l.full}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, t := range order {
			if s.alone && !t.product() || t.bare && !s.bare {
				continue
			}
			if t.bare {
				t.addr = l.rig.bare
			}
			begun := time.Now()
			got, err := s.run(ctx, l, t)
			if err == nil && t.product() {
				err = l.prove(ctx)
			}
			if err != nil {
				return rounds, fmt.Errorf("round %d, %s: %w", i+1, t.name, err)
			}
			l.opt.say("%-8s round %d %-8s %5.1fs  %s\n", s.name, i+1, t.name, time.Since(begun).Seconds(), s.brief(got))
			switch {
			case t.direct:
				r.Direct = got
			case t.bare:
				r.Bare = got
			default:
				r.Product = got
			}
		}
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// prove asks the ledger whether everything that ran is booked, and adds up.
func (l *lab) prove(ctx context.Context) error {
	if err := l.rig.calm(ctx); err != nil {
		return err
	}
	report, err := l.rig.admin.Reconcile(ctx)
	switch {
	case err != nil:
		return err
	case len(report.Findings) > 0:
		return fault.New(fault.Internal, "the ledger does not add up: "+strings.Join(report.Findings, "; "))
	case report.Settlements < l.settled:
		return fault.New(fault.Internal, fmt.Sprintf("%d jobs ran and %d are settled", l.settled, report.Settlements))
	}
	return nil
}

// book gives the answers of a scenario.
func (l *lab) book(name string) *answerBook {
	if l.answers[name] == nil {
		l.answers[name] = &answerBook{texts: map[int]uint64{}}
	}
	return l.answers[name]
}

// span shortens what takes time in quick runs.
func (l *lab) span(full, quick time.Duration) time.Duration {
	if l.opt.Quick {
		return quick
	}
	return full
}

func (l *lab) times(full, quick int) int {
	if l.opt.Quick {
		return quick
	}
	return full
}
