package billing

import (
	"context"
	"sync"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// settleOrphans books jobs whose edge died, by the report of the worker that
// served them. A worker may take an edge for dead that is only cut off from it: what
// a living edge has told its client is the truth, and the edge books it.
func (s *service) settleOrphans(ctx context.Context) error {
	dead := &mourned{silent: map[string]time.Time{}, hung: map[string]time.Time{}}
	return s.Bus.Orphans(ctx, orphanDurable, func(ctx context.Context, r bus.Report) error {
		if _, err := s.book.HoldOf(ctx, r.Job); err != nil {
			return s.settled(r, err)
		}
		died, err := dead.died(ctx, s.Bus, r.Owner)
		if err != nil {
			return err
		}
		if !died {
			// Should it book nothing after all, the hold runs out, and the sweeper finds
			// the report.
			s.Log.Info("report of a living edge's job", "job", r.Job, "worker", r.Worker)
			return nil
		}
		// Time has passed: what the edge wrote last may have come.
		h, err := s.book.HoldOf(ctx, r.Job)
		if err != nil {
			return s.settled(r, err)
		}
		e, err := ledger.ByReport(h, r)
		if err != nil {
			s.Log.Error("ALARM: report cannot be priced", "job", r.Job, "worker", r.Worker, "error", err)
			s.count.alarm(ctx, "report_unpriced", 1)
			return nil
		}
		return s.settle(ctx, []ledger.Ended{e})
	})
}

// settled drops a report of a job without an open hold, and passes other errors on.
func (s *service) settled(r bus.Report, err error) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	s.Log.Info("report without an open hold", "job", r.Job, "worker", r.Worker)
	return nil
}

// mourned remembers the edges that did not answer, by the name that each has for one
// start of its process.
type mourned struct {
	mu     sync.Mutex
	silent map[string]time.Time // since when nobody answers for it
	hung   map[string]time.Time // when it did not answer in time
}

// died tells whether an edge is dead: nobody has answered in its name for orphanGrace.
// ErrLater says that this is not known yet; reports of other edges do not wait for
// that. A report of an older worker names no edge.
func (m *mourned) died(ctx context.Context, b *bus.Bus, edge string) (bool, error) {
	if edge == "" {
		return true, nil
	}
	if since, ok := m.since(m.hung, edge); ok && since < orphanGrace {
		return false, bus.ErrLater
	}
	lives, err := b.Lives(ctx, edge)
	switch {
	case err != nil:
		m.note(m.hung, edge)
		return false, bus.ErrLater
	case lives:
		m.forget(edge)
		return false, nil
	}
	since, ok := m.since(m.silent, edge)
	switch {
	case !ok:
		m.note(m.silent, edge)
		return false, bus.ErrLater
	case since < orphanGrace:
		return false, bus.ErrLater
	}
	return true, nil
}

func (m *mourned) since(of map[string]time.Time, edge string) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := of[edge]
	return time.Since(at), ok
}

func (m *mourned) forget(edge string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.silent, edge)
}

func (m *mourned) note(of map[string]time.Time, edge string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(of) >= mournedMax {
		clear(of)
	}
	of[edge] = time.Now()
}
