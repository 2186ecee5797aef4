package pricing_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

func TestChargeIsExactForTheWrittenCases(t *testing.T) {
	t.Parallel()
	cached := pricing.Rates{Input: 1_000_000, CachedInput: 100_000, Output: 4_000_000}
	list, err := pricing.Default()
	require.NoError(t, err)
	kimi, _ := list.Of("kimi-k3")
	for _, c := range []struct {
		name  string
		rates pricing.Rates
		usage llm.Usage
		want  money.Micro
	}{
		{"cached prompt tokens cost less", cached, llm.Usage{Prompt: 2454, Cached: 2450, Completion: 23}, 341},
		{"a product that a float would cut", pricing.Rates{Input: 290_000}, llm.Usage{Prompt: 100}, 29},
		{"less than half a micro is free", pricing.Rates{Input: 100_000}, llm.Usage{Prompt: 3}, 0},
		{"half a micro is one", pricing.Rates{Input: 100_000}, llm.Usage{Prompt: 5}, 1},
		{
			"the sum is rounded, not its terms",
			pricing.Rates{Input: 600_000, CachedInput: 600_000, Output: 600_000},
			llm.Usage{Prompt: 2, Cached: 1, Completion: 1},
			2,
		},
		{"a million of each at list price", kimi, llm.Usage{Prompt: 2_000_000, Cached: 1_000_000, Completion: 1_000_000}, 11_895_000},
		{"nothing used", kimi, llm.Usage{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, o := range pricing.Outcomes() {
				got, err := pricing.Charge(c.rates, o, c.usage)
				require.NoError(t, err)
				if o == pricing.Finished || o == pricing.Left {
					require.Equal(t, c.want, got, o)
				} else {
					require.Zero(t, got, o)
				}
			}
		})
	}
}

func TestSmallChargesAddUpToTheirRoundedValue(t *testing.T) {
	t.Parallel()
	var sum money.Micro
	for range 1000 {
		one, err := pricing.Charge(pricing.Rates{Input: 100_000}, pricing.Finished, llm.Usage{Prompt: 3})
		require.NoError(t, err)
		sum += one
	}
	require.Zero(t, sum)
}

func TestImpossibleUsageIsAnError(t *testing.T) {
	t.Parallel()
	rates := pricing.Rates{Input: 1, CachedInput: 1, Output: 1}
	for name, u := range map[string]llm.Usage{
		"more cached than prompt": {Prompt: 1, Cached: 2},
		"a negative prompt":       {Prompt: -1, Cached: -1},
		"a negative cache":        {Prompt: 1, Cached: -1},
		"a negative completion":   {Completion: -1},
	} {
		_, err := pricing.Charge(rates, pricing.Finished, u)
		require.ErrorIs(t, err, money.ErrRange, name)
	}
	_, err := pricing.Charge(pricing.Rates{Output: math.MaxInt64}, pricing.Left, llm.Usage{Completion: math.MaxInt64})
	require.ErrorIs(t, err, money.ErrRange)
}

func TestCeilingPricesTheWholePromptAtTheDearerRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rates pricing.Rates
		want  money.Micro
	}{
		{pricing.Rates{Input: 1_000_000, CachedInput: 100_000, Output: 4_000_000}, 500},
		{pricing.Rates{Input: 100_000, CachedInput: 1_000_000, Output: 4_000_000}, 500},
		{pricing.Rates{}, 0},
	} {
		got, err := pricing.Ceiling(c.rates, 100, 100)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := pricing.Ceiling(pricing.Rates{Output: 1}, 0, -1)
	require.ErrorIs(t, err, money.ErrRange)
}

func TestNoChargeExceedsItsCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(0, int64(pricing.RateMax))
		tokens := rapid.Int64Range(0, 1<<24)
		r := pricing.Rates{
			Input:       money.Rate(rate.Draw(t, "input")),
			Output:      money.Rate(rate.Draw(t, "output")),
			CachedInput: money.Rate(rate.Draw(t, "cached")),
		}
		promptMax, outputMax := tokens.Draw(t, "prompt bound"), tokens.Draw(t, "output bound")
		u := llm.Usage{
			Prompt:     rapid.Int64Range(0, promptMax).Draw(t, "prompt"),
			Completion: rapid.Int64Range(0, outputMax).Draw(t, "completion"),
		}
		u.Cached = rapid.Int64Range(0, u.Prompt).Draw(t, "of it cached")

		ceiling, err := pricing.Ceiling(r, promptMax, outputMax)
		require.NoError(t, err)
		charge, err := pricing.Charge(r, rapid.SampledFrom(pricing.Outcomes()).Draw(t, "outcome"), u)
		require.NoError(t, err)
		require.LessOrEqual(t, charge, ceiling)
		require.GreaterOrEqual(t, charge, money.Micro(0))
	})
}
