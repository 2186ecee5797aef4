package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing/internal/ledger/dbsqlc"
)

// Source says which message ended a job.
type Source string

const (
	FromUsage  Source = "usage"  // the edge's usage event
	FromReport Source = "report" // a worker's report, its owner being dead
	FromSweep  Source = "sweep"  // nobody's: the hold ran out
)

// Ended is the end of a job, as its message tells it.
type Ended struct {
	Source  Source
	Usage   bus.Usage
	EndedAt time.Time
}

// Verdict is what became of an Ended.
type Verdict int

const (
	Booked         Verdict = iota
	Repeated               // settled before, with the same content
	Contradicted           // settled before, with other content: an alarm
	UnknownAccount         // an alarm
	ForeignHold            // the hold belongs to another account: an alarm
	Unbookable             // counts or rates are out of range: an alarm
)

// String names the verdict for logs and metrics.
func (v Verdict) String() string {
	return [...]string{"booked", "repeated", "contradicted", "unknown_account", "foreign_hold", "unbookable"}[v]
}

// Booking answers an Ended. The amounts are zero unless the verdict is Booked.
type Booking struct {
	Job     string
	Verdict Verdict
	Charged money.Micro
	// Shortfall is what should have been charged and could not be: an alarm
	// when it is not zero.
	Shortfall money.Micro
	Held      money.Micro
	// Doubt says why the message is not believed as it stands; empty when it
	// is. It is booked by the rule of the package all the same.
	Doubt string
}

// Settle books a batch of ends in one statement and answers them in the same
// order. An error means that nothing was booked that is not booked as a whole;
// the batch may be repeated, in any order and by anyone.
func (l *Ledger) Settle(ctx context.Context, batch []Ended) ([]Booking, error) {
	bookings := make([]Booking, len(batch))
	var todo []int
	for i, e := range batch {
		bookings[i] = Booking{Job: e.Usage.Job, Verdict: Unbookable, Doubt: "counts, rates or names out of range"}
		if bookable(e) {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		// The statement takes a job once; its repetitions form the next round
		// and find it settled.
		now, later := firstOfEach(batch, todo)
		if err := l.settleEach(ctx, batch, now, bookings); err != nil {
			return nil, err
		}
		todo = later
	}
	return bookings, nil
}

func firstOfEach(batch []Ended, todo []int) (now, later []int) {
	seen := make(map[string]bool, len(todo))
	for _, i := range todo {
		if job := batch[i].Usage.Job; seen[job] {
			later = append(later, i)
		} else {
			seen[job] = true
			now = append(now, i)
		}
	}
	return now, later
}

// settleEach books the ends at the given places. If the database refuses the
// content of one, halves are tried, so that the others are booked all the same.
func (l *Ledger) settleEach(ctx context.Context, batch []Ended, places []int, bookings []Booking) error {
	err := l.settleOnce(ctx, batch, places, bookings)
	if err == nil || len(places) == 1 || passing(err) {
		return err
	}
	half := len(places) / 2
	first := l.settleEach(ctx, batch, places[:half], bookings)
	if second := l.settleEach(ctx, batch, places[half:], bookings); first == nil {
		first = second
	}
	return first
}

// passing tells whether an error has to do with the moment, not the content.
func passing(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Busy) || fault.Is(err, fault.Timeout)
}

func (l *Ledger) settleOnce(ctx context.Context, batch []Ended, places []int, bookings []Booking) error {
	p := newColumns(batch, places)
	doubts := make([]string, len(places))
	for n, i := range places {
		e := batch[i]
		u, doubt := clamp(e.Usage)
		price, err := pricing.Charge(u.Rates, u.Outcome, u.Tokens)
		if err != nil {
			return fmt.Errorf("settle %s: %w", u.Job, err)
		}
		if e.Source == FromUsage && doubt == "" && u.ChargedMicro > price {
			doubt = fmt.Sprintf("caller was told %d, price is %d", u.ChargedMicro, price)
		}
		doubts[n] = doubt
		p.add(e.Source, u, e.EndedAt, min(price, u.ChargedMicro))
	}
	got, err := dbsqlc.New(l.books).SettleJobs(ctx, p.SettleJobsParams)
	if err != nil {
		return fmt.Errorf("settle %d jobs: %w", len(places), pg.Translate(err))
	}
	if len(got) != 4*len(places) {
		return fmt.Errorf("settle %d jobs: %d numbers came back", len(places), len(got))
	}
	size := len(places)
	decided, charged, short, held := got[:size], got[size:2*size], got[2*size:3*size], got[3*size:]
	for n, i := range places {
		b := Booking{
			Job: batch[i].Usage.Job, Verdict: Verdict(decided[n]), Charged: money.Micro(charged[n]),
			Shortfall: money.Micro(short[n]), Held: money.Micro(held[n]), Doubt: doubts[n],
		}
		if b.Verdict == Booked && b.Doubt == "" {
			b.Doubt = belowPrice(batch[i], b)
		}
		bookings[i] = b
	}
	return nil
}

// belowPrice doubts an edge that told its caller less than the price, unless
// it stopped at the hold, which is its right.
func belowPrice(e Ended, b Booking) string {
	u, _ := clamp(e.Usage)
	price, err := pricing.Charge(u.Rates, u.Outcome, u.Tokens)
	if err != nil || e.Source != FromUsage || u.ChargedMicro >= price || u.ChargedMicro == b.Held {
		return ""
	}
	return fmt.Sprintf("caller was told %d, price is %d, hold was %d", u.ChargedMicro, price, b.Held)
}

// columns are the arrays that the statement takes, one a column.
type columns struct {
	dbsqlc.SettleJobsParams
	accounts places[string]
}

func newColumns(batch []Ended, places []int) *columns {
	named := make([]string, len(places))
	for n, i := range places {
		named[n] = batch[i].Usage.Account
	}
	p := &columns{}
	p.Accounts, p.accounts = sortedPlaces(named)
	return p
}

func (p *columns) add(source Source, u bus.Usage, at time.Time, charge money.Micro) {
	reasoning := int64(-1) // not counted
	if u.Tokens.Reasoning != nil {
		reasoning = *u.Tokens.Reasoning
	}
	p.Jobs = append(p.Jobs, toDBJob(u.Job))
	place, _ := p.accounts.of(u.Account)
	p.Places = append(p.Places, place)
	p.Keys = append(p.Keys, u.Key)
	p.Models = append(p.Models, u.Model)
	p.Regions = append(p.Regions, u.Region)
	p.Routes = append(p.Routes, u.Route)
	p.Outcomes = append(p.Outcomes, string(u.Outcome))
	p.Sources = append(p.Sources, string(source))
	p.Workers = append(p.Workers, u.Worker)
	p.Attempts = append(p.Attempts, int64(u.Attempt))
	p.Prompts = append(p.Prompts, u.Tokens.Prompt)
	p.Cacheds = append(p.Cacheds, u.Tokens.Cached)
	p.Completions = append(p.Completions, u.Tokens.Completion)
	p.Reasonings = append(p.Reasonings, reasoning)
	p.Versions = append(p.Versions, u.Rates.Version)
	p.RateInputs = append(p.RateInputs, int64(u.Rates.Input))
	p.RateOutputs = append(p.RateOutputs, int64(u.Rates.Output))
	p.RateCacheds = append(p.RateCacheds, int64(u.Rates.CachedInput))
	p.Claims = append(p.Claims, int64(u.ChargedMicro))
	p.Charges = append(p.Charges, int64(charge))
	p.FirstBytes = append(p.FirstBytes, u.FirstByteMS)
	p.Totals = append(p.Totals, u.TotalMS)
	p.Ends = append(p.Ends, at)
}

// clamp makes cached at most prompt; more than that cannot be.
func clamp(u bus.Usage) (bus.Usage, string) {
	if u.Tokens.Cached <= u.Tokens.Prompt {
		return u, ""
	}
	doubt := fmt.Sprintf("%d cached of %d prompt tokens", u.Tokens.Cached, u.Tokens.Prompt)
	u.Tokens.Cached = u.Tokens.Prompt
	return u, doubt
}

// bookable tells whether the database can take the message at all.
func bookable(e Ended) bool {
	u := e.Usage
	for _, s := range []string{u.Account, u.Key, u.Model, u.Region, u.Route, u.Worker} {
		if !isName(s) {
			return false
		}
	}
	counts := []int64{u.Tokens.Prompt, u.Tokens.Cached, u.Tokens.Completion, int64(u.Attempt)}
	if r := u.Tokens.Reasoning; r != nil {
		counts = append(counts, *r)
	}
	for _, n := range counts {
		if n < 0 || n > tokensMax {
			return false
		}
	}
	if !isJob(u.Job) || !areRates(u.Rates) || u.ChargedMicro < 0 || !known(u.Outcome) {
		return false
	}
	clamped, _ := clamp(u)
	_, err := pricing.Charge(u.Rates, u.Outcome, clamped.Tokens)
	return err == nil
}

func known(o pricing.Outcome) bool {
	for _, k := range pricing.Outcomes() {
		if o == k {
			return true
		}
	}
	return false
}

// ByUsage is the end that an edge's usage event tells.
func ByUsage(e bus.UsageEvent) Ended {
	return Ended{Source: FromUsage, Usage: e.Data, EndedAt: e.Time}
}

// ByReport is the end that a worker's report tells of a job whose owner died.
// A worker may belong to somebody else and is believed only so far: cached is at
// most the prompt, and the charge at most the hold.
func ByReport(h OpenHold, r bus.Report) (Ended, error) {
	u := bus.Usage{
		Job: h.Job, Account: h.Account, Key: h.Key, Model: h.Model, Worker: r.Worker,
		Attempt: r.Attempt, Outcome: r.Outcome, Tokens: plausible(r.Tokens), Rates: h.Rates,
	}
	if !known(u.Outcome) {
		u.Outcome = pricing.Failed
	}
	price, err := pricing.Charge(u.Rates, u.Outcome, u.Tokens)
	if err != nil {
		return Ended{}, fmt.Errorf("report of %s: %w", h.Job, err)
	}
	u.ChargedMicro = min(price, h.Micro)
	return Ended{Source: FromReport, Usage: u, EndedAt: r.Time}, nil
}

// plausible bounds the counts of a report to what can be counted.
func plausible(u llm.Usage) llm.Usage {
	within := func(n, most int64) int64 { return min(max(n, 0), most) }
	u.Prompt = within(u.Prompt, tokensMax)
	u.Cached = within(u.Cached, u.Prompt)
	u.Completion = within(u.Completion, tokensMax)
	if u.Reasoning != nil {
		r := within(*u.Reasoning, u.Completion)
		u.Reasoning = &r
	}
	return u
}

// ByExpiry is the end of a job that nobody told of: its hold goes back whole.
func ByExpiry(h OpenHold, now time.Time) Ended {
	return Ended{Source: FromSweep, EndedAt: now, Usage: bus.Usage{
		Job: h.Job, Account: h.Account, Key: h.Key, Model: h.Model, Outcome: pricing.Refused, Rates: h.Rates,
	}}
}
