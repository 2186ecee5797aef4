package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Batches says how facts are handed over. A batch leaves when it holds Most of
// them, or Wait after its first; while AtOnce batches are being booked, it goes on
// growing. In which order batches are booked is not told.
type Batches struct {
	Most   int
	Wait   time.Duration
	AtOnce int
}

// unreadable tells where a fact is that nothing could be made of, and whose it says it
// is: somebody must look at what was not booked. Anything but a job's id could be content.
func (b *Bus) unreadable(m jetstream.Msg) {
	job := m.Headers().Get(jetstream.MsgIDHeader)
	if !hexText(job) {
		job = ""
	}
	var stream string
	var sequence uint64
	if meta, err := m.Metadata(); err == nil {
		stream, sequence = meta.Stream, meta.Sequence.Stream
	}
	b.log.Error("ALARM: fact cannot be read", "stream", stream, "sequence", sequence, "job", job)
}

// consume reads a durable consumer in batches until ctx ends.
func consume[T any](ctx context.Context, b *Bus, stream string, cfg jetstream.ConsumerConfig, how Batches, handle func(context.Context, []T) error) error {
	cfg.AckPolicy = jetstream.AckExplicitPolicy
	cfg.AckWait = factAckWait
	cfg.MaxAckPending = factAckPending
	cfg.MaxDeliver = -1
	for ctx.Err() == nil {
		cons, err := b.js.CreateOrUpdateConsumer(ctx, stream, cfg)
		if err == nil {
			err = batches(ctx, b, cons, how, handle)
		}
		if err != nil && ctx.Err() == nil {
			b.log.Warn("consumer opened anew", "stream", stream, "error", err)
			rest(ctx, reconnectWait)
		}
	}
	return nil
}

func batches[T any](ctx context.Context, b *Bus, cons jetstream.Consumer, how Batches, handle func(context.Context, []T) error) error {
	iter, err := cons.Messages(jetstream.PullMaxMessages(2*how.Most*how.AtOnce), jetstream.PullExpiry(factPull))
	if err != nil {
		return translate(err)
	}
	defer iter.Stop()
	// What has come already is booked first: nobody else gets it soon.
	stop := context.AfterFunc(ctx, iter.Drain)
	defer stop()
	// What comes next is read while batches are being booked.
	facts := make(chan fact[T], how.Most)
	var failed error
	go func() {
		defer close(facts)
		failed = read(b, iter, facts)
	}()
	booking := make(chan struct{}, how.AtOnce)
	var booked sync.WaitGroup
	for first := range facts {
		got := gather(first, facts, how, booking)
		booked.Go(func() {
			deliver(ctx, b, got, handle)
			<-booking
		})
	}
	booked.Wait()
	if errors.Is(failed, jetstream.ErrMsgIteratorClosed) {
		return nil
	}
	return translate(failed)
}

// read sends on what comes, until nothing does any more.
func read[T any](b *Bus, iter jetstream.MessagesContext, facts chan<- fact[T]) error {
	for {
		m, err := iter.Next()
		if err != nil {
			return err
		}
		f := fact[T]{msg: m}
		if err := Unmarshal(m.Data(), &f.value); err != nil {
			b.unreadable(m)
			_ = m.Term()
			continue
		}
		facts <- f
	}
}

// gather makes a batch, and takes a place among those that are being booked.
func gather[T any](first fact[T], facts <-chan fact[T], how Batches, booking chan<- struct{}) []fact[T] {
	got := []fact[T]{first}
	late := time.NewTimer(how.Wait)
	defer late.Stop()
	var place chan<- struct{} // nil while the batch may wait
	for {
		if len(got) >= how.Most {
			facts, place = nil, booking
		}
		select {
		case f, ok := <-facts:
			if !ok {
				facts, place = nil, booking
				continue
			}
			got = append(got, f)
		case <-late.C:
			place = booking
		case place <- struct{}{}:
			return got
		}
	}
}

// ErrLater is for who cannot decide yet about facts: they come again, and nothing is
// wrong.
var ErrLater = errors.New("not to be decided yet") // read-only

// fact is a stored message and what it says.
type fact[T any] struct {
	msg   jetstream.Msg
	value T
}

// deliver hands one batch over and acknowledges it, or gives it back.
func deliver[T any](ctx context.Context, b *Bus, got []fact[T], handle func(context.Context, []T) error) {
	values := make([]T, len(got))
	for i := range got {
		values[i] = got[i].value
	}
	// A batch that was begun is finished, even while the service stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factAckWait/2)
	defer cancel()
	if err := handle(ctx, values); err != nil {
		if !errors.Is(err, ErrLater) {
			b.log.Error("batch not booked, comes again", "count", len(got), "error", err)
		}
		for _, f := range got {
			_ = f.msg.NakWithDelay(factPause)
		}
		return
	}
	for _, f := range got {
		if err := f.msg.Ack(); err != nil {
			b.log.Warn("fact not acknowledged", "error", err)
			return
		}
	}
}
