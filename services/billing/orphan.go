package billing

import (
	"context"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// settleOrphans books jobs whose edge died, by the report of the worker that
// served them. A worker may take an edge for dead that is only cut off from it: what
// a living edge has told its client is the truth, and the edge books it.
func (s *service) settleOrphans(ctx context.Context) error {
	edges := absent{}
	return s.Bus.Orphans(ctx, orphanDurable, func(ctx context.Context, r bus.Report) error {
		h, err := s.book.HoldOf(ctx, r.Job)
		if fault.Is(err, fault.NotFound) {
			// Settled already: the edge lived longer than it seemed.
			s.Log.Info("report without an open hold", "job", r.Job, "worker", r.Worker)
			return nil
		}
		if err != nil {
			return err
		}
		if !bus.OwnedBy(r.Job, r.Owner) {
			// A worker may say what it likes; whose job it is the job's id says.
			s.Log.Error("ALARM: report names an edge that the job is not of", "job", r.Job, "worker", r.Worker)
			s.count.alarm(ctx, "report_foreign", 1)
			return nil
		}
		died, err := edges.died(ctx, s.Bus, r.Owner)
		if err != nil {
			return err
		}
		if !died {
			// Should it book nothing after all, the hold runs out, and the sweeper finds
			// the report.
			s.Log.Info("report of a living edge's job", "job", r.Job, "worker", r.Worker)
			return nil
		}
		e, ok := s.byReport(ctx, h, r)
		if !ok {
			return nil
		}
		return s.settle(ctx, []ledger.Ended{e})
	})
}

// byReport is the end that a report tells, false when that cannot be priced.
func (s *service) byReport(ctx context.Context, h ledger.OpenHold, r bus.Report) (ledger.Ended, bool) {
	e, err := ledger.ByReport(h, r)
	if err != nil {
		s.Log.Error("ALARM: report cannot be priced", "job", r.Job, "worker", r.Worker, "error", err)
		s.count.alarm(ctx, "report_unpriced", 1)
	}
	return e, err == nil
}

// absent remembers the edges that did not answer, by the name that each has for one
// start of its process. Reports come one at a time, so it is for one goroutine.
type absent map[string]absence

type absence struct {
	silent time.Time // since when nobody answers for it
	hung   time.Time // when it did not answer in time
}

// died tells whether an edge is dead: nobody has answered in its name for orphanGrace.
// ErrLater says that this is not known yet; reports of other edges do not wait for
// that.
func (m absent) died(ctx context.Context, b *bus.Bus, edge string) (bool, error) {
	a := m[edge]
	if time.Since(a.hung) < orphanGrace {
		return false, bus.ErrLater
	}
	lives, err := b.Lives(ctx, edge)
	switch {
	case err != nil:
		a.hung = time.Now()
	case lives:
		delete(m, edge)
		return false, nil
	case a.silent.IsZero():
		a.silent = time.Now()
	case time.Since(a.silent) >= orphanGrace:
		return true, nil
	}
	if len(m) >= absentMax {
		clear(m)
	}
	m[edge] = a
	return false, bus.ErrLater
}
