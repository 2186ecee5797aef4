package bus

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// An end of an attempt is a request whose answer may take long: it comes when the
// job is booked, and nobody waits for it but the worker's own books. So owners
// answer many at once: for each worker one message each BookedWindow, which
// lists the numbers of the ends that are booked.

// bookedToken ends the subject of such a message; numbers end the others.
const bookedToken = "-"

// receipts waits for the words of owners on the ends that a worker has sent.
type receipts struct {
	b      *Bus
	prefix string // of reply subjects; a number follows

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan receipt // of capacity 1
}

// receipt is an owner's word, or why there is none.
type receipt struct {
	booked bool
	err    error
}

func newReceipts(b *Bus) (*receipts, error) {
	r := &receipts{b: b, prefix: nats.NewInbox() + ".", waiting: map[uint64]chan receipt{}}
	if _, err := b.nc.Subscribe(r.prefix+"*", r.take); err != nil {
		return nil, translate(err)
	}
	return r, nil
}

// ask sends the end of an attempt, again each FinishAgain and on a new connection,
// and waits while ctx lives. It tells whether the job is booked; it may instead not be wanted.
func (r *receipts) ask(ctx context.Context, subj string, raw []byte) (booked bool, err error) {
	answer := make(chan receipt, 1)
	r.mu.Lock()
	r.next++
	n := r.next
	r.waiting[n] = answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.waiting, n)
		r.mu.Unlock()
	}()
	again := time.NewTicker(FinishAgain)
	defer again.Stop()
	for {
		link := r.b.link()
		if err := r.b.nc.PublishRequest(subj, r.prefix+strconv.FormatUint(n, 36), raw); err != nil {
			return false, err
		}
		select {
		case a := <-answer:
			return a.booked, a.err
		case <-link.Done():
		case <-again.C:
			// It, or its answer, may have been lost with a server of the bus.
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (r *receipts) take(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, r.prefix)
	if token == bookedToken {
		for n := range bytes.SplitSeq(m.Data, []byte(" ")) {
			r.tell(string(n), receipt{booked: true})
		}
		return
	}
	if len(m.Data) == 0 {
		r.tell(token, receipt{err: nats.ErrNoResponders})
		return
	}
	r.tell(token, receipt{}) // it is gone
}

func (r *receipts) tell(number string, a receipt) {
	n, err := strconv.ParseUint(number, 36, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	answer, ok := r.waiting[n]
	delete(r.waiting, n)
	r.mu.Unlock()
	if ok {
		answer <- a
	}
}

// bookings gathers what an owner has booked, by the worker that waits to hear it.
type bookings struct {
	b       *Bus
	mu      sync.Mutex
	numbers map[string][]byte // by the prefix of their reply subjects
	timer   *time.Timer
}

// add takes the reply subject of an end that is booked.
func (k *bookings) add(reply string) {
	at := strings.LastIndexByte(reply, '.') + 1
	prefix, number := reply[:at], reply[at:]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.numbers == nil {
		k.numbers = map[string][]byte{}
	}
	if len(k.numbers) == 0 {
		if k.timer == nil {
			k.timer = time.AfterFunc(BookedWindow, k.flush)
		} else {
			k.timer.Reset(BookedWindow)
		}
	}
	list := k.numbers[prefix]
	if len(list) > 0 {
		list = append(list, ' ')
	}
	k.numbers[prefix] = append(list, number...)
	if len(k.numbers[prefix]) >= bookedBytesMax {
		k.send(prefix)
	}
}

func (k *bookings) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for prefix := range k.numbers {
		k.send(prefix)
	}
}

// send tells one worker. The lock is held.
func (k *bookings) send(prefix string) {
	if err := k.b.nc.Publish(prefix+bookedToken, k.numbers[prefix]); err != nil {
		// Its worker reports the jobs, which changes nothing that is booked.
		k.b.log.Warn("answer not sent", "error", err)
	}
	delete(k.numbers, prefix)
}
