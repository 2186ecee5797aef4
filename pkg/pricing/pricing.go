// Package pricing decides what an exchange costs. It is pure: Ceiling before
// the work, Charge after it, both from the same rates, and Charge is the only
// place that knows which outcomes are paid for. Accounts, holds and catalogue
// rows do not live here. A new kind of price is a field of Rates, a term in
// cost and a term in Ceiling.
//
// The rules of charge: a finished answer costs what it used; a client that
// leaves pays for what the engine produced until it stopped; an answer that
// failed on our side costs nothing; a refused request costs nothing.
package pricing

import (
	"fmt"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
)

// Rates are the prices of one model in micro-USD per million tokens, frozen in
// the ticket when the request is admitted.
type Rates struct {
	// Version names the price list that the rates came from.
	Version string     `json:"version"`
	Input   money.Rate `json:"input"`
	Output  money.Rate `json:"output"`
	// CachedInput is the price of prompt tokens that an engine found in its
	// cache.
	CachedInput money.Rate `json:"cached_input"`
}

// Free tells whether nothing costs anything.
func (r Rates) Free() bool { return r.Input == 0 && r.Output == 0 && r.CachedInput == 0 }

// Outcome is how a job ended, as far as money is concerned.
type Outcome string

const (
	Finished Outcome = "finished" // the answer was produced to its end
	Left     Outcome = "left"     // the client left; what was produced is paid
	Failed   Outcome = "failed"   // our side failed; free
	Refused  Outcome = "refused"  // never served; free
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome { return []Outcome{Finished, Left, Failed, Refused} }

// Ceiling is the most that a request may cost: the whole estimated prompt at
// the full input price, and the output limit.
func Ceiling(r Rates, promptTokens, outputTokens int64) (money.Micro, error) {
	return money.Total(
		money.Term{Units: promptTokens, Rate: max(r.Input, r.CachedInput)},
		money.Term{Units: outputTokens, Rate: r.Output},
	)
}

// Charge is what a job costs: zero unless the outcome is Finished or Left, else
// the fresh prompt, the cached prompt and the completion at their rates, added
// exactly and rounded once.
func Charge(r Rates, o Outcome, u llm.Usage) (money.Micro, error) {
	if o != Finished && o != Left {
		return 0, nil
	}
	if u.Cached > u.Prompt {
		return 0, fmt.Errorf("%d cached of %d prompt tokens: %w", u.Cached, u.Prompt, money.ErrRange)
	}
	return money.Total(
		money.Term{Units: u.Prompt - u.Cached, Rate: r.Input},
		money.Term{Units: u.Cached, Rate: r.CachedInput},
		money.Term{Units: u.Completion, Rate: r.Output},
	)
}
