package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/engy-ai/engy/pkg/fault"
)

// TokensAnswer is a worker's word on how long a prompt is. The question before
// it is a prompt in the form of a job's body. Nothing runs and nothing is stored.
type TokensAnswer struct {
	// Tokens is 0 when the worker cannot tell, or not now.
	Tokens int64 `json:"tokens"`
}

// CountTokens has a worker's tokenizer count a prompt of at most PromptBytesMax,
// within the life of ctx.
func (b *Bus) CountTokens(ctx context.Context, worker string, prompt []byte) (int64, error) {
	if len(prompt) > PromptBytesMax {
		return 0, fault.New(fault.TooLarge, "the prompt is too large to be counted by a worker")
	}
	subj, err := subject(tokensPrefix, worker)
	if err != nil {
		return 0, err
	}
	msg, err := b.nc.RequestWithContext(ctx, subj, prompt)
	if err != nil {
		return 0, fmt.Errorf("tokens at %s: %w", worker, translate(err))
	}
	var a TokensAnswer
	if err := Unmarshal(msg.Data, &a); err != nil {
		return 0, fmt.Errorf("tokens at %s: %w", worker, err)
	}
	if a.Tokens < 1 {
		return 0, fault.New(fault.Busy, "the worker cannot count the prompt now")
	}
	return a.Tokens, nil
}

// ServeTokens answers for a worker until ctx ends. At most countsMax prompts are
// counted at once; the rest is told at once that it is not.
func (b *Bus) ServeTokens(ctx context.Context, worker string, count func(ctx context.Context, prompt []byte) (int64, error)) error {
	subj, err := subject(tokensPrefix, worker)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, countsMax)
	var counting sync.WaitGroup
	sub, err := b.nc.Subscribe(subj, func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		default:
			b.tokens(m, 0)
			return
		}
		counting.Go(func() {
			n, err := count(ctx, m.Data)
			if err != nil {
				n = 0
			}
			// Who hears the answer may ask the next question.
			<-slots
			b.tokens(m, n)
		})
	})
	if err != nil {
		return fmt.Errorf("tokens at %s: %w", worker, translate(err))
	}
	<-ctx.Done()
	_ = sub.Unsubscribe()
	// Who has all slots knows that nobody begins to count any more.
	for range countsMax {
		slots <- struct{}{}
	}
	counting.Wait()
	return nil
}

func (b *Bus) tokens(m *nats.Msg, n int64) {
	raw, err := Marshal(TokensAnswer{Tokens: n})
	if err == nil {
		err = m.Respond(raw)
	}
	if err != nil {
		b.log.Warn("count not answered", "error", err)
	}
}
