package catalog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/catalog"
)

func text(id string) catalog.Model {
	return catalog.Model{
		ID: id, Created: 1, OwnedBy: "here", Kind: catalog.Text, Family: catalog.AnyFamily,
		InputModalities: []string{"text"}, OutputModalities: []string{"text"}, Window: 10, MaxOutput: 10,
	}
}

func TestTheBuiltInCatalogueHasTheContractsRows(t *testing.T) {
	t.Parallel()
	c, err := catalog.Default()
	require.NoError(t, err)
	var got []string
	for _, m := range c.Models() {
		got = append(got, fmt.Sprintf("%s %d %d %v %v %s %s",
			m.ID, m.Window, m.MaxOutput, m.InputModalities, m.OutputModalities, m.Family, m.OwnedBy))
	}
	require.Equal(t, []string{
		"deepseek-v4-flash-0731 1048576 128000 [text] [text] deepseek-v4 engy",
		"deepseek-v4.1-flash 327680 65536 [text] [text] deepseek-v4.1 engy",
		"glm-5.2 262144 65536 [text] [text] glm-5.2 engy",
		"glm-5.3 327680 32768 [text] [text] glm-5.3 engy",
		"glm-5.3-flash 262144 32768 [image text] [text] glm-5.3 engy",
		"kimi-k3 1048576 65536 [image text] [text] kimi-k3 engy",
		"qwen3.6-35b-a3b 208192 32768 [text] [text] glm-5.2 engy",
		"qwen3.8-27b 1001536 65536 [image text] [text] qwen3.8 engy",
		"MiniMax-H3 0 0 [image text] [video] video engy",
	}, got)
}

func TestEveryTextModelHasALimitForScores(t *testing.T) {
	t.Parallel()
	own, widest := text("own"), text("widest")
	own.ScoreMax, widest.ScoreMax = 64, catalog.TokensMax
	c, err := catalog.Default()
	require.NoError(t, err)
	c, err = c.With(own, widest, text("usual"))
	require.NoError(t, err)
	for _, m := range c.Models() {
		want := map[string]int64{"own": 64, "widest": catalog.TokensMax, "MiniMax-H3": 0}
		limit, special := want[m.ID]
		if !special {
			limit = 1024
		}
		require.Equal(t, limit, m.ScoreMax, m.ID)
	}
}

func TestFindTakesExactIDsAndAliases(t *testing.T) {
	t.Parallel()
	row := text("m-1")
	row.Aliases = []string{"short"}
	c, err := catalog.Catalog{}.With(row)
	require.NoError(t, err)
	for name, found := range map[string]bool{"m-1": true, "short": true, "M-1": false, "vendor/m-1": false, "": false} {
		m, ok := c.Find(name)
		require.Equal(t, found, ok, name)
		if found {
			require.Equal(t, "m-1", m.ID)
		}
	}
}

func TestWithLeavesTheReceiverAlone(t *testing.T) {
	t.Parallel()
	base, err := catalog.Default()
	require.NoError(t, err)
	before := base.Models()
	more, err := base.With(text("local-1"), text("local-2"))
	require.NoError(t, err)
	other, err := base.With(text("local-3"))
	require.NoError(t, err)

	require.Equal(t, before, base.Models())
	require.Len(t, more.Models(), len(before)+2)
	_, inBase := base.Find("local-1")
	_, inMore := more.Find("local-1")
	_, inOther := other.Find("local-1")
	require.Equal(t, []bool{false, true, false}, []bool{inBase, inMore, inOther})

	_, err = more.With(text("local-1"))
	require.ErrorContains(t, err, `the name "local-1" is taken`)
}

func TestACatalogueHoldsUpToItsBound(t *testing.T) {
	t.Parallel()
	rows := make([]catalog.Model, catalog.ModelsMax)
	for i := range rows {
		rows[i] = text(fmt.Sprintf("m-%d", i))
	}
	full, err := catalog.Catalog{}.With(rows...)
	require.NoError(t, err)
	_, err = full.With(text("one-more"))
	require.ErrorContains(t, err, "more than 4096 models")

	widest := text("m")
	widest.Window = catalog.TokensMax
	require.NoError(t, widest.Validate())
}

func TestEveryBadCatalogueIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"alias-empty.json":              `"" is not a model name`,
		"alias-taken.json":              `model "m-2": the name "m-1" is taken`,
		"alias-twice.json":              `the name "x" is taken`,
		"created-fraction.json":         `models/0/created`,
		"created-missing.json":          `created must be`,
		"created-text.json":             `models/0/created`,
		"family-missing.json":           `family "" is not a family`,
		"family-of-other-kind.json":     `family "video" is not a family of kind text`,
		"family-unknown.json":           `family "glm-9" is not a family of kind text`,
		"id-missing.json":               `"" is not a model name`,
		"id-twice.json":                 `model "m-1": the name "m-1" is taken`,
		"id-with-slash.json":            `"vendor/m-1" is not a model name`,
		"id-with-space.json":            `"m 1" is not a model name`,
		"input-missing.json":            `input_modalities is missing`,
		"input-out-of-order.json":       `input_modalities: "image" is out of order`,
		"input-twice.json":              `input_modalities: "text" is out of order or twice`,
		"input-unknown.json":            `input_modalities: "smell" is not a modality`,
		"kind-missing.json":             `kind "" is neither`,
		"kind-unknown.json":             `kind "sound" is neither`,
		"member-twice.json":             `duplicate object member name "id"`,
		"no-models.json":                `no models`,
		"not-json.json":                 `unexpected EOF`,
		"output-limit-missing.json":     `max_output must be from 1`,
		"output-limit-over-window.json": `max_output must be from 1 to the window of 1000`,
		"output-missing.json":           `output_modalities is missing`,
		"owner-missing.json":            `owned_by is missing`,
		"score-limit-negative.json":     `score_max must be from 1`,
		"score-limit-too-large.json":    `score_max must be from 1 to 16777216`,
		"trailing-text.json":            `after top-level value`,
		"unknown-member.json":           `unknown object member name "windw"`,
		"unknown-top-member.json":       `unknown object member name "version"`,
		"video-with-score-limit.json":   `a video model has no window, no max_output and no score_max`,
		"video-with-window.json":        `a video model has no window`,
		"window-missing.json":           `window must be from 1`,
		"window-negative.json":          `window must be from 1`,
		"window-too-large.json":         `window must be from 1 to 16777216`,
		"wrong-case.json":               `unknown object member name "Created"`,
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
			_, err = catalog.Load(data)
			require.ErrorContains(t, err, want[name])
		})
	}
}

func FuzzWhatLoadTakesIsValid(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.json")
	require.NoError(f, err)
	for _, path := range append(files, "models.json") {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := catalog.Load(data)
		if err != nil {
			return
		}
		require.NotEmpty(t, c.Models())
		for _, m := range c.Models() {
			require.NoError(t, m.Validate())
			found, ok := c.Find(m.ID)
			require.True(t, ok)
			require.Equal(t, m, found)
		}
	})
}
