package pricing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

func TestTheBuiltInListHasTheContractsPrices(t *testing.T) {
	t.Parallel()
	l, err := pricing.Default()
	require.NoError(t, err)
	var got []string
	for _, r := range l.Rows() {
		got = append(got, fmt.Sprintf("%s per %s: %s / %s / %s", r.Model, r.Unit,
			r.Rates.Input.PerToken(), r.Rates.Output.PerToken(), r.Rates.CachedInput.PerToken()))
		require.Equal(t, l.Version(), r.Rates.Version)
	}
	require.Equal(t, []string{
		"MiniMax-H3 per second: 0 / 0.03 / 0",
		"deepseek-v4-flash-0731 per token: 0.000000045 / 0.00000009 / 0.000000009",
		"deepseek-v4.1-flash per token: 0.00000004 / 0.00000008 / 0.000000008",
		"glm-5.2 per token: 0.00000068 / 0.0000015 / 0.00000018",
		"glm-5.3 per token: 0.00000098 / 0.00000308 / 0.00000018",
		"glm-5.3-flash per token: 0.000000135 / 0.00000045 / 0.000000027",
		"kimi-k3 per token: 0.00000195 / 0.00000975 / 0.000000195",
		"qwen3.6-35b-a3b per token: 0.000000045 / 0.0000003 / 0.000000015",
		"qwen3.8-27b per token: 0.000000045 / 0.00000032 / 0.000000015",
	}, got)
}

func TestAMissingCachedPriceIsTheFullInputPrice(t *testing.T) {
	t.Parallel()
	l, err := pricing.Load([]byte(`{"version":"v","rates":[
		{"model":"silent","unit":"token","input":7,"output":9},
		{"model":"free","unit":"token","input":7,"output":9,"cached_input":0},
		{"model":"gift","unit":"token","input":0,"output":0}]}`))
	require.NoError(t, err)
	for model, want := range map[string]pricing.Rates{
		"silent": {Version: "v", Input: 7, Output: 9, CachedInput: 7},
		"free":   {Version: "v", Input: 7, Output: 9, CachedInput: 0},
		"gift":   {Version: "v"},
	} {
		got, ok := l.Of(model)
		require.True(t, ok, model)
		require.Equal(t, want, got, model)
	}
}

func TestAModelWithoutARowHasNoPrice(t *testing.T) {
	t.Parallel()
	l, err := pricing.Default()
	require.NoError(t, err)
	for _, model := range []string{"", "GLM-5.2", "vendor/glm-5.2", "unheard-of"} {
		_, ok := l.Of(model)
		require.False(t, ok, model)
	}
	_, ok := pricing.List{}.Of("glm-5.2")
	require.False(t, ok)
}

func TestWithAddsRowsToACopy(t *testing.T) {
	t.Parallel()
	base, err := pricing.Default()
	require.NoError(t, err)
	before := base.Rows()
	local := pricing.Row{Model: "local-1", Unit: pricing.Token}
	dated := pricing.Row{Model: "local-2", Unit: pricing.Token, Rates: pricing.Rates{Version: "own", Input: 1}}
	more, err := base.With(local, dated)
	require.NoError(t, err)
	require.Equal(t, before, base.Rows())

	got, ok := more.Of("local-1")
	require.True(t, ok)
	require.Equal(t, pricing.Rates{Version: base.Version()}, got)
	got, _ = more.Of("local-2")
	require.Equal(t, "own", got.Version)

	_, err = more.With(local)
	require.ErrorContains(t, err, "has a row already")
	_, err = pricing.List{}.With(local)
	require.ErrorContains(t, err, "version must be")
}

func TestAListHoldsUpToItsBounds(t *testing.T) {
	t.Parallel()
	rows := make([]pricing.Row, pricing.RowsMax)
	for i := range rows {
		rows[i] = pricing.Row{Model: fmt.Sprint(i), Unit: pricing.Token, Rates: pricing.Rates{Version: "v"}}
	}
	full, err := pricing.List{}.With(rows...)
	require.NoError(t, err)
	_, err = full.With(pricing.Row{Model: "more", Unit: pricing.Token})
	require.ErrorContains(t, err, "more than 4096 rows")

	top := pricing.Rates{Version: "v", Input: pricing.RateMax, Output: pricing.RateMax, CachedInput: pricing.RateMax}
	require.NoError(t, pricing.Row{Model: "m", Unit: pricing.Token, Rates: top}.Validate())
	most, err := pricing.Ceiling(top, 1<<24, 1<<24)
	require.NoError(t, err)
	require.Equal(t, 2*money.Micro(1<<24)*money.USD, most)
}

func TestEveryBadPriceListIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"cached-negative.json":      `cached_input must be from 0`,
		"input-beyond-64-bits.json": `/rates/0/input`,
		"input-exponent.json":       `/rates/0/input`,
		"input-fraction.json":       `/rates/0/input`,
		"input-missing.json":        `rates of "m-1": input is missing`,
		"input-negative.json":       `input must be from 0`,
		"input-null.json":           `rates of "m-1": input is missing`,
		"input-text.json":           `/rates/0/input`,
		"member-twice.json":         `duplicate object member name "input"`,
		"model-missing.json":        `model is missing`,
		"model-twice.json":          `rates of "m-1": the model has a row already`,
		"no-rates.json":             `no rates`,
		"not-json.json":             `unexpected EOF`,
		"output-missing.json":       `rates of "m-1": output is missing`,
		"output-negative.json":      `output must be from 0`,
		"output-too-high.json":      `output must be from 0 to 1000000000000`,
		"unit-missing.json":         `unit "" is neither`,
		"unit-unknown.json":         `unit "image" is neither`,
		"unknown-member.json":       `unknown object member name "cache"`,
		"version-missing.json":      `version must be from 1`,
		"version-too-long.json":     `version must be from 1 to 64`,
		"wrong-case.json":           `unknown object member name "Input"`,
	}
	files, err := filepath.Glob("testdata/bad/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(want))
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NotEmpty(t, want[name], "the test does not expect this file")
			_, err = pricing.Load(data)
			require.ErrorContains(t, err, want[name])
		})
	}
}

func FuzzWhatLoadTakesIsPriced(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.json")
	require.NoError(f, err)
	for _, path := range append(files, "rates.json") {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := pricing.Load(data)
		if err != nil {
			return
		}
		require.NotEmpty(t, l.Rows())
		for _, r := range l.Rows() {
			require.NoError(t, r.Validate())
			_, err := pricing.Ceiling(r.Rates, 1<<24, 1<<24)
			require.NoError(t, err)
		}
	})
}
