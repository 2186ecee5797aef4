package script_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	t.Run("a header and a mark read the same keys", func(t *testing.T) {
		t.Parallel()
		a, b := script.Usual(), script.Usual()
		require.NoError(t, a.Header("tokens=5; itl=20ms;hang=forever ; no_done"))
		rest, err := b.Marker("hello [[sim tokens=5 itl=20ms hang=forever no_done]] you")
		require.NoError(t, err)
		require.Equal(t, "hello you", rest)
		require.Equal(t, a, b)
		require.Equal(t, 5, a.Tokens)
		require.Equal(t, 20*time.Millisecond, a.ITL)
		require.Equal(t, script.Forever, a.Hang)
		require.True(t, a.NoDone)
	})
	t.Run("a mark that is not closed is text", func(t *testing.T) {
		t.Parallel()
		s := script.Usual()
		rest, err := s.Marker("a [[sim tokens=5")
		require.NoError(t, err)
		require.Equal(t, "a [[sim tokens=5", rest)
		require.Equal(t, script.Usual(), s)
	})
	t.Run("all bad keys and values are named at once", func(t *testing.T) {
		t.Parallel()
		s := script.Usual()
		err := s.Header("tokns=5; itl=fast; status=200; echo=maybe; usage=1:2; reasoning_field=x; tool; args=%F")
		for _, part := range []string{"tokns", "fast", "200", "maybe", "1:2", `"x"`, "tool", "%F"} {
			require.ErrorContains(t, err, part)
		}
	})
	t.Run("numbers and durations hold at their bounds", func(t *testing.T) {
		t.Parallel()
		for good, bad := range map[string]string{
			"tokens=1048576": "tokens=1048577", "big=33554432": "big=33554433", "calls=128": "calls=129",
			"itl=24h": "itl=24h1ns", "status=599": "status=600", "status=400": "status=399", "cut=0": "cut=-1",
			"hang=forever": "itl=forever", "args=%41": "args=%FF",
			"args=" + strings.Repeat("%20", script.ArgsBytesMax): "args=" + strings.Repeat("x", script.ArgsBytesMax+1),
		} {
			s := script.Usual()
			require.NoError(t, s.Header(good))
			require.Error(t, s.Header(bad))
		}
	})
}

func ask() script.Ask {
	return script.Ask{Seed: 7, TokensMax: 1000, Natural: 64, Settings: script.Usual(), User: "find the weather in Oslo"}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	v := script.NewVocabulary()
	t.Run("the text has as many tokens as the plan says", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			a := ask()
			a.Seed = rapid.Uint64().Draw(t, "seed")
			a.Think = rapid.IntRange(0, 50).Draw(t, "think")
			a.TokensMax = rapid.IntRange(1, 200).Draw(t, "max")
			a.Natural = rapid.IntRange(0, 200).Draw(t, "natural")
			p := v.Plan(a)
			all, reasoning := p.Tokens(len(p.Steps))
			require.Equal(t, all-reasoning, tokenizer.Count(p.Join(script.Text, 0, len(p.Steps))))
			require.Equal(t, reasoning, tokenizer.Count(p.Join(script.Reasoning, 0, len(p.Steps))))
			require.Equal(t, min(a.TokensMax, a.Think+a.Natural), all)
			require.Equal(t, a.Think+a.Natural > a.TokensMax, p.Finish == "length")
			require.Equal(t, p, v.Plan(a))
		})
	})
	t.Run("another seed says something else", func(t *testing.T) {
		t.Parallel()
		a, b := ask(), ask()
		b.Seed++
		pa, pb := v.Plan(a), v.Plan(b)
		require.NotEqual(t, pa.Join(script.Text, 0, 64), pb.Join(script.Text, 0, 64))
	})
	t.Run("a stop string and what follows it is not shown but counts", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			a := ask()
			whole := v.Plan(a)
			text := whole.Join(script.Text, 0, len(whole.Steps))
			from := rapid.IntRange(0, len(text)-12).Draw(t, "from")
			stop := text[from : from+rapid.IntRange(1, 12).Draw(t, "length")]
			a.Stops = []string{"never there", stop}
			p := v.Plan(a)
			got := p.Join(script.Text, 0, len(p.Steps))
			require.NotContains(t, got, stop)
			require.Equal(t, text[:len(got)], got)
			require.Equal(t, stop, text[len(got):len(got)+len(stop)])
			made, _ := p.Tokens(len(p.Steps))
			require.GreaterOrEqual(t, made, tokenizer.Count(got))
			require.Equal(t, "stop", p.Finish)
		})
	})
	t.Run("ignoring the end makes the answer as long as allowed", func(t *testing.T) {
		t.Parallel()
		a := ask()
		a.IgnoreEOS = true
		p := v.Plan(a)
		require.Len(t, p.Steps, a.TokensMax)
		require.Equal(t, "length", p.Finish)
	})
	t.Run("a cut call is not mended and a nameless one does not exist", func(t *testing.T) {
		t.Parallel()
		a := ask()
		a.Tools = []script.Tool{{Name: "look", Schema: script.Schema{"properties": map[string]any{"q": map[string]any{"type": "string"}}}}}
		a.CallTools = 2
		whole := v.Plan(a)
		for most := 1; most < 12; most++ {
			a.TokensMax = most
			p := v.Plan(a)
			made, _ := p.Tokens(len(p.Steps))
			require.LessOrEqual(t, made, most)
			for i := range p.Calls {
				require.True(t, p.Opened(i, len(p.Steps)))
				require.Equal(t, whole.Calls[i], p.Calls[i])
			}
			if made < most || len(p.Steps) < len(whole.Steps) {
				require.Equal(t, "length", p.Finish)
			}
		}
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	v := script.NewVocabulary()
	args := func(t *testing.T, schema string) map[string]any {
		t.Helper()
		var s, out map[string]any
		require.NoError(t, json.Unmarshal([]byte(schema), &s))
		a := ask()
		a.Tools, a.CallTools = []script.Tool{{Name: "f", Schema: s}}, 1
		p := v.Plan(a)
		require.Equal(t, p.Calls[0].Args, p.Join(script.CallArgs, 0, len(p.Steps)))
		require.NoError(t, json.Unmarshal([]byte(p.Calls[0].Args), &out))
		return out
	}
	t.Run("required properties get values of their types", func(t *testing.T) {
		t.Parallel()
		got := args(t, `{"type":"object","required":["s","i","b","l","e","o","r","u"],"$defs":{"P":{"type":"integer","minimum":100}},
			"properties":{"s":{"type":"string"},"i":{"type":"integer","maximum":0},"b":{"type":"boolean"},
			"l":{"type":"array","items":{"type":"number"},"minItems":2},"e":{"enum":["x"]},"o":{"type":"object","properties":{"in":{"const":3}}},
			"r":{"$ref":"#/$defs/P"},"u":{"anyOf":[{"type":["null","string"]},{"type":"null"}]},"optional":{"type":"string"}}}`)
		require.Contains(t, []any{"find", "the", "weather", "Oslo"}, got["s"])
		require.Equal(t, 0.0, got["i"])
		require.Equal(t, true, got["b"])
		require.Len(t, got["l"], 2)
		require.Equal(t, "x", got["e"])
		require.Equal(t, map[string]any{"in": 3.0}, got["o"])
		require.Equal(t, 100.0, got["r"])
		require.IsType(t, "", got["u"])
		require.NotContains(t, got, "optional")
	})
	t.Run("a schema that contains itself ends", func(t *testing.T) {
		t.Parallel()
		require.NotEmpty(t, args(t, `{"type":"object","properties":{"child":{"$ref":"#/properties/child"}},"required":["child"]}`))
	})
	t.Run("no schema gives an empty object", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, args(t, `{}`))
	})
}
