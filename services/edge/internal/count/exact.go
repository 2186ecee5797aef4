package count

import (
	"context"
	"time"

	"github.com/engy-ai/engy/pkg/llm"
)

const (
	// Within is how long a count may take in all.
	Within = 50 * time.Millisecond
	// exactWithin is how much of it somebody else may take.
	exactWithin = 35 * time.Millisecond
	// slackAbove and slackBelow are how far beyond the bounds of a factor an exact
	// count may be, in tokens: templates begin with more or with less than usual.
	slackAbove = 512
	slackBelow = 64
)

// Exact counts the tokens of a prompt with the model's own tokenizer, within the
// life of ctx. An error says that it cannot, or not now.
type Exact func(ctx context.Context, model string, req *llm.Request) (int64, error)

// Count gives the exact count if it comes in time and is credible, else the
// estimate. Exact counts teach like those of finished requests. Prompts with
// images are estimated: tokenizers do not see them.
func (e *Estimator) Count(ctx context.Context, model string, req *llm.Request, exact Exact) int64 {
	s := Measure(req)
	estimate := e.Tokens(model, s)
	if s.Media > 0 || exact == nil {
		return estimate
	}
	ctx, cancel := context.WithTimeout(ctx, exactWithin)
	defer cancel()
	n, err := exact(ctx, model, req)
	if err != nil || !s.credible(n) {
		return estimate
	}
	e.Learn(model, s, n)
	return n
}

// credible tells whether a count may be true. Workers may belong to somebody
// else.
func (s Size) credible(n int64) bool {
	plain := s.plain()
	return n > 0 && float64(n) >= plain*factorMin-slackBelow && float64(n) <= plain*factorMax+slackAbove
}
