package runner

import (
	"sync"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/llm"
)

// batch joins the events of one attempt into frames. The first event of a
// stream leaves at once; after it, events that come within the window share a
// frame, so that only engines that are faster than the window are joined. An answer
// that nobody reads before its end leaves with it, in the message that is sent until
// it has arrived, unless it is long.
type batch struct {
	stream *bus.Stream
	window time.Duration
	// whole tells that nobody reads before the end: pieces of text may become
	// one.
	whole bool

	mu      sync.Mutex
	pending []llm.Event
	// joined is the text of the last pending event, when whole.
	joined []byte
	bytes  int
	sent   time.Time // when the last frame left
	timer  *time.Timer
	armed  bool
	closed bool
	err    error
}

func newBatch(s *bus.Stream, streamed bool) *batch {
	return &batch{stream: s, window: StreamWindow, whole: !streamed}
}

// add is an llm.Sink. Texts that would not fit a message are cut between
// characters.
func (b *batch) add(e llm.Event) error {
	for len(e.Text) > textBytesMax {
		n := textBytesMax
		for n > 0 && e.Text[n]&0xC0 == 0x80 {
			n--
		}
		head := e
		head.Text = e.Text[:n]
		if err := b.push(head); err != nil {
			return err
		}
		e.Text, e.Logprobs = e.Text[n:], nil
		if e.Call != nil {
			e.Call = &llm.CallDelta{Index: e.Call.Index}
		}
	}
	return b.push(e)
}

func (b *batch) push(e llm.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.bytes += len(e.Text) + len(e.Logprobs)
	if b.whole && b.joins(&e) {
		b.joined = append(b.joined, e.Text...)
	} else {
		b.join()
		b.pending = append(b.pending, e)
		if b.whole {
			b.joined = append(b.joined[:0], e.Text...)
		}
	}
	wait := b.window - time.Since(b.sent)
	if len(b.pending) >= batchEvents || b.bytes >= batchBytes || !b.whole && wait <= 0 {
		b.flush()
		return b.err
	}
	if !b.whole && !b.armed {
		b.armed = true
		if b.timer == nil {
			b.timer = time.AfterFunc(wait, b.ring)
		} else {
			b.timer.Reset(wait)
		}
	}
	return nil
}

// joins tells whether an event and the last one may become one text.
func (b *batch) joins(e *llm.Event) bool {
	if len(b.pending) == 0 {
		return false
	}
	last := &b.pending[len(b.pending)-1]
	return last.Kind == e.Kind && (e.Kind == llm.Text || e.Kind == llm.Reasoning) &&
		len(last.Logprobs) == 0 && len(e.Logprobs) == 0 && len(b.joined)+len(e.Text) <= joinBytes
}

// join gives the last event its text.
func (b *batch) join() {
	if last := len(b.pending) - 1; last >= 0 && len(b.joined) > len(b.pending[last].Text) {
		b.pending[last].Text = string(b.joined)
	}
}

func (b *batch) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	if !b.closed && len(b.pending) > 0 {
		b.flush()
	}
}

// flush sends what is pending. The lock is held.
func (b *batch) flush() {
	b.sent = time.Now()
	b.join()
	if b.err = b.stream.Emit(b.pending); b.err == nil {
		b.pending, b.bytes = nil, 0
	}
}

// rest ends the batch and gives what has not been sent.
func (b *batch) rest() []llm.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.join()
	return b.pending
}
