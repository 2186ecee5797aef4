package codec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// Cases named pair-* say the same in several protocols: their internal halves
// are the same bytes, which proves that the codecs meet in one model.
func TestPairsShareTheirInternalHalves(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/testdata/pair-*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	first := map[string]map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		halves := map[string]string{}
		for _, f := range txtar.Parse(raw).Files {
			if f.Name == "internal.json" || f.Name == "events.jsonl" {
				halves[f.Name] = string(f.Data)
			}
		}
		name := filepath.Base(file)
		require.NotEmpty(t, halves["internal.json"], file)
		if first[name] == nil {
			first[name] = halves
			continue
		}
		require.Equal(t, first[name], halves, file)
	}
}
