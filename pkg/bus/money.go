package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// RenewHolds keeps the holds of jobs, and tells how many of them are open. With
// no jobs it only asks whether billing answers.
func (b *Bus) RenewHolds(ctx context.Context, jobs []string, expires time.Time) (renewed int64, err error) {
	parts := slices.Collect(slices.Chunk(jobs, RenewalJobsMax))
	if len(parts) == 0 {
		parts = [][]string{{}}
	}
	for _, part := range parts {
		raw, err := Marshal(Renewal{Jobs: part, Expires: expires})
		if err != nil {
			return renewed, err
		}
		msg, err := b.billings.ask(ctx, renewalsPrefix, raw)
		if err != nil {
			return renewed, fmt.Errorf("renew holds: %w", translate(err))
		}
		var a RenewalAnswer
		if err := Unmarshal(msg.Data, &a); err != nil {
			return renewed, fmt.Errorf("renew holds: %w", err)
		}
		renewed += a.Renewed
		b.holds.heard()
	}
	return renewed, nil
}

// ServeRenewals hands renewals to renew until ctx ends; each goes to one of the
// billing services that serve. One that fails is not answered.
func (b *Bus) ServeRenewals(ctx context.Context, renew func(context.Context, Renewal) (int64, error)) error {
	// One that is large, or meets a slow database, must not keep others waiting: who
	// hears nothing takes billing for dead.
	asks := make(chan *nats.Msg, renewalsWaiting)
	var answering sync.WaitGroup
	for range renewalsAtOnce {
		answering.Go(func() {
			for {
				select {
				case m := <-asks:
					b.renew(ctx, m, renew)
				case <-ctx.Done():
					return // a message may still come: who sent it asks again
				}
			}
		})
	}
	defer answering.Wait()
	return b.billings.serve(ctx, renewalsPrefix, func(m *nats.Msg) {
		select {
		case asks <- m:
		default: // who asked asks again
		}
	})
}

func (b *Bus) renew(ctx context.Context, m *nats.Msg, renew func(context.Context, Renewal) (int64, error)) {
	var r Renewal
	if err := Unmarshal(m.Data, &r); err != nil || len(r.Jobs) > RenewalJobsMax {
		b.garbled("renewal", err)
		return
	}
	n, err := renew(ctx, r)
	if err != nil {
		b.log.Error("holds not renewed", "jobs", len(r.Jobs), "error", err)
		return
	}
	raw, err := Marshal(RenewalAnswer{Renewed: n})
	if err == nil {
		err = m.Respond(raw)
	}
	if err != nil {
		b.log.Warn("renewal not answered", "error", err)
	}
}

// RecordUsage sends the fact of a request on its way to the usage stream. It is
// repeated until it is stored; the job's id makes it one fact.
func (b *Bus) RecordUsage(u Usage) error { return b.BookUsage(u, nil) }

// BookUsage is RecordUsage for who must hear when the fact is stored, or given up
// while this process lives on. Stored must not block.
func (b *Bus) BookUsage(u Usage, stored func()) error {
	subj, err := subject(usagePrefix, u.Region, u.Model, u.Account)
	if err != nil {
		return err
	}
	raw, err := Marshal(UsageEvent{
		SpecVersion: "1.0", ID: u.Job, Source: "/engy/edge", Type: UsageType,
		Subject: u.Account, Time: time.Now().UTC(), DataContentType: "application/json", Data: u,
	})
	if err != nil {
		return err
	}
	return b.fact(subj, u.Job, raw, stored)
}

// WriteReport sends a worker's report on its way to the reports stream.
func (b *Bus) WriteReport(r Report) error {
	subj, err := subject(reportsPrefix, r.Worker, r.Job)
	if err != nil {
		return err
	}
	raw, err := Marshal(r)
	if err != nil {
		return err
	}
	return b.fact(subj, fmt.Sprintf("%s.%d.%s", r.Job, r.Attempt, r.Worker), raw, nil)
}

// fact publishes a message until it is stored; then is called once, when it is, or is
// given up.
func (b *Bus) fact(subj, id string, raw []byte, then func()) error {
	err := b.facts.publish(subj, id, raw, func(_ stored, err error) {
		if err != nil {
			b.repeat(subj, id, raw, then, err)
			return
		}
		if then != nil {
			then()
		}
	})
	if err != nil {
		b.repeat(subj, id, raw, then, err)
	}
	return nil
}

// repeat publishes a fact again until it is stored: nobody else may know it. One that
// is one too many is lost: an alarm, and billing's sweeper ends its hold. So is one
// that is not stored when this process ends, unless its worker reports it.
func (b *Bus) repeat(subj, id string, raw []byte, then func(), cause error) {
	if b.repeating.Add(1) > factsMax {
		b.repeating.Add(-1)
		b.log.Error("ALARM: fact lost", "id", id)
		if then != nil {
			then()
		}
		return
	}
	b.log.Warn("fact not stored, trying again", "error", cause)
	spawned := b.spawn(func() {
		defer b.repeating.Add(-1)
		pause := factPause
		for last := false; !last; pause = min(2*pause, factPauseMax) {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-b.closing:
				t.Stop()
				last = true
			}
			if b.again(subj, id, raw) == nil {
				if then != nil {
					then()
				}
				return
			}
		}
		b.log.Error("ALARM: fact lost at the end", "id", id)
	})
	if !spawned {
		b.repeating.Add(-1)
		b.log.Error("ALARM: fact lost at the end", "id", id)
	}
}

func (b *Bus) again(subj, id string, raw []byte) error {
	again := nats.NewMsg(subj)
	again.Data = raw
	again.Header.Set(nats.MsgIdHdr, id)
	ctx, cancel := context.WithTimeout(b.life, publishTimeout)
	defer cancel()
	_, err := b.js.PublishMsg(ctx, again)
	return err
}

// Usages hands usage events to handle in batches, under a durable name. A batch
// is acknowledged when handle returns nil, and comes again otherwise.
func (b *Bus) Usages(ctx context.Context, durable string, how Batches, handle func(context.Context, []UsageEvent) error) error {
	return consume(ctx, b, usageStream, jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: usagePrefix + ".>",
	}, how, handle)
}

// Orphans hands the reports of workers whose owners did not book the job to
// handle, one at a time, under a durable name.
func (b *Bus) Orphans(ctx context.Context, durable string, handle func(context.Context, Report) error) error {
	return consume(ctx, b, reportsStream, jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: reportsPrefix + ".>",
	}, Batches{Most: 1, AtOnce: 1}, func(ctx context.Context, rs []Report) error {
		for _, r := range rs {
			if err := handle(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReportOf gives the newest report on a job, nil when there is none that can be read.
func (b *Bus) ReportOf(ctx context.Context, job string) (*Report, error) {
	token, err := Token(job)
	if err != nil {
		return nil, err
	}
	s := b.reports.Load()
	if s == nil {
		found, err := b.js.Stream(ctx, reportsStream)
		if err != nil {
			return nil, fmt.Errorf("report of %s: %w", job, translate(err))
		}
		s = &found
		b.reports.Store(s) // it is a name: the stream may be made anew
	}
	msg, err := (*s).GetLastMsgForSubject(ctx, reportsPrefix+".*."+token)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report of %s: %w", job, translate(err))
	}
	var r Report
	if err := Unmarshal(msg.Data, &r); err != nil || r.Job != job {
		b.garbled("report", err)
		return nil, nil
	}
	return &r, nil
}

// NewID gives an id that sorts by time, for accounts, keys, workers and causes.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// EachUsage hands every usage event that is stored now to each, oldest first,
// in batches of at most batch.
func (b *Bus) EachUsage(ctx context.Context, batch int, each func([]UsageEvent) error) error {
	s, err := b.js.Stream(ctx, usageStream)
	if err != nil {
		return fmt.Errorf("usage: %w", translate(err))
	}
	info, err := s.Info(ctx)
	if err != nil {
		return fmt.Errorf("usage: %w", translate(err))
	}
	last := info.State.LastSeq
	if info.State.Msgs == 0 {
		return nil
	}
	cons, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("usage: %w", translate(err))
	}
	for {
		msgs, err := cons.Fetch(batch, jetstream.FetchMaxWait(factPull))
		if err != nil {
			return fmt.Errorf("usage: %w", translate(err))
		}
		var events []UsageEvent
		end := false
		for m := range msgs.Messages() {
			var e UsageEvent
			if err := Unmarshal(m.Data(), &e); err != nil {
				return fmt.Errorf("usage: %w", err)
			}
			meta, err := m.Metadata()
			if err != nil {
				return fmt.Errorf("usage: %w", translate(err))
			}
			events = append(events, e)
			end = end || meta.Sequence.Stream >= last
		}
		if err := msgs.Error(); err != nil {
			return fmt.Errorf("usage: %w", translate(err))
		}
		if len(events) > 0 {
			if err := each(events); err != nil {
				return err
			}
		}
		if end || len(events) == 0 {
			return nil
		}
	}
}
