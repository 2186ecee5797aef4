package script_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// state draws a state that texts can bring about.
func state(t *rapid.T) script.State {
	text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
		"The", " The", " about", " like", " One", ",", ".", "x", " 7", "\n", "北", "<think>", ":", " We",
	}), 0, 8).Draw(t, "text"), "")
	return script.Read(tokenizer.Encode(nil, text))
}

func TestTheProbabilitiesOfAPositionSumToOne(t *testing.T) {
	t.Parallel()
	v := script.NewVocabulary()
	rapid.Check(t, func(t *rapid.T) {
		s := state(t)
		likely := v.Likely(s, script.IDs)
		sum, last := 0.0, 0.0
		seen := map[tokenizer.ID]bool{}
		for _, c := range likely {
			require.InDelta(t, v.LogProb(s, c.ID), c.LogProb, 1e-12, "listed and scored alike")
			require.LessOrEqual(t, c.LogProb, last, "the likeliest first")
			require.False(t, seen[c.ID])
			seen[c.ID], last = true, c.LogProb
			sum += math.Exp(c.LogProb)
		}
		elsewhere := tokenizer.Encode(nil, "Q")[0]
		require.False(t, seen[elsewhere])
		p := v.LogProb(s, elsewhere)
		require.Less(t, p, last)
		sum += math.Exp(p) * float64(script.IDs-len(likely))
		require.InDelta(t, 1, sum, 1e-9)
		for _, k := range []int{0, 1, 5} {
			require.Equal(t, likely[:k], v.Likely(s, k))
		}
	})
}

func TestHowLikelyATokenIsDependsOnTheTextAlone(t *testing.T) {
	t.Parallel()
	v := script.NewVocabulary()
	rapid.Check(t, func(t *rapid.T) {
		prompt := tokenizer.Encode(nil, rapid.String().Draw(t, "prompt"))
		a := ask()
		a.After, a.Seed = script.Read(prompt), rapid.Uint64().Draw(t, "seed")
		a.Think, a.Natural = rapid.IntRange(0, 5).Draw(t, "think"), rapid.IntRange(1, 40).Draw(t, "natural")
		p := v.Plan(a)
		text := prompt
		for _, s := range p.Steps {
			require.Equal(t, script.Read(text), s.Before)
			require.Greater(t, v.LogProb(s.Before, s.ID), -40.0)
			text = append(text, s.ID)
		}
	})
}

func TestTheLanguageIsDrawnByItsProbabilities(t *testing.T) {
	t.Parallel()
	v := script.NewVocabulary()
	a := ask()
	a.Natural, a.TokensMax = 20_000, 20_000
	p := v.Plan(a)
	// The likeliest token comes as often as it says, within the noise of so many
	// draws.
	expected, came := 0.0, 0.0
	for _, s := range p.Steps[3:] {
		top := v.Likely(s.Before, 1)[0]
		expected += math.Exp(top.LogProb) / (1 - script.Elsewhere)
		if top.ID == s.ID {
			came++
		}
	}
	require.InDelta(t, expected, came, 4*math.Sqrt(expected))
}
