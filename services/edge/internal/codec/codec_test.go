package codec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/engy-ai/engy/services/edge/internal/codec"
)

// Cases named pair-* say the same in several protocols: their internal halves
// are the same bytes, which proves that the codecs meet in one model.
func TestPairsShareTheirInternalHalves(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/testdata/pair-*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	first, twins := map[string]map[string]string{}, map[string][]string{}
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
		twins[name] = append(twins[name], filepath.Dir(file))
		require.NotEmpty(t, halves["internal.json"], file)
		if first[name] == nil {
			first[name] = halves
			continue
		}
		require.Equal(t, first[name], halves, file)
	}
	for name, in := range twins {
		require.Equal(t, []string{"anthropic/testdata", "openai/testdata", "responses/testdata"}, in, "%s has no twin", name)
	}
}

func TestThePathTellsTheDialect(t *testing.T) {
	t.Parallel()
	for path, speaks := range map[string]bool{
		"/v1/messages": true, "/v1/messages/": true, "/v1/messages/count_tokens": true, "/v1/messages/batches/x": true,
		"/v1/messagesx": false, "/V1/messages": false, "/": false, "": false, "/v1/chat/completions": false, "/v1": false,
	} {
		_, headed := codec.Speaker(path).(codec.Headed)
		require.Equal(t, speaks, headed, path)
	}
}
