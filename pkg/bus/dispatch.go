package bus

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/engy-ai/engy/pkg/fault"
)

// Dispatch hands a job to one worker that has a free slot: a grant without a
// claim, and without a ticket in any queue. The body follows it in the same
// message, unless it is large.
type Dispatch struct {
	Ticket Ticket `json:"ticket"`
	// Attempt is what Grant.Attempt is.
	Attempt int `json:"attempt"`
}

// Dispatch sends a job to the worker that its ticket names. One that is not there
// or has no slot declines, which Owner hears; one that takes it says nothing but
// its frames.
func (b *Bus) Dispatch(d Dispatch, body []byte) error {
	t := d.Ticket
	subj, err := subject(dispatchPrefix, t.Worker)
	if err != nil {
		return err
	}
	reply, err := subject(declinesPrefix, t.Owner, t.Job, strconv.Itoa(d.Attempt), t.Worker)
	if err != nil {
		return err
	}
	if len(body) > ChunkBytes {
		body = nil
	}
	raw, err := pack(d, body)
	if err != nil {
		return err
	}
	if err := b.nc.PublishRequest(subj, reply, raw); err != nil {
		return fmt.Errorf("dispatch %s: %w", t.Job, translate(err))
	}
	return nil
}

// Dispatches hands what edges send to a worker to take until ctx ends; take tells
// whether the worker has room for it, and must not block. Ready is called once it
// is subscribed.
func (b *Bus) Dispatches(ctx context.Context, worker string, take func(Ticket, Work) bool, ready func()) error {
	subj, err := subject(dispatchPrefix, worker)
	if err != nil {
		return err
	}
	handle := func(m *nats.Msg) {
		t, w, err := readDispatch(m.Data)
		if err != nil {
			b.garbled("dispatch", err)
		}
		if err == nil && take(t, w) {
			return
		}
		if err := m.Respond([]byte(declined)); err != nil {
			b.log.Warn("answer not sent", "error", err)
		}
	}
	if err := b.listen(ctx, map[string]nats.MsgHandler{subj: handle}, ready); err != nil {
		return fmt.Errorf("dispatches of %s: %w", worker, err)
	}
	return nil
}

func readDispatch(raw []byte) (Ticket, Work, error) {
	var d Dispatch
	body, err := unpack(raw, &d)
	if err != nil {
		return Ticket{}, Work{}, err
	}
	t := d.Ticket
	whole := t.BodyBytes == int64(len(body))
	if t.Job == "" || t.Owner == "" || d.Attempt < 1 || t.BodyBytes < 0 || whole != (t.BodyBytes <= ChunkBytes) {
		return Ticket{}, Work{}, fault.New(fault.Invalid, "dispatch of nothing")
	}
	return t, Work{Attempt: d.Attempt, body: body, grant: Grant{
		Verdict: Granted, Attempt: d.Attempt, BodyBytes: t.BodyBytes, Chunks: chunksOf(t.BodyBytes),
	}}, nil
}

// declined is the word of a worker that has no room. The server says nothing, in
// the name of one that is not there.
const declined = "declined"

// declines hears who did not take what was sent to it.
func (b *Bus) declines(m *nats.Msg, o Owner) {
	tokens := strings.Split(m.Subject, ".")
	n := len(tokens)
	attempt, err := strconv.Atoi(tokens[n-2])
	job := tokens[n-3]
	if err == nil {
		job, err = Name(job)
	}
	if err != nil {
		b.garbled("decline", err)
		return
	}
	o.Declined(sender(m.Subject), job, attempt, len(m.Data) == 0)
}
