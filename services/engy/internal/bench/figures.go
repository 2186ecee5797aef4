package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile gives the smallest value that p percent of all do not exceed. It
// puts the list in order.
func percentile(list []time.Duration, p float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	at := int(math.Ceil(p/100*float64(len(list)))) - 1
	return list[min(max(0, at), len(list)-1)]
}

func mean(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range list {
		sum += d
	}
	return sum / time.Duration(len(list))
}

// spread is a figure over all rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

func spreadOf(list []float64) spread {
	if len(list) == 0 {
		return spread{}
	}
	list = slices.Sorted(slices.Values(list))
	s := spread{Min: list[0], Max: list[len(list)-1], Rounds: len(list)}
	mid := len(list) / 2
	s.Median = list[mid]
	if len(list)%2 == 0 {
		s.Median = (list[mid-1] + list[mid]) / 2
	}
	return s
}

func (s spread) String() string {
	switch s.Rounds {
	case 0:
		return "–"
	case 1:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number shows three figures that count.
func number(f float64) string {
	abs := math.Abs(f)
	switch {
	case abs >= 1000:
		return grouped(int64(math.Round(f)))
	case abs >= 100:
		return fmt.Sprintf("%.0f", f)
	case abs >= 10:
		return fmt.Sprintf("%.1f", f)
	case abs >= 0.1 || f == 0:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.3f", f)
}

func grouped(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		sign, s = "-", rest
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
