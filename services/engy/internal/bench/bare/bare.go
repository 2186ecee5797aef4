// Package bare is the least that a product of this shape can be: an edge that
// puts bodies on a JetStream work queue, and a worker that takes them to an
// engine and sends back what comes, byte for byte, over core NATS. There are no
// keys, limits, prices, holds, numbers on frames or settlement. The bench runs it
// beside the product, so that what the product costs over it can be told from
// what the machine costs that day. It runs with Go's own settings of the garbage
// collector. It serves nobody else.
package bare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName = "BARE"
	jobs       = "bare.jobs"
	// frames is followed by the number of a job.
	frames = "bare.frames."
	// waiting bounds the frames that wait for one client.
	waiting    = 2048
	bodyMax    = 32 << 20
	lineMax    = 1 << 20
	answerWait = 2 * time.Minute
	// more begins a frame that others follow, last the one that ends an answer.
	more = 'm'
	last = 'l'
)

// Edge serves HTTP on listen until ctx ends, and tells its address.
func Edge(ctx context.Context, natsURL, listen string, ready func(net.Addr)) error {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return fmt.Errorf("bare edge: %w", err)
	}
	defer nc.Close()
	js, err := open(ctx, nc)
	if err != nil {
		return err
	}
	e := &edge{base: ctx, js: js}
	if _, err := nc.Subscribe(frames+"*", e.take); err != nil {
		return fmt.Errorf("bare edge: %w", err)
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true, BodyLimit: bodyMax, StreamRequestBody: false})
	app.Post("/v1/chat/completions", e.serve)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("bare edge: %w", err)
	}
	ready(l.Addr())
	done := context.AfterFunc(ctx, func() { _ = app.ShutdownWithTimeout(time.Second) })
	defer done()
	if err := app.Listener(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("bare edge: %w", err)
	}
	return nil
}

// open declares the work queue.
func open(ctx context.Context, nc *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("bare: %w", err)
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{jobs}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("bare: %w", err)
	}
	return js, nil
}

type edge struct {
	base  context.Context
	js    jetstream.JetStream
	next  atomic.Int64
	table sync.Map // job number -> chan []byte
}

func (e *edge) take(m *nats.Msg) {
	ch, ok := e.table.Load(m.Subject[len(frames):])
	if !ok {
		return
	}
	select {
	case ch.(chan []byte) <- m.Data:
	default:
	}
}

func (e *edge) serve(c *fiber.Ctx) error {
	body := bytes.Clone(c.Body())
	job := strconv.FormatInt(e.next.Add(1), 10)
	ch := make(chan []byte, waiting)
	e.table.Store(job, ch)
	ctx, cancel := context.WithTimeout(e.base, answerWait)
	_, err := e.js.PublishMsg(ctx, &nats.Msg{Subject: jobs, Data: body, Header: nats.Header{"Job": {job}}})
	if err != nil {
		cancel()
		e.table.Delete(job)
		return err
	}
	if !streams(body) {
		defer cancel()
		defer e.table.Delete(job)
		select {
		case frame := <-ch:
			c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
			return c.Send(frame[1:])
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.Set(fiber.HeaderContentType, "text/event-stream")
	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer cancel()
		defer e.table.Delete(job)
		for {
			select {
			case frame := <-ch:
				if _, err := w.Write(frame[1:]); err != nil {
					return
				}
				if err := w.Flush(); err != nil || frame[0] == last {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// streams tells whether a body of the bench asks for a stream.
func streams(body []byte) bool { return bytes.Contains(body, []byte(`"stream":true`)) }

// Worker takes jobs to the engine until ctx ends.
func Worker(ctx context.Context, natsURL, engine string, slots int) error {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return fmt.Errorf("bare worker: %w", err)
	}
	defer nc.Close()
	js, err := open(ctx, nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: slots,
	})
	if err != nil {
		return fmt.Errorf("bare worker: %w", err)
	}
	w := &worker{nc: nc, url: "http://" + engine + "/v1/chat/completions", client: &http.Client{Transport: &http.Transport{
		MaxIdleConns: slots, MaxIdleConnsPerHost: slots, DisableCompression: true,
	}}}
	var running sync.WaitGroup
	consuming, err := consumer.Consume(func(m jetstream.Msg) { running.Go(func() { w.run(ctx, m) }) }, jetstream.PullMaxMessages(slots))
	if err != nil {
		return fmt.Errorf("bare worker: %w", err)
	}
	<-ctx.Done()
	consuming.Stop()
	running.Wait()
	return nil
}

type worker struct {
	nc     *nats.Conn
	url    string
	client *http.Client
}

func (w *worker) run(ctx context.Context, m jetstream.Msg) {
	to := frames + m.Headers().Get("Job")
	if err := w.answer(ctx, to, m.Data()); err != nil && ctx.Err() == nil {
		// The client of the bench sees an answer that is none, and counts it.
		_ = w.nc.Publish(to, []byte{last})
	}
	_ = m.Ack()
}

func (w *worker) answer(ctx context.Context, to string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("bare worker: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("bare worker: %w", err)
	}
	defer resp.Body.Close()
	if !streams(body) {
		whole, err := io.ReadAll(resp.Body)
		if err != nil {
			return fmt.Errorf("bare worker: %w", err)
		}
		return w.nc.Publish(to, append([]byte{last}, whole...))
	}
	in := bufio.NewReaderSize(resp.Body, 4<<10)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return w.nc.Publish(to, []byte{last})
		case err != nil:
			return fmt.Errorf("bare worker: %w", err)
		case len(line) <= 1 || len(line) > lineMax:
			continue
		}
		frame := append(append([]byte{more}, line...), '\n')
		if err := w.nc.Publish(to, frame); err != nil {
			return fmt.Errorf("bare worker: %w", err)
		}
	}
}
