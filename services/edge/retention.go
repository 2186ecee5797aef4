package edge

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/retain"
)

// Retention says where exchanges are kept whose owners allow it, read from the
// environment under EDGE_RETAIN_. Without a URL nothing is ever kept.
type Retention struct {
	// URL is an object store, file:///path or s3://bucket.
	URL string `env:"URL"`
	// Recipient is the operator's age public key. This edge cannot open what it
	// seals with it.
	Recipient string `env:"RECIPIENT"`
	// For is how long a record is kept.
	For time.Duration `env:"FOR" envDefault:"720h"`
}

// keeper writes records beside the answers: a store that is slow or gone costs
// records, never an answer.
type keeper struct {
	store *retain.Store
	log   *slog.Logger
	life  time.Duration
	// bytes bounds what is being written.
	bytes *semaphore.Weighted
}

func newKeeper(ctx context.Context, cfg Retention, log *slog.Logger) (*keeper, error) {
	if cfg.URL == "" {
		return nil, nil
	}
	if cfg.Recipient == "" {
		return nil, fault.New(fault.Invalid, "EDGE_RETAIN_URL needs EDGE_RETAIN_RECIPIENT, the key that records are sealed with")
	}
	store, err := retain.Open(ctx, cfg.URL, cfg.Recipient)
	if err != nil {
		return nil, err
	}
	return &keeper{store: store, log: log, life: cfg.For, bytes: semaphore.NewWeighted(RetainBytesMax)}, nil
}

// wants tells whether an exchange may be kept: its owner has said so for the
// request or for the account, and the request does not say no.
func (k *keeper) wants(p bus.Principal, policy llm.Policy) bool {
	if k == nil || policy.ZDR || policy.Collect == "deny" {
		return false
	}
	return policy.Collect == "allow" || p.Retain
}

// kept is what is gathered of an exchange that will be kept.
type kept struct {
	prompt json.RawMessage
	answer llm.Fold
}

// add takes the events that the caller gets.
func (k *kept) add(events []llm.Event) {
	if k == nil {
		return
	}
	for _, e := range events {
		// What does not fit an answer is refused on its way to the caller, too.
		_ = k.answer.Add(e)
	}
}

// keep writes the record of an exchange that is settled.
func (k *keeper) keep(ctx context.Context, u bus.Usage, began time.Time, what *kept) {
	answer := what.answer.SoFar()
	size := min(RetainBytesMax, int64(len(what.prompt)+2*len(answer.Text)+2*len(answer.Reasoning)+4096))
	if !k.bytes.TryAcquire(size) {
		k.log.Error("ALARM: record not kept, the store is too slow", "request", u.Job)
		return
	}
	defer k.bytes.Release(size)
	ctx, cancel := context.WithTimeout(ctx, RetainWait)
	defer cancel()
	err := k.store.Keep(ctx, retain.Record{
		Request: u.Job, Account: u.Account, Key: u.Key, Model: u.Model, Route: u.Route, Time: began.UTC(),
		Outcome: string(u.Outcome), Tokens: u.Tokens, Prompt: what.prompt, Answer: answer,
	})
	if err != nil {
		k.log.Error("ALARM: record not kept", "request", u.Job, "error", err)
	}
}

// expire erases old records until ctx ends. Every edge does: what another has
// erased is erased.
func (k *keeper) expire(ctx context.Context) error {
	if k == nil {
		return nil
	}
	tick := time.NewTicker(RetainEvery)
	defer tick.Stop()
	for {
		n, err := k.store.Expire(ctx, time.Now().Add(-k.life))
		switch {
		case err != nil && ctx.Err() == nil:
			k.log.Warn("records not expired", "error", err)
		case n > 0:
			k.log.Info("records expired", "count", n)
		}
		if n == retain.ListMax {
			continue // there is more
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (k *keeper) close() {
	if k == nil {
		return
	}
	if err := k.store.Close(); err != nil {
		k.log.Warn("retention store not closed", "error", err)
	}
}
