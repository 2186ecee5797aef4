package bus

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Queue names what a worker pulls: tickets of one model and class that any
// worker may take, or, with Worker set, those offered to that worker alone.
type Queue struct {
	Region string
	Model  string
	Class  Class
	Worker string
}

// Delivery is a ticket in a worker's hand. Exactly one of Ack, Nak and Drop
// ends it; Progress keeps it meanwhile.
type Delivery struct {
	Ticket Ticket
	msg    *nats.Msg
}

// Ack says that the job is over, whatever came of it.
func (d *Delivery) Ack() error { return d.reply("+ACK") }

// Progress says that the job is still worked on.
func (d *Delivery) Progress() error { return d.reply("+WPI") }

// Drop says that nobody should ever have this ticket again.
func (d *Delivery) Drop() error { return d.reply("+TERM") }

// Nak gives the ticket back, for another worker after the delay.
func (d *Delivery) Nak(delay time.Duration) error {
	return d.reply(`-NAK {"delay":` + strconv.FormatInt(delay.Nanoseconds(), 10) + `}`)
}

func (d *Delivery) reply(verb string) error {
	if err := d.msg.Respond([]byte(verb)); err != nil {
		return fmt.Errorf("ticket %s: %w", d.Ticket.Job, translate(err))
	}
	return nil
}

// Pull hands tickets of a queue to take until ctx ends. It never asks for more
// tickets than free tells, so that none waits at a busy worker while another is
// idle; wake tells it that free has grown. Take must not block.
func (b *Bus) Pull(ctx context.Context, q Queue, free func() int, wake <-chan struct{}, take func(*Delivery)) error {
	p := &puller{b: b, q: q, free: free, take: take, msgs: make(chan *nats.Msg, pullBatchMax+pullWaiting)}
	for ctx.Err() == nil {
		if err := p.consumer(ctx); err != nil {
			b.log.Warn("queue cannot be opened", "stream", jobsStream(q.Region), "error", err)
			if !rest(ctx, reconnectWait) {
				return nil
			}
			continue
		}
		if err := p.run(ctx, wake); err != nil {
			b.log.Warn("queue opened anew", "stream", jobsStream(q.Region), "error", err)
			if !rest(ctx, reconnectWait) {
				return nil
			}
		}
	}
	return nil
}

// rest waits, and tells whether ctx still lives.
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

// puller speaks JetStream's pull protocol for one consumer. The library's own
// loops hold either one ticket too many at a busy worker or send a request for
// each ticket; this one asks in batches, for exactly what is free.
type puller struct {
	b    *Bus
	q    Queue
	free func() int
	take func(*Delivery)
	msgs chan *nats.Msg
	next string // subject of pull requests
	// asked holds the pull requests that the server may still answer.
	asked []ask
}

type ask struct {
	left int
	ends time.Time
}

func (p *puller) consumer(ctx context.Context) error {
	q := p.q
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait,
		MaxDeliver: deliverMax, MaxAckPending: -1, MaxWaiting: pullWaiting,
		MemoryStorage: true,
	}
	filter, err := jobsSubject(Ticket{Region: q.Region, Model: q.Model, Class: q.Class, Worker: q.Worker})
	if q.Worker != "" {
		filter, err = namedSubject(q.Region, q.Worker)
		cfg.InactiveThreshold = time.Minute
	}
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(strings.TrimPrefix(filter, jobsPrefix+"."+q.Region+"."), ".", "+")
	name = strings.ReplaceAll(name, "*", "all")
	cfg.FilterSubject = filter
	if q.Worker == "" {
		cfg.Durable = name
	} else {
		cfg.Name = name
	}
	stream := jobsStream(q.Region)
	if _, err = p.b.js.CreateOrUpdateConsumer(ctx, stream, cfg); err != nil {
		return fmt.Errorf("consumer %s: %w", name, translate(err))
	}
	p.next = "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + name
	return nil
}

// run pulls until ctx ends or the consumer is lost.
func (p *puller) run(ctx context.Context, wake <-chan struct{}) error {
	inbox := nats.NewInbox()
	sub, err := p.b.nc.ChanSubscribe(inbox, p.msgs)
	if err != nil {
		return translate(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	p.asked = nil
	epoch := p.b.reconnects.Load()
	for {
		if now := p.b.reconnects.Load(); now != epoch {
			epoch, p.asked = now, nil
		}
		if err := p.ask(inbox); err != nil {
			return err
		}
		select {
		case msg := <-p.msgs:
			if err := p.got(msg); err != nil {
				return err
			}
		case <-wake:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ask sends a pull request when less than half of what is free is asked for.
func (p *puller) ask(inbox string) error {
	now := time.Now()
	out, kept := 0, p.asked[:0]
	for _, a := range p.asked {
		if a.left > 0 && now.Before(a.ends) {
			out += a.left
			kept = append(kept, a)
		}
	}
	p.asked = kept
	want := min(p.free(), pullBatchMax)
	if want <= 0 || 2*out > want || out == want {
		return nil
	}
	body := `{"batch":` + strconv.Itoa(want-out) + `,"expires":` + strconv.FormatInt(pullExpires.Nanoseconds(), 10) + `}`
	if err := p.b.nc.PublishRequest(p.next, inbox, []byte(body)); err != nil {
		return translate(err)
	}
	p.asked = append(p.asked, ask{left: want - out, ends: now.Add(pullExpires + time.Second)})
	return nil
}

func (p *puller) got(msg *nats.Msg) error {
	if status := msg.Header.Get("Status"); status != "" {
		return p.status(status, msg)
	}
	for i := range p.asked {
		if p.asked[i].left > 0 {
			p.asked[i].left--
			break
		}
	}
	d := &Delivery{msg: msg}
	if err := Unmarshal(msg.Data, &d.Ticket); err != nil {
		p.b.garbled("ticket", err)
		return d.Drop()
	}
	p.take(d)
	return nil
}

// status reads what the server says of a pull request instead of a ticket.
func (p *puller) status(status string, msg *nats.Msg) error {
	text := msg.Header.Get("Description")
	switch {
	case status == "404" || status == "408" ||
		status == "409" && (strings.Contains(text, "MaxWaiting") || strings.Contains(text, "Max")):
		// The request ended; the oldest one is the one that did.
		if len(p.asked) > 0 {
			p.asked = p.asked[1:]
		}
		return nil
	case status == "100":
		return nil
	}
	return fmt.Errorf("consumer lost: %s %s", status, text)
}
