// Package count estimates how many tokens a prompt has, without a tokenizer and
// without asking anybody. Vocabularies differ, so there is one rule for all of
// them and a factor for each model, which finished requests teach: engines tell
// what their prompts really had. Estimates err high, since agents that are told
// too little shorten their conversation too late. Nothing of a prompt is kept,
// only its sizes pass through here.
package count

import (
	"math"
	"sync"

	"github.com/engy-ai/engy/pkg/llm"
)

const (
	// MediaTokens is what an image or a sound counts for, whatever its size.
	MediaTokens = 1024

	// Chat templates put something around all of a prompt, around each turn and
	// around each tool, and introduce the tools if there are any.
	promptTokens = 8
	itemTokens   = 4
	toolTokens   = 8
	toolsTokens  = 64

	// factorUnknown stands for a model that nothing has been learned of.
	factorUnknown = 1.1
	// A factor stays between these. A worker that counts wrongly does not bend
	// the estimates of everybody.
	factorMin = 0.5
	factorMax = 2.0
	// share is how much of the average one request is, once there were enough.
	share = 1.0 / 16
	// learnFrom is the least estimate that teaches. In shorter prompts the
	// template weighs more than the text.
	learnFrom = 256
	// ModelsMax bounds the models that are remembered.
	ModelsMax = 1024
)

// Size is what an estimate is made of.
type Size struct {
	// Text is what the characters weigh, in thousandths of a token.
	Text int64
	// Items, Tools and Media count turns, tools, and images and sounds.
	Items, Tools, Media int64
}

// Measure gives the size of a prompt. It takes one to two nanoseconds a byte.
func Measure(r *llm.Request) Size {
	s := Size{Items: int64(len(r.Items)), Tools: int64(len(r.Tools))}
	for i := range r.Items {
		it := &r.Items[i]
		s.Text += weigh(it.Reasoning) + weigh(it.Name)
		for j := range it.Parts {
			if it.Parts[j].Media != nil {
				s.Media++
				continue
			}
			s.Text += weighVerbatim(it.Parts[j].Text)
		}
		for j := range it.Calls {
			s.Text += weigh(it.Calls[j].Name) + weigh(it.Calls[j].Arguments)
		}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		s.Text += weigh(t.Name) + weigh(t.Description) + weigh(t.Schema)
	}
	return s
}

// plain is the estimate by the one rule, in tokens.
func (s Size) plain() float64 {
	n := promptTokens + itemTokens*s.Items + toolTokens*s.Tools + MediaTokens*s.Media
	if s.Tools > 0 {
		n += toolsTokens
	}
	return float64(n) + float64(s.Text)/1000
}

// Estimator knows the factors of models. The zero value is ready, and may be
// used from many goroutines.
type Estimator struct {
	mu     sync.Mutex
	models map[string]factor
}

// factor is a moving average of true counts over estimates, and of how far they
// stray from it.
type factor struct {
	mean, stray float64
	learned     int
}

// Tokens estimates a prompt for a model.
func (e *Estimator) Tokens(model string, s Size) int64 {
	e.mu.Lock()
	f, ok := e.models[model]
	e.mu.Unlock()
	by := factorUnknown
	if ok {
		by = min(max(f.mean+f.stray, factorMin), factorMax)
	}
	return int64(math.Ceil(s.plain() * by))
}

// Learn takes what an engine counted for a prompt. Prompts with images teach
// nothing: their tokens depend on what is not measured.
func (e *Estimator) Learn(model string, s Size, tokens int64) {
	plain := s.plain()
	if s.Media > 0 || plain < learnFrom || tokens < 1 {
		return
	}
	ratio := min(max(float64(tokens)/plain, factorMin), factorMax)
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.models[model]
	switch {
	case !ok && len(e.models) >= ModelsMax:
		return
	case !ok:
		// The first is taken for one of many, and strays as estimates do.
		f = factor{mean: ratio, stray: factorUnknown - 1}
	}
	f.learned++
	part := max(share, 1/float64(f.learned+1))
	f.stray += part * (math.Abs(ratio-f.mean) - f.stray)
	f.mean += part * (ratio - f.mean)
	if e.models == nil {
		e.models = map[string]factor{}
	}
	e.models[model] = f
}
