// Package codectest runs a codec's golden cases. A case is one text file: the
// request as it comes, the internal request that it means, the events of an
// answer, and the bytes that go out, streamed and whole. Cases of different
// codecs share their internal halves, which proves that they meet in one model.
package codectest

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/engy-ai/engy/pkg/llm"
)

// Codec is the part of a codec that a case tries.
type Codec interface {
	Decode(route string, body []byte) (*llm.Request, error)
	Encode(w io.Writer, req *llm.Request, id string, created int64) llm.Sink
	Error(err error, id string) (status int, body []byte)
}

// ID and Created stand in every case.
const (
	ID      = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	Created = 1_790_000_000
)

var update = flag.Bool("update", false, "write the golden files anew") // read-only after flags are parsed

// Run tries every case of a folder. Sections of a file: request.json, and then
// internal.json, events.jsonl, stream.txt and whole.json, or error.json alone
// when the request is refused. Raw prompts have no stream.txt.
func Run(t *testing.T, c Codec, route, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			have := txtar.Parse(raw)
			got := &txtar.Archive{Comment: have.Comment, Files: answers(t, c, route, have)}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(got), 0o644))
				return
			}
			require.Equal(t, string(txtar.Format(have)), string(txtar.Format(got)))
		})
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func answers(t *testing.T, c Codec, route string, have *txtar.Archive) []txtar.File {
	t.Helper()
	request := section(have, "request.json")
	out := []txtar.File{{Name: "request.json", Data: request}}
	req, err := c.Decode(route, request)
	if err != nil {
		_, body := c.Error(err, ID)
		return append(out, txtar.File{Name: "error.json", Data: line(body)})
	}
	internal, err := json.Marshal(req, jsontext.Multiline(true), jsontext.PreserveRawStrings(true))
	require.NoError(t, err)
	out = append(out, txtar.File{Name: "internal.json", Data: line(internal)})
	events := section(have, "events.jsonl")
	if events == nil {
		return out
	}
	out = append(out, txtar.File{Name: "events.jsonl", Data: events})
	forms := map[string]bool{"stream.txt": true, "whole.json": false}
	if req.Raw != nil {
		delete(forms, "stream.txt") // raw prompts are not streamed
	}
	for name, streamed := range forms {
		r := *req
		r.Stream, r.IncludeUsage = streamed, streamed && req.IncludeUsage
		var b bytes.Buffer
		sink := c.Encode(&b, &r, ID, Created)
		var failed error
		for _, raw := range bytes.Split(bytes.TrimSpace(events), []byte("\n")) {
			var e llm.Event
			require.NoError(t, json.Unmarshal(raw, &e))
			if e.Kind == llm.Done {
				e.Receipt = &llm.Receipt{RequestID: ID, Worker: "worker-1", ChargedMicro: 341}
			}
			if err := sink(e); err != nil {
				failed = err
			}
		}
		if failed != nil {
			_, body := c.Error(failed, ID)
			b.Write(body)
		}
		out = append(out, txtar.File{Name: name, Data: line(b.Bytes())})
	}
	// Both forms in one order, whatever order the map gave.
	if len(out) > 4 && out[3].Name != "stream.txt" {
		out[3], out[4] = out[4], out[3]
	}
	return out
}

// line ends what does not end a line.
func line(b []byte) []byte {
	if len(b) == 0 || b[len(b)-1] != '\n' {
		return append(b, '\n')
	}
	return b
}

// Requests gives the requests of all cases of a folder: what a decoder is fuzzed
// from.
func Requests(t testing.TB, dir string) [][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all [][]byte
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		all = append(all, section(txtar.Parse(raw), "request.json"))
	}
	return all
}
