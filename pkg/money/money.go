// Package money counts micro-USD exactly. Amounts and rates are integers; the
// product of a count and a rate is kept in 128 bits, and a total is rounded
// once, half up. Floats, currencies and formatting for people do not live
// here.
package money

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Micro is an amount in micro-USD (one millionth of a US dollar).
type Micro int64

// USD is one US dollar.
const USD Micro = 1_000_000

// Rate is a price in micro-USD per million units, so that a price of 0.009
// USD per million tokens is the integer 9,000.
type Rate int64

// Term is a count of units at a rate. Both must not be negative.
type Term struct {
	Units int64
	Rate  Rate
}

// ErrRange says that an amount does not fit, or that a count or rate is
// negative.
var ErrRange = errors.New("amount out of range")

const perRate = 1_000_000

// Total adds the terms exactly and rounds the sum once, half up, to whole
// micro-USD.
func Total(terms ...Term) (Micro, error) {
	var hi, lo uint64
	for _, t := range terms {
		if t.Units < 0 || t.Rate < 0 {
			return 0, fmt.Errorf("%d units at %d: %w", t.Units, t.Rate, ErrRange)
		}
		h, l := bits.Mul64(uint64(t.Units), uint64(t.Rate))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		if hi, carry = bits.Add64(hi, h, carry); carry != 0 {
			return 0, ErrRange
		}
	}
	lo, carry := bits.Add64(lo, perRate/2, 0)
	hi += carry
	if hi >= perRate {
		return 0, ErrRange
	}
	sum, _ := bits.Div64(hi, lo, perRate)
	if sum > math.MaxInt64 {
		return 0, ErrRange
	}
	return Micro(sum), nil
}

// PerToken writes a rate as a decimal string in USD per token, without
// trailing zeros: 45,000 gives "0.000000045".
func (r Rate) PerToken() string {
	// A rate is micro-USD per million tokens: 10^-12 USD per token.
	digits := fmt.Sprintf("%013d", int64(r))
	whole, frac := digits[:len(digits)-12], digits[len(digits)-12:]
	end := len(frac)
	for end > 0 && frac[end-1] == '0' {
		end--
	}
	if end == 0 {
		return whole
	}
	return whole + "." + frac[:end]
}

// ParseUSD reads an amount in US dollars, such as "12.5", exactly. More than
// six decimals, signs and exponents are refused.
func ParseUSD(s string) (Micro, error) {
	whole, frac, _ := strings.Cut(s, ".")
	if whole == "" || len(frac) > 6 || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not an amount in US dollars, such as 12.50", s)
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", s, ErrRange)
	}
	return Micro(n), nil
}

// USD writes the amount in US dollars with six decimals.
func (m Micro) USD() string {
	sign, n := "", m
	if n < 0 {
		sign = "-"
		n = -n
	}
	return fmt.Sprintf("%s%d.%06d", sign, n/USD, n%USD)
}
