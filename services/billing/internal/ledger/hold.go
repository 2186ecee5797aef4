package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/ledger/dbsqlc"
)

// Hold decides a group of holds in one round trip, each against what those
// before it left, and answers them in the same order. The whole group takes
// effect or, with an error, none of it. Asking again for a job gives the same
// answer again, so a group whose fate is unknown may be repeated.
//
// A job may stand in a group once.
func (l *Ledger) Hold(ctx context.Context, group []bus.Hold) ([]bus.HoldAnswer, error) {
	answers := make([]bus.HoldAnswer, len(group))
	var fit []bus.Hold
	var asked []int
	for i, h := range group {
		if reason := unfit(h); reason != "" {
			answers[i] = bus.HoldAnswer{Code: fault.Invalid, Message: reason}
			continue
		}
		asked = append(asked, i)
		fit = append(fit, h)
	}
	if len(asked) == 0 {
		return answers, nil
	}
	got, err := dbsqlc.New(l.holds).TakeHolds(ctx, holdColumns(fit))
	if err != nil {
		return nil, fmt.Errorf("%d holds: %w", len(asked), pg.Translate(err))
	}
	if len(got) == 0 {
		// Everything fitted.
		for _, i := range asked {
			answers[i].Micro = group[i].Micro
		}
		return answers, nil
	}
	if len(got) != 2*len(asked) {
		return nil, fmt.Errorf("%d holds: %d numbers came back", len(asked), len(got))
	}
	for n, i := range asked {
		answers[i] = holdAnswer(got[2*n], money.Micro(got[2*n+1]))
	}
	if err := l.charges(ctx, group, answers); err != nil {
		return nil, err
	}
	l.open(ctx, group, answers)
	return answers, nil
}

// open tells of refusals whether the account has open holds. It is a hint, and stays
// away when the database fails.
func (l *Ledger) open(ctx context.Context, group []bus.Hold, answers []bus.HoldAnswer) {
	var accounts []string
	for i, a := range answers {
		if a.Code == fault.NoFunds || a.Code == fault.Busy {
			accounts = append(accounts, group[i].Account)
		}
	}
	if len(accounts) == 0 {
		return
	}
	holding, err := dbsqlc.New(l.holds).ListHolding(ctx, accounts)
	if err != nil {
		return
	}
	for i, a := range answers {
		answers[i].Open = (a.Code == fault.NoFunds || a.Code == fault.Busy) && slices.Contains(holding, group[i].Account)
	}
}

// charges tells of jobs that are settled what they cost.
func (l *Ledger) charges(ctx context.Context, group []bus.Hold, answers []bus.HoldAnswer) error {
	var jobs []string
	for i, a := range answers {
		if a.Settled {
			jobs = append(jobs, group[i].Job)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	charged, err := booked(ctx, l.books, jobs)
	if err != nil {
		return fmt.Errorf("%d settled jobs: %w", len(jobs), err)
	}
	for i := range answers {
		if answers[i].Settled {
			answers[i].Micro = charged[group[i].Job]
		}
	}
	return nil
}

// holdColumns turns a group into the arrays that the statement takes.
func holdColumns(group []bus.Hold) dbsqlc.TakeHoldsParams {
	var p dbsqlc.TakeHoldsParams
	named := make([]string, len(group))
	for i, h := range group {
		named[i] = h.Account
	}
	var accounts places[string]
	p.Accounts, accounts = sortedPlaces(named)
	keys := make(places[[2]string], len(group))
	for _, h := range group {
		p.Jobs = append(p.Jobs, toDBJob(h.Job))
		at, _ := accounts.of(h.Account)
		p.Places = append(p.Places, at)
		at, isNew := keys.of([2]string{h.Key, h.Account})
		if isNew {
			p.Keys = append(p.Keys, h.Key)
		}
		p.KeyPlaces = append(p.KeyPlaces, at)
		p.Models = append(p.Models, h.Model)
		p.Micros = append(p.Micros, int64(h.Micro))
		p.Floors = append(p.Floors, int64(h.FloorMicro))
		p.Raises = append(p.Raises, h.Raise)
		p.Expiries = append(p.Expiries, h.Expires)
		p.Versions = append(p.Versions, h.Rates.Version)
		p.Inputs = append(p.Inputs, int64(h.Rates.Input))
		p.Outputs = append(p.Outputs, int64(h.Rates.Output))
		p.Cacheds = append(p.Cacheds, int64(h.Rates.CachedInput))
	}
	return p
}

// unfit says why a hold cannot be asked of the database; empty when it can.
func unfit(h bus.Hold) string {
	switch {
	case !isJob(h.Job):
		return "job id is not 64 hex digits"
	case !isName(h.Account) || !isName(h.Key) || !isName(h.Model) || !areRates(h.Rates):
		return "hold cannot be stored"
	case h.Micro < 0 || h.FloorMicro < 0 || h.FloorMicro > h.Micro:
		return "amount out of range"
	case h.Expires.Before(time.Unix(0, 0)) || h.Expires.Year() > 9999:
		return "hold has no end"
	}
	return ""
}

// The numbers that take_holds answers.
const (
	held = iota
	noBalance
	overSpendLimit
	accountBusy
	keyBusy
	keyDead
	jobSettled
	otherKey
)

func holdAnswer(decided int64, micro money.Micro) bus.HoldAnswer {
	a := bus.HoldAnswer{Micro: micro}
	switch decided {
	case held:
	case noBalance:
		a.Code, a.Message = fault.NoFunds, "balance does not cover this request"
	case overSpendLimit:
		a.Code, a.Message = fault.NoFunds, "the key's spending limit does not cover this request"
	case accountBusy:
		a.Code, a.Message = fault.Busy, "too many requests of this account are under way"
	case keyBusy:
		a.Code, a.Message = fault.Busy, "too many requests of this key are under way"
	case keyDead:
		a.Code, a.Message = fault.Unauthorized, "key is not valid"
	case jobSettled:
		a.Code, a.Message, a.Settled = fault.Invalid, "request is settled", true
	case otherKey:
		a.Code, a.Message = fault.Invalid, "request belongs to another key"
	default:
		a.Code, a.Message = fault.Internal, "internal error"
	}
	return a
}
