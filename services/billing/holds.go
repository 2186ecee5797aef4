package billing

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
)

// answerHolds groups holds without a timer: a statement leaves at once when
// none is under way, and what arrives meanwhile is the next group. So an idle
// service adds no wait, and a busy one makes its groups as large as they need
// to be.
func (s *service) answerHolds(ctx context.Context) error {
	asks := make(chan bus.HoldAsk, holdQueueMax)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.Bus.ServeHolds(gctx, func(ask bus.HoldAsk) {
			select {
			case asks <- ask:
			default:
				s.answer(ask, bus.HoldAnswer{Code: fault.Busy, Message: "too many requests wait for their hold"})
			}
		})
	})
	g.Go(func() error {
		s.decide(gctx, asks)
		return nil
	})
	return g.Wait()
}

// decide runs until ctx has ended and nothing waits any more.
func (s *service) decide(ctx context.Context, asks <-chan bus.HoldAsk) {
	var later []bus.HoldAsk
	for {
		group := later
		later = nil
		if len(group) == 0 {
			select {
			case ask := <-asks:
				group = append(group, ask)
			case <-ctx.Done():
				select {
				case ask := <-asks:
					group = append(group, ask)
				default:
					return
				}
			}
		}
		group, later = gather(group, asks)
		s.decideGroup(context.WithoutCancel(ctx), group)
	}
}

// gather takes what waits, without waiting. A job that stands in the group
// already is for the next one.
func gather(first []bus.HoldAsk, asks <-chan bus.HoldAsk) (group, later []bus.HoldAsk) {
	in := make(map[string]bool, holdGroupMax)
	take := func(ask bus.HoldAsk) {
		if in[ask.Hold.Job] {
			later = append(later, ask)
			return
		}
		in[ask.Hold.Job] = true
		group = append(group, ask)
	}
	for _, ask := range first {
		take(ask)
	}
	for len(group) < holdGroupMax && len(later) < holdGroupMax {
		select {
		case ask := <-asks:
			take(ask)
		default:
			return group, later
		}
	}
	return group, later
}

func (s *service) decideGroup(ctx context.Context, group []bus.HoldAsk) {
	holds := make([]bus.Hold, len(group))
	for i, ask := range group {
		holds[i] = ask.Hold
	}
	answers, err := s.hold(ctx, holds)
	if err != nil {
		s.Log.Error("holds not decided", "count", len(group), "error", err)
		s.count.alarm(ctx, "holds_undecided", 1)
		answers = make([]bus.HoldAnswer, len(group))
		for i := range answers {
			answers[i] = bus.HoldAnswer{Code: fault.Unavailable, Message: "billing cannot answer now; retry later"}
		}
	}
	for i, ask := range group {
		s.count.hold(ctx, string(answers[i].Code))
		s.answer(ask, answers[i])
	}
}

// hold asks the ledger, and again while the moment is bad: a hold that stands
// already is answered the same again.
func (s *service) hold(ctx context.Context, holds []bus.Hold) (answers []bus.HoldAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, holdWait)
	defer cancel()
	for {
		answers, err = s.book.Hold(ctx, holds)
		if err == nil || !fault.Is(err, fault.Busy) && !fault.Is(err, fault.Unavailable) || !rest(ctx, holdPause) {
			return answers, err
		}
	}
}

func (s *service) answer(ask bus.HoldAsk, a bus.HoldAnswer) {
	if err := ask.Answer(a); err != nil {
		// The hold, if any, is settled by the job's end or swept.
		s.Log.Warn("hold not answered", "job", ask.Hold.Job, "error", err)
	}
}

// rest waits for d or for the end of ctx, and tells whether time passed.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
