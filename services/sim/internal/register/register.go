// Package register knows which requests are running and what became of the
// others.
//
// What lives here: the running requests by id, so that they can be aborted, the
// counters behind the metrics, and the request bodies that a test asked to
// keep. What does not: any decision about a request. The invariant: every Start
// that succeeds is matched by one End, and Running is exactly the number
// between the two. To count something new, add it to Counts.
package register

import (
	"context"
	"errors"
	"sync"
)

// ErrAborted is the cause of a request ended by an abort call.
var ErrAborted = errors.New("aborted by request")

// ErrBusy and ErrTwice are the two reasons not to start.
var (
	ErrBusy  = errors.New("every slot is taken")
	ErrTwice = errors.New("a request with this id is running")
)

// Outcome is how a request ended.
type Outcome int

// The outcomes. A request that was turned away never ran.
const (
	Finished Outcome = iota // answered in full, or cut as a directive asked
	Aborted                 // the client left, or an abort call came
)

// Counts is the state of the register. The json names are those of
// /sim/requests.
type Counts struct {
	Running  int   `json:"running"`
	Total    int64 `json:"total"`
	Finished int64 `json:"finished"`
	Aborted  int64 `json:"aborted"`
	Refused  int64 `json:"refused"`
	// PromptTokens, CachedTokens and CompletionTokens sum over all requests that
	// ran; the last one counts what was really made, not what was asked for.
	PromptTokens     int64 `json:"prompt_tokens"`
	CachedTokens     int64 `json:"cached_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// Register is safe for concurrent use.
type Register struct {
	slots  int
	bodies int
	bytes  int

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
	models  map[string]int
	counts  Counts
	kept    map[string][]byte
	order   []string
	held    int
}

// New returns a register that runs at most slots requests at once and keeps at
// most so many bodies and bytes.
func New(slots, bodies, bytes int) *Register {
	return &Register{
		slots: slots, bodies: bodies, bytes: bytes,
		running: make(map[string]context.CancelCauseFunc),
		models:  make(map[string]int),
		kept:    make(map[string][]byte),
	}
}

// Refused counts a request that was turned away.
func (r *Register) Refused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Total++
	r.counts.Refused++
}

// Start takes a slot for a request. It fails with ErrBusy or ErrTwice, and then
// counts nothing.
func (r *Register) Start(id, model string, cancel context.CancelCauseFunc) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.running) >= r.slots {
		return ErrBusy
	}
	if _, ok := r.running[id]; ok {
		return ErrTwice
	}
	r.running[id] = cancel
	r.models[model]++
	r.counts.Total++
	return nil
}

// Work is what a request did while it held its slot.
type Work struct {
	Outcome                    Outcome
	Refused                    bool // it turned out to be wrong before any token
	Prompt, Cached, Completion int
}

// End gives the slot back.
func (r *Register) End(id, model string, w Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, id)
	r.models[model]--
	switch {
	case w.Refused:
		r.counts.Refused++
	case w.Outcome == Aborted:
		r.counts.Aborted++
	default:
		r.counts.Finished++
	}
	r.counts.PromptTokens += int64(w.Prompt)
	r.counts.CachedTokens += int64(w.Cached)
	r.counts.CompletionTokens += int64(w.Completion)
}

// Abort ends a running request; it reports whether there was one.
func (r *Register) Abort(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cancel, ok := r.running[id]
	if ok {
		cancel(ErrAborted)
	}
	return ok
}

// AbortAll ends every running request for the given cause.
func (r *Register) AbortAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.running {
		cancel(cause)
	}
}

// Counts gives the counters as they are now.
func (r *Register) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Running = len(r.running)
	return c
}

// Running counts the running requests of a model.
func (r *Register) Running(model string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.models[model]
}

// Keep stores a body under a name, in place of an earlier one. When the bounds
// are reached the oldest leave; a body larger than all the room is not kept.
func (r *Register) Keep(name string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(name)
	if len(body) > r.bytes {
		return
	}
	for len(r.order) >= r.bodies || r.held+len(body) > r.bytes {
		r.drop(r.order[0])
	}
	r.kept[name] = body
	r.order = append(r.order, name)
	r.held += len(body)
}

// Kept gives the body stored under a name.
func (r *Register) Kept(name string) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, ok := r.kept[name]
	return body, ok
}

func (r *Register) drop(name string) {
	body, ok := r.kept[name]
	if !ok {
		return
	}
	r.held -= len(body)
	delete(r.kept, name)
	for i, n := range r.order {
		if n == name {
			r.order = append(r.order[:i], r.order[i+1:]...)
			return
		}
	}
}
