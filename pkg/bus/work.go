package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/engy-ai/engy/pkg/fault"
)

// Work is a granted job. A small body comes with the grant; a large one is
// fetched, see Body.
type Work struct {
	Attempt int
	body    []byte
	grant   Grant
}

// Claim asks the owner of a ticket for the work. The verdict tells what came of
// it; an error of which Vanished is true means that the owner does not exist
// any more.
func (b *Bus) Claim(ctx context.Context, t Ticket, worker string) (Work, Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var g Grant
	first, err := b.claim(ctx, b.nc, claimsPrefix, t.Owner, Claim{Job: t.Job, Worker: worker}, &g)
	if err != nil {
		return Work{}, "", fmt.Errorf("claim %s: %w", t.Job, err)
	}
	if g.Verdict != Granted {
		return Work{}, g.Verdict, nil
	}
	w := Work{Attempt: g.Attempt, grant: g}
	if g.BodyBytes == int64(len(first)) {
		w.body = first
	}
	return w, Granted, nil
}

// Far tells how many bytes of the body are still to be fetched.
func (w Work) Far() int64 { return w.grant.BodyBytes - int64(len(w.body)) }

// Body gives the body of granted work, which takes as long as it takes: each piece
// has a time of its own, ctx bounds them all.
func (b *Bus) Body(ctx context.Context, t Ticket, worker string, w Work) ([]byte, error) {
	if w.Far() == 0 {
		return w.body, nil
	}
	body, err := b.chunks(ctx, t, worker, w.grant)
	if err != nil {
		return nil, fmt.Errorf("body of %s: %w", t.Job, err)
	}
	return body, nil
}

func (b *Bus) claim(ctx context.Context, nc *nats.Conn, prefix, owner string, c Claim, g *Grant) ([]byte, error) {
	subj, err := subject(prefix, owner, c.Worker)
	if err != nil {
		return nil, err
	}
	raw, err := Marshal(c)
	if err != nil {
		return nil, err
	}
	msg, err := nc.RequestWithContext(ctx, subj, raw)
	if err != nil {
		return nil, translate(err)
	}
	return unpack(msg.Data, g)
}

// chunks fetches a large body over the bulk connection, a few pieces ahead.
func (b *Bus) chunks(ctx context.Context, t Ticket, worker string, g Grant) ([]byte, error) {
	if g.BodyBytes <= 0 || g.BodyBytes > BodyBytesMax || g.Chunks != chunksOf(g.BodyBytes) {
		return nil, fault.New(fault.Invalid, "grant of an impossible size")
	}
	body := make([]byte, g.BodyBytes)
	fetch, ctx := errgroup.WithContext(ctx)
	fetch.SetLimit(chunksAhead)
	for i := range g.Chunks {
		fetch.Go(func() error {
			var piece Grant
			c := Claim{Job: t.Job, Worker: worker, Chunk: i + 1, Attempt: g.Attempt}
			ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
			defer cancel()
			raw, err := b.claim(ctx, b.bulk, bodiesPrefix, t.Owner, c, &piece)
			if err != nil {
				return err
			}
			if piece.Verdict != Granted || len(raw) != len(chunk(body, i+1)) {
				return fault.New(fault.Canceled, "the job is gone")
			}
			copy(chunk(body, i+1), raw)
			return nil
		})
	}
	return body, fetch.Wait()
}

func chunksOf(size int64) int { return int((size + ChunkBytes - 1) / ChunkBytes) }

// chunk gives piece n of a body, counted from 1.
func chunk(body []byte, n int) []byte {
	from := (n - 1) * ChunkBytes
	if n < 1 || from >= len(body) {
		return nil
	}
	return body[from:min(from+ChunkBytes, len(body))]
}

// Owner is what an edge does for the jobs that it owns. No method may block:
// they run on the bus's own goroutines.
type Owner interface {
	// Grant decides a claim, and gives the body when it is granted.
	Grant(c Claim) (Grant, []byte)
	// Declined hears that a worker did not take an attempt that was dispatched to it,
	// or that it has vanished.
	Declined(worker, job string, attempt int, vanished bool)
	// Body gives the body of a granted attempt again, or nil when the claim
	// does not fit it.
	Body(c Claim) []byte
	// Take takes a frame of a worker, and tells whether anybody wants it. A frame
	// with an end comes with booked, which is called once when nothing that the
	// worker knows is needed any more: its usage is stored, or there is none.
	Take(worker string, f Frame, booked func()) bool
	// Alive hears which of the owner's attempts a worker runs, all of them, and
	// tells which are not wanted.
	Alive(worker string, running []Running) (gone []Running)
}

// Own answers for an owner under the given name until ctx ends. Ready is called
// once everything is subscribed.
func (b *Bus) Own(ctx context.Context, name string, o Owner, ready func()) error {
	answer := func(m *nats.Msg, head any, rest []byte) {
		raw, err := pack(head, rest)
		if err == nil {
			err = m.Respond(raw)
		}
		if err != nil {
			b.log.Warn("answer not sent", "error", err)
		}
	}
	claims := func(m *nats.Msg) {
		var c Claim
		if Unmarshal(m.Data, &c) != nil || c.Worker != sender(m.Subject) {
			answer(m, Grant{Verdict: Gone}, nil)
			return
		}
		g, body := o.Grant(c)
		if g.Verdict == Granted {
			g.BodyBytes, g.Chunks = int64(len(body)), 1
			if g.BodyBytes > ChunkBytes {
				g.Chunks, body = chunksOf(g.BodyBytes), nil
			}
		}
		answer(m, g, body)
	}
	bodies := func(m *nats.Msg) {
		var c Claim
		if Unmarshal(m.Data, &c) != nil || c.Worker != sender(m.Subject) {
			answer(m, Grant{Verdict: Gone}, nil)
			return
		}
		piece := chunk(o.Body(c), c.Chunk)
		if piece == nil {
			answer(m, Grant{Verdict: Gone}, nil)
			return
		}
		answer(m, Grant{Verdict: Granted, Attempt: c.Attempt}, piece)
	}
	subs := []struct {
		nc     *nats.Conn
		prefix string
		names  string // what follows the owner's, the worker's last
		handle nats.MsgHandler
	}{
		{b.nc, claimsPrefix, ".*", claims},
		{b.nc, declinesPrefix, ".*.*.*", func(m *nats.Msg) { b.declines(m, o) }},
		{b.bulk, bodiesPrefix, ".*", bodies},
		{b.nc, framesPrefix, ".*", func(m *nats.Msg) { b.frames(m, o) }},
		{b.nc, alivePrefix, ".*", func(m *nats.Msg) { b.alive(m, o) }},
	}
	for _, s := range subs {
		subj, err := subject(s.prefix, name)
		if err != nil {
			return err
		}
		sub, err := s.nc.Subscribe(subj+s.names, s.handle)
		if err != nil {
			return fmt.Errorf("own %s: %w", name, translate(err))
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := sub.SetPendingLimits(ownPendingMax, ownPendingBytesMax); err != nil {
			return fmt.Errorf("own %s: %w", name, translate(err))
		}
	}
	for _, nc := range []*nats.Conn{b.nc, b.bulk} {
		if err := nc.FlushTimeout(askTimeout); err != nil {
			return fmt.Errorf("own %s: %w", name, translate(err))
		}
	}
	ready()
	<-ctx.Done()
	return nil
}

// sender reads the worker's name from the last token of a subject. The bus's
// permissions let a worker publish under its own name only.
func sender(subj string) string {
	for i := len(subj) - 1; i >= 0; i-- {
		if subj[i] == '.' {
			name, err := Name(subj[i+1:])
			if err != nil {
				return ""
			}
			return name
		}
	}
	return ""
}
