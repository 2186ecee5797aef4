// Package bus is the contract between the services, and the only place that
// knows the message bus (NATS JetStream): subjects, streams, message types, and
// the verbs of this product. A service dispatches a job, offers a ticket, claims a
// job, emits frames, asks for a hold, records usage; it never publishes bytes on a
// topic.
//
// The invariant: prompts and answers travel over core NATS only and are in no
// stream or bucket; tickets, usage, reports and heartbeats hold no content. To
// add a message, add its schema and examples under schemas/bus, its type in a
// file of its own here, and a verb.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/engy-ai/engy/pkg/fault"
)

// Config says how to reach the bus. The zero value of every field but URL and
// InProcess is a default.
type Config struct {
	// URL is a NATS URL, or several with commas between. Unused with InProcess.
	URL string
	// InProcess is a server inside this process, reached without a socket.
	InProcess nats.InProcessConnProvider
	// Name tells this client apart in the server's monitoring.
	Name string
	// Replicas is how many servers keep each stream; 0 means 1.
	Replicas int
	// QueueMax bounds the tickets of one region, model and class, those being
	// worked on included; 0 means QueueMax. It counts when streams are made.
	QueueMax int64
	Log      *slog.Logger
}

// Bus is a connection to the message bus. It is safe for concurrent use.
type Bus struct {
	nc *nats.Conn
	// bulk carries large bodies, so that frames never wait behind them.
	bulk *nats.Conn
	js   jetstream.JetStream
	// out publishes tickets, facts usage and reports, which are repeated until
	// they are stored.
	out, facts *publisher
	cfg        Config
	log        *slog.Logger

	// reconnects counts connections made anew: pull requests do not survive one.
	reconnects  atomic.Int64
	reconnected atomic.Int64 // when, in Unix nanoseconds

	// id names this connection among others of its service; it was made at born.
	id       string
	born     time.Time
	billings billings
	holds    holds
	receipts *receipts
	bookings bookings
	whole    atomic.Bool // the publishers are there
	linked   atomic.Pointer[link]
	outboxes sync.Map // owner -> *outbox
	reports  atomic.Pointer[jetstream.Stream]
	unread   garbled
	// life is what facts are repeated under: it outlives whoever connected.
	life      context.Context
	repeating atomic.Int64 // facts
	tasks     struct {
		sync.Mutex
		sync.WaitGroup
		closed bool
	}
	closing chan struct{}
	once    sync.Once
}

// Connect opens the connections and declares streams and buckets, which is
// idempotent: whichever service starts first creates them.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.QueueMax == 0 {
		cfg.QueueMax = QueueMax
	}
	b := &Bus{id: NewID(), born: time.Now(), cfg: cfg, log: cfg.Log, life: context.WithoutCancel(ctx), closing: make(chan struct{})}
	b.holds.b, b.bookings.b, b.billings.b = b, b, b
	b.relink()
	var err error
	if b.nc, err = b.dial(cfg.Name); err != nil {
		return nil, err
	}
	if b.bulk, err = b.dial(cfg.Name + "-bulk"); err != nil {
		b.nc.Close()
		return nil, err
	}
	if err = b.open(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Bus) dial(name string) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(reconnectBytesMax),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.reconnects.Add(1)
			b.reconnected.Store(time.Now().UnixNano())
			if nc == b.nc {
				b.cutOff()
				// A server that was started anew has lost what was in memory.
				b.spawn(b.redeclare)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			b.log.Warn("bus error", "error", err, "slow", s != nil && errors.Is(err, nats.ErrSlowConsumer))
		}),
	}
	if b.cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(b.cfg.InProcess))
	}
	nc, err := nats.Connect(b.cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("bus connect: %w", translate(err))
	}
	return nc, nil
}

// cutOff has everything sent again that may have gone with the old connection.
func (b *Bus) cutOff() {
	b.relink().end()
	if b.whole.Load() {
		b.out.cutOff()
		b.facts.cutOff()
	}
}

// link is a context that ends once its connection was made anew: who asked under
// it may have asked in vain. It is taken before the question is sent.
type link struct {
	context.Context
	end context.CancelFunc
}

func (b *Bus) link() context.Context { return b.linked.Load() }

// relink begins the next link and returns the one before.
func (b *Bus) relink() *link {
	ctx, end := context.WithCancel(b.life)
	return b.linked.Swap(&link{ctx, end})
}

func (b *Bus) open(ctx context.Context) error {
	var err error
	if b.js, err = jetstream.New(b.nc); err != nil {
		return fmt.Errorf("bus streams: %w", err)
	}
	for _, p := range []**publisher{&b.out, &b.facts} {
		if *p, err = newPublisher(b.nc); err != nil {
			return fmt.Errorf("bus publisher: %w", err)
		}
		b.spawn(func() { (*p).expire(b.closing) })
	}
	if b.receipts, err = newReceipts(b); err != nil {
		return fmt.Errorf("bus receipts: %w", err)
	}
	b.whole.Store(true)
	return b.declare(ctx)
}

// spawn has f run until Close waits for it. It tells whether f runs: not once the bus
// is closed.
func (b *Bus) spawn(f func()) bool {
	b.tasks.Lock()
	defer b.tasks.Unlock()
	if !b.tasks.closed {
		b.tasks.Go(f)
	}
	return !b.tasks.closed
}

// Close waits a bounded time for facts under way and ends the connections.
func (b *Bus) Close() {
	b.once.Do(func() {
		if b.facts != nil {
			if left := b.facts.wait(closeWait); left > 0 {
				b.log.Error("facts not stored at close", "count", left)
			}
		}
		close(b.closing)
		b.tasks.Lock()
		b.tasks.closed = true
		b.tasks.Unlock()
		b.tasks.Wait()
		b.bookings.flush()
		for _, nc := range []*nats.Conn{b.nc, b.bulk} {
			if nc != nil {
				_ = nc.FlushTimeout(closeWait)
				nc.Close()
			}
		}
	})
}

// Connected tells whether the bus can be reached now, for readiness.
func (b *Bus) Connected() bool { return b.nc.IsConnected() && b.bulk.IsConnected() }

// Answers tells whether the bus answers within a time. It may be connected and hang.
func (b *Bus) Answers(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return b.nc.FlushWithContext(ctx) == nil
}

// Fresh tells that the connection was made anew a moment ago: others may not be
// back yet, and not finding them means nothing.
func (b *Bus) Fresh() bool { return time.Since(b.Reconnected()) < freshFor }

// Reconnected tells when the connection was last made anew, 1970 when it never
// was: what was sent before that may be lost.
func (b *Bus) Reconnected() time.Time { return time.Unix(0, b.reconnected.Load()) }

// translate turns errors of the bus into the product's.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return fault.Wrap(fault.Unavailable, "nobody answers", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fault.Wrap(fault.Timeout, "no answer in time", err)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fault.Wrap(fault.Unavailable, "the bus failed", err)
}

// Vanished tells whether err says that the one asked does not exist any more.
func Vanished(err error) bool { return errors.Is(err, nats.ErrNoResponders) }
