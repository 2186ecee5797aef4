package count_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/count"
)

func says(texts ...string) *llm.Request {
	r := &llm.Request{}
	for _, t := range texts {
		r.Items = append(r.Items, llm.Item{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(t)}}})
	}
	return r
}

func tokens(r *llm.Request) int64 { return new(count.Estimator).Tokens("m", count.Measure(r)) }

// The true counts are those of a vocabulary of 200,000 tokens.
func TestAnEstimateIsNearAndErrsHigh(t *testing.T) {
	t.Parallel()
	for text, actual := range map[string]int64{
		strings.Repeat("The quick brown fox jumps over the lazy dog, and nobody minds that it does so every day. ", 20):                            401,
		strings.Repeat("func f(x int) (string, error) {\n\tif x < 0 {\n\t\treturn \"\", errNegative\n\t}\n\treturn strconv.Itoa(x), nil\n}\n", 20): 660,
		strings.Repeat("这个函数读取请求的正文，检查每个字段的类型，然后把它交给下一个步骤处理。", 20):                                                                                 460,
	} {
		got := tokens(says(text))
		require.Greater(t, got, actual*95/100, "%.30s", text)
		require.Less(t, got, actual*150/100, "%.30s", text)
	}
}

func TestEveryPartOfAPromptCounts(t *testing.T) {
	t.Parallel()
	last := int64(0)
	r := &llm.Request{}
	for _, grow := range []func(){
		func() { *r = *says("hello") },
		func() {
			r.Items = append(r.Items, llm.Item{Role: llm.System, Parts: []llm.Part{{Text: llm.NewVerbatim(strings.Repeat("rule ", 400))}}})
		},
		func() { r.Tools = append(r.Tools, llm.ToolSpec{Name: "f"}) },
		func() { r.Tools[0].Description = "Finds things." },
		func() { r.Tools[0].Schema = []byte(`{"type":"object","properties":{"q":{"type":"string"}}}`) },
		func() {
			r.Items[0].Parts = append(r.Items[0].Parts, llm.Part{Media: &llm.Media{Kind: "image", Data: llm.Base64("iVBORw0KGgo=")}})
		},
		func() { r.Items[1].Reasoning = "Let me see." },
		func() { r.Items[1].Calls = []llm.Call{{Name: "f", Arguments: `{"q":"x"}`}} },
		func() { r.Items[1].Name = "somebody" },
		func() { r.Items = append(r.Items, llm.Item{Role: llm.Assistant}) },
	} {
		grow()
		now := tokens(r)
		require.Greater(t, now, last)
		last = now
	}
	without := count.Measure(r)
	without.Media = 0
	require.GreaterOrEqual(t, last, tokens(&llm.Request{})+count.MediaTokens)
	require.Less(t, new(count.Estimator).Tokens("m", without), last)
}

// How a client escapes its JSON does not change what the model reads.
func TestEscapesWeighWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	measure := func(raw string) int64 {
		return count.Measure(&llm.Request{Items: []llm.Item{{Parts: []llm.Part{{Text: llm.Verbatim(raw)}}}}}).Text
	}
	for raw, escaped := range map[string]string{
		`"北京"`: `"\u5317\u4eac"`, `"🙂"`: `"\ud83d\ude42"`, `"<a>"`: `"\u003ca\u003E"`, "\"a\n\"": `"a\n"`,
	} {
		require.Equal(t, measure(raw), measure(escaped), raw)
	}
	require.Equal(t, int64(0), measure(`""`))
	require.Greater(t, measure(`"a\nb"`), measure(`"ab"`))
	require.Greater(t, measure(`"a\"b"`), measure(`"a\nb"`))
	require.Equal(t, measure(`"\u"`), measure(`"\n"`), "what is cut is weighed as it is")
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		got := measure(string(llm.NewVerbatim(s)))
		require.GreaterOrEqual(t, got, int64(46*utf8.RuneCountInString(s)))
		require.LessOrEqual(t, got, int64(1500*utf8.RuneCountInString(s)+1))
	})
}

func TestAFactorIsLearnedForEachModel(t *testing.T) {
	t.Parallel()
	var e count.Estimator
	s := count.Measure(says(strings.Repeat("some words of a prompt ", 200)))
	before := e.Tokens("a", s)
	actual := before * 3 / 2
	for range 200 {
		e.Learn("a", s, actual)
	}
	require.InDelta(t, actual, e.Tokens("a", s), float64(actual)/50)
	require.GreaterOrEqual(t, e.Tokens("a", s), actual)
	require.Equal(t, before, e.Tokens("b", s))
}

func TestScatteredCountsAreEstimatedHigh(t *testing.T) {
	t.Parallel()
	var e count.Estimator
	s := count.Measure(says(strings.Repeat("some words of a prompt ", 200)))
	base := e.Tokens("a", s)
	low := 0
	for i := range 1000 {
		actual := base * int64(80+i*37%41) / 100
		if i > 50 && e.Tokens("a", s) < actual {
			low++
		}
		e.Learn("a", s, actual)
	}
	require.Less(t, low, 300)
	require.Less(t, e.Tokens("a", s), base*125/100)
}

func TestNobodyBendsAnEstimateBeyondItsBounds(t *testing.T) {
	t.Parallel()
	s := count.Measure(says(strings.Repeat("some words of a prompt ", 200)))
	plain := float64(new(count.Estimator).Tokens("a", s)) / 1.1
	for counted, bound := range map[int64]float64{1: 0.5, math.MaxInt64: 2} {
		var e count.Estimator
		for range 1000 {
			e.Learn("a", s, counted)
		}
		require.InDelta(t, plain*bound, e.Tokens("a", s), 3)
	}
	rapid.Check(t, func(t *rapid.T) {
		var e count.Estimator
		for _, n := range rapid.SliceOf(rapid.Int64()).Draw(t, "counts") {
			e.Learn("a", s, n)
		}
		got := float64(e.Tokens("a", s))
		require.True(t, got >= plain*0.5-1 && got <= plain*2+3, "%v", got)
	})
}

func TestWhatTeachesNothingIsNotLearned(t *testing.T) {
	t.Parallel()
	var e count.Estimator
	long := count.Measure(says(strings.Repeat("some words of a prompt ", 200)))
	before := e.Tokens("a", long)
	seen := long
	seen.Media = 1
	e.Learn("a", seen, before*2)
	e.Learn("a", count.Measure(says("short")), 1000)
	e.Learn("a", long, 0)
	require.Equal(t, before, e.Tokens("a", long))
	// Models beyond the bound are not remembered.
	for i := range count.ModelsMax {
		e.Learn(strconv.Itoa(i), long, before*2)
	}
	e.Learn("a", long, before*2)
	require.Equal(t, before, e.Tokens("a", long))
	require.Greater(t, e.Tokens(strconv.Itoa(count.ModelsMax-1), long), before)
}

func TestAnEstimatorIsForManyAtOnce(t *testing.T) {
	t.Parallel()
	var e count.Estimator
	s := count.Measure(says(strings.Repeat("x ", 1000)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 1000 {
				e.Learn(strconv.Itoa(i%3), s, 700)
				require.Positive(t, e.Tokens("1", s))
			}
		})
	}
	all.Wait()
}

// Measuring takes less than looking at the text at all, which is milliseconds
// for megabytes.
func TestMeasuringTakesNoTimeToSpeakOf(t *testing.T) {
	t.Parallel()
	r := says(strings.Repeat("\tif err := f(\"x\"); err != nil {\n", 1<<20/33))
	best := func(do func()) time.Duration {
		least := time.Hour
		for range 10 {
			began := time.Now()
			do()
			least = min(least, time.Since(began))
		}
		return least
	}
	// On a busy machine one of the two may be unlucky, though not each time.
	for tries := 10; ; tries-- {
		look := best(func() { require.True(t, json.Valid(r.Items[0].Parts[0].Text)) })
		took := best(func() { count.Measure(r) })
		if took < look {
			return
		}
		require.Positive(t, tries, "%v to measure, %v to look", took, look)
	}
}

func BenchmarkMeasure(b *testing.B) {
	r := says(strings.Repeat("\tif err := f(\"x\"); err != nil {\n", 1<<20/33))
	b.SetBytes(int64(len(r.Items[0].Parts[0].Text)))
	for b.Loop() {
		count.Measure(r)
	}
}
