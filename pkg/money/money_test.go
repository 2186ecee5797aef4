package money_test

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/money"
)

func TestTiesRoundUpOnTheTotal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		terms []money.Term
		want  money.Micro
	}{
		{"nothing", nil, 0},
		{"just under half", []money.Term{{Units: 1, Rate: 499_999}}, 0},
		{"half", []money.Term{{Units: 1, Rate: 500_000}}, 1},
		{"one and a half", []money.Term{{Units: 3, Rate: 500_000}}, 2},
		{"two and a half", []money.Term{{Units: 5, Rate: 500_000}}, 3},
		{"two quarters make a half", []money.Term{{Units: 1, Rate: 250_000}, {Units: 1, Rate: 250_000}}, 1},
		{"one dollar", []money.Term{{Units: 1_000_000, Rate: 1_000_000}}, money.USD},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := money.Total(c.terms...)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestTheLargestAmountFitsAndTheNextDoesNot(t *testing.T) {
	t.Parallel()
	// At one micro-USD a unit, the total is the count.
	got, err := money.Total(money.Term{Units: math.MaxInt64, Rate: 1_000_000})
	require.NoError(t, err)
	require.Equal(t, money.Micro(math.MaxInt64), got)

	got, err = money.Total(money.Term{Units: math.MaxInt64, Rate: 1_000_000}, money.Term{Units: 1, Rate: 499_999})
	require.NoError(t, err)
	require.Equal(t, money.Micro(math.MaxInt64), got)

	for name, terms := range map[string][]money.Term{
		"rounding passes the bound":      {{Units: math.MaxInt64, Rate: 1_000_000}, {Units: 1, Rate: 500_000}},
		"the quotient passes 64 bits":    {{Units: math.MaxInt64, Rate: math.MaxInt64}},
		"the sum passes 128 bits":        {{math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}},
		"the count is negative":          {{Units: -1, Rate: 1}},
		"the rate is negative":           {{Units: 1, Rate: -1}},
		"a negative hides behind others": {{Units: 5, Rate: 1_000_000}, {Units: -1, Rate: 1}},
	} {
		_, err := money.Total(terms...)
		require.ErrorIs(t, err, money.ErrRange, name)
	}
}

func TestTotalAgreesWithUnboundedArithmetic(t *testing.T) {
	t.Parallel()
	term := rapid.Custom(func(t *rapid.T) money.Term {
		return money.Term{
			Units: rapid.Int64Range(0, math.MaxInt64).Draw(t, "units"),
			Rate:  money.Rate(rapid.Int64Range(0, math.MaxInt64).Draw(t, "rate")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfN(term, 0, 6).Draw(t, "terms")
		exact := big.NewInt(500_000)
		for _, x := range terms {
			exact.Add(exact, new(big.Int).Mul(big.NewInt(x.Units), big.NewInt(int64(x.Rate))))
		}
		exact.Div(exact, big.NewInt(1_000_000))

		got, err := money.Total(terms...)
		if exact.Cmp(big.NewInt(math.MaxInt64)) > 0 {
			require.ErrorIs(t, err, money.ErrRange)
			return
		}
		require.NoError(t, err)
		require.Equal(t, exact.Int64(), int64(got))
	})
}

func TestPerTokenWritesDecimalsOfADollar(t *testing.T) {
	t.Parallel()
	for rate, want := range map[money.Rate]string{
		0:                 "0",
		1:                 "0.000000000001",
		45_000:            "0.000000045",
		90_000:            "0.00000009",
		9_750_000:         "0.00000975",
		30_000_000_000:    "0.03",
		1_000_000_000_000: "1",
		1_500_000_000_000: "1.5",
		math.MaxInt64:     "9223372.036854775807",
	} {
		require.Equal(t, want, rate.PerToken())
	}
}

func TestPerTokenLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(0, math.MaxInt64).Draw(t, "rate")
		text := money.Rate(rate).PerToken()
		back, ok := new(big.Rat).SetString(text)
		require.True(t, ok, text)
		require.Equal(t, big.NewRat(rate, 1_000_000_000_000), back)
		require.False(t, strings.Contains(text, ".") && strings.HasSuffix(text, "0"), text)
	})
}
