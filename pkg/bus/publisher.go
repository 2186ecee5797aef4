package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/engy-ai/engy/pkg/fault"
)

// publisher sends messages to streams and hears whether they were stored. The
// library's own way takes a timer, a subject and two readings of JSON for each
// message; this one has one subject and one clock for all, and reads what the
// server answers when all is well by eye.
type publisher struct {
	nc     *nats.Conn
	prefix string // of reply subjects; a number follows
	sub    *nats.Subscription

	mu      sync.Mutex
	next    uint64
	pending map[uint64]waiting
	// order lists numbers oldest first; those that were answered are skipped.
	order []uint64
	empty chan struct{} // closed when nothing is pending, nil when nobody waits
}

// waiting is a message whose answer has not come.
type waiting struct {
	done func(stored, error)
	ends time.Time
}

// stored says where a message is.
type stored struct {
	seq uint64
	// twice tells that it was there already.
	twice bool
}

var (
	errUnanswered = fault.New(fault.Timeout, "the stream did not answer in time")
	errCutOff     = fault.New(fault.Unavailable, "the connection was lost before the stream answered")
	errFlooded    = fault.New(fault.Unavailable, "too many messages wait for their stream")
)

func newPublisher(nc *nats.Conn) (*publisher, error) {
	p := &publisher{nc: nc, prefix: nats.NewInbox() + ".", pending: map[uint64]waiting{}}
	var err error
	if p.sub, err = nc.Subscribe(p.prefix+"*", p.answered); err != nil {
		return nil, translate(err)
	}
	return p, nil
}

// publish sends a message that its stream keeps once for its id. Unless it gives
// an error, it calls done once, on another goroutine: when the message is stored,
// was refused, or was not answered within publishTimeout. Done must not block.
func (p *publisher) publish(subj, id string, raw []byte, done func(stored, error)) error {
	p.mu.Lock()
	if len(p.pending) >= publishPendingMax {
		p.mu.Unlock()
		return errFlooded
	}
	p.next++
	n := p.next
	p.pending[n] = waiting{done, time.Now().Add(publishTimeout)}
	p.order = append(p.order, n)
	p.mu.Unlock()
	msg := &nats.Msg{
		Subject: subj, Reply: p.prefix + strconv.FormatUint(n, 36), Data: raw,
		Header: nats.Header{nats.MsgIdHdr: []string{id}},
	}
	if err := p.nc.PublishMsg(msg); err != nil {
		if _, ok := p.take(n); !ok {
			return nil // done has been told of the lost connection
		}
		return translate(err)
	}
	return nil
}

// take removes what is pending under a number.
func (p *publisher) take(n uint64) (waiting, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.pending[n]
	delete(p.pending, n)
	p.settled()
	return w, ok
}

// settled tells who waits that nothing is pending. The lock is held.
func (p *publisher) settled() {
	if len(p.pending) > 0 {
		return
	}
	p.order = p.order[:0]
	if p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

func (p *publisher) answered(m *nats.Msg) {
	n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, p.prefix), 36, 64)
	if err != nil {
		return
	}
	if w, ok := p.take(n); ok {
		w.done(readStored(m))
	}
}

// readStored reads a stream's answer (NATS ADR-22).
func readStored(m *nats.Msg) (stored, error) {
	if len(m.Data) == 0 {
		return stored{}, nats.ErrNoResponders
	}
	// {"stream":"NAME","seq":17}
	if _, rest, ok := bytes.Cut(m.Data, []byte(`,"seq":`)); ok && bytes.HasPrefix(m.Data, []byte(`{"stream":"`)) {
		if digits, ok := bytes.CutSuffix(rest, []byte("}")); ok {
			if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
				return stored{seq: seq}, nil
			}
		}
	}
	var a struct {
		Error     *jetstream.APIError `json:"error"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	switch err := json.Unmarshal(m.Data, &a); {
	case err != nil:
		return stored{}, fault.New(fault.Unavailable, "the stream's answer cannot be read")
	case a.Error != nil:
		return stored{}, a.Error
	}
	return stored{seq: a.Sequence, twice: a.Duplicate}, nil
}

// expire ends what is not answered in time, until stop is closed.
func (p *publisher) expire(stop <-chan struct{}) {
	tick := time.NewTicker(publishTimeout / 20)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			p.fail(errUnanswered, func(w waiting) bool { return now.After(w.ends) })
		case <-stop:
			return
		}
	}
}

// cutOff ends everything that is pending: its answers went to a connection that
// is gone.
func (p *publisher) cutOff() { p.fail(errCutOff, func(waiting) bool { return true }) }

// fail ends the oldest messages as long as they are due.
func (p *publisher) fail(cause error, due func(waiting) bool) {
	var over []waiting
	p.mu.Lock()
	for len(p.order) > 0 {
		n := p.order[0]
		w, ok := p.pending[n]
		if ok && !due(w) {
			break
		}
		if ok {
			over = append(over, w)
			delete(p.pending, n)
		}
		p.order = p.order[1:]
	}
	p.settled()
	p.mu.Unlock()
	for _, w := range over {
		w.done(stored{}, cause)
	}
}

// wait waits until nothing is pending, and gives how many messages are when it
// has waited too long.
func (p *publisher) wait(most time.Duration) int {
	p.mu.Lock()
	if len(p.pending) == 0 {
		p.mu.Unlock()
		return 0
	}
	if p.empty == nil {
		p.empty = make(chan struct{})
	}
	empty := p.empty
	p.mu.Unlock()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-empty:
		return 0
	case <-late.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

// queueFull tells whether a stream refused a message because of its bounds.
func queueFull(err error) bool {
	const code jetstream.ErrorCode = 10077
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}
