package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/engy-ai/engy/pkg/fault"
)

// Offered is a ticket on its way into a queue. The queue's word is not waited
// for: a worker may have the ticket before it comes.
type Offered struct {
	b      *Bus
	stream string
	future jetstream.PubAckFuture
}

// Offer puts a ticket into its queue. The same job and offer number is stored
// once, however often it is sent.
func (b *Bus) Offer(t Ticket) (*Offered, error) {
	subj, err := jobsSubject(t)
	if err != nil {
		return nil, err
	}
	raw, err := Marshal(t)
	if err != nil {
		return nil, err
	}
	msg := nats.NewMsg(subj)
	msg.Data = raw
	future, err := b.js.PublishMsgAsync(msg, jetstream.WithMsgID(t.Job+"."+strconv.Itoa(t.Offer)))
	if err != nil {
		return nil, fmt.Errorf("offer %s: %w", t.Job, translate(err))
	}
	return &Offered{b: b, stream: jobsStream(t.Region), future: future}, nil
}

// Refused gives an error when the queue did not take the ticket: Busy when it
// is full, Unavailable when it cannot be reached. It never gives one for a
// ticket that was taken.
func (o *Offered) Refused() <-chan error { return o.future.Err() }

// queueFull is JetStream's error code for a message that would exceed a bound.
const queueFull jetstream.ErrorCode = 10077

// Refusal turns what Refused gave into the product's error.
func Refusal(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == queueFull {
		return fault.Wrap(fault.Busy, "the queue of this model is full", err)
	}
	return fault.Wrap(fault.Unavailable, "the job queue cannot be reached", err)
}

// Withdraw takes the ticket out of the queue as far as that is possible; a
// worker that has it already learns from its claim that the job is gone.
func (o *Offered) Withdraw(ctx context.Context) error {
	select {
	case ack := <-o.future.Ok():
		if ack == nil || ack.Duplicate {
			return nil
		}
		s, err := o.b.js.Stream(ctx, o.stream)
		if err != nil {
			return fmt.Errorf("withdraw: %w", translate(err))
		}
		err = s.DeleteMsg(ctx, ack.Sequence)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
			return fmt.Errorf("withdraw: %w", translate(err))
		}
		return nil
	case err := <-o.future.Err():
		// A ticket that was refused is in no queue.
		o.b.log.Debug("ticket was refused", "error", err)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
