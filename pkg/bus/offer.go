package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/engy-ai/engy/pkg/fault"
)

// Offered is a ticket on its way into a queue. The queue's word is not waited
// for: a worker may have the ticket before it comes.
type Offered struct {
	b      *Bus
	stream string
	// done is closed when the queue has answered; the two below are set then.
	done chan struct{}
	at   stored
	err  error
}

// Offer puts a ticket into its queue. The same job and offer number is stored
// once, however often it is sent. Unless Offer fails, told is called once, later and
// on another goroutine: with nil when the ticket is in its queue, with Busy when that
// is full, with Unavailable when it cannot be reached. It must not block.
func (b *Bus) Offer(t Ticket, told func(error)) (*Offered, error) {
	subj, err := jobsSubject(t)
	if err != nil {
		return nil, err
	}
	raw, err := Marshal(t)
	if err != nil {
		return nil, err
	}
	o := &Offered{b: b, stream: jobsStream(t.Region), done: make(chan struct{})}
	err = b.out.publish(subj, t.Job+"."+strconv.Itoa(t.Offer), raw, func(at stored, err error) {
		o.at, o.err = at, err
		close(o.done)
		switch {
		case err == nil:
			told(nil)
		case queueFull(err):
			told(fault.Wrap(fault.Busy, "the queue of this model is full", err))
		default:
			told(fault.Wrap(fault.Unavailable, "the job queue cannot be reached", err))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("offer %s: %w", t.Job, err)
	}
	return o, nil
}

// Withdraw takes the ticket out of the queue as far as that is possible; a
// worker that has it already learns from its claim that the job is gone.
func (o *Offered) Withdraw(ctx context.Context) error {
	select {
	case <-o.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if o.err != nil || o.at.twice {
		return nil // it is in no queue, or under an earlier offer
	}
	s, err := o.b.js.Stream(ctx, o.stream)
	if err != nil {
		return fmt.Errorf("withdraw: %w", translate(err))
	}
	err = s.DeleteMsg(ctx, o.at.seq)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return fmt.Errorf("withdraw: %w", translate(err))
	}
	return nil
}

// Forsake throws away the tickets that name a worker which is dead: nobody else
// pulls them, and they would count as demand. It does not wait.
func (b *Bus) Forsake(region, worker string) {
	b.spawn(func() {
		ctx, cancel := context.WithTimeout(b.life, publishTimeout)
		defer cancel()
		if err := b.forsake(ctx, region, worker); err != nil {
			b.log.Warn("tickets of a dead worker not thrown away", "worker", worker, "error", err)
		}
	})
}

func (b *Bus) forsake(ctx context.Context, region, worker string) error {
	named, err := namedSubject(region, worker)
	if err != nil {
		return err
	}
	s, err := b.js.Stream(ctx, jobsStream(region))
	if err != nil {
		return translate(err)
	}
	return translate(s.Purge(ctx, jetstream.WithPurgeSubject(named)))
}
