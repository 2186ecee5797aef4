package openaihttp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func number(n int64) *int64 { return &n }

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".sse"))
	require.NoError(t, err)
	return data
}

// events reads a stream and checks that the answer's usage is the one that the
// caller of Generate gets.
func events(t testing.TB, r io.Reader) []llm.Event {
	t.Helper()
	var list []llm.Event
	usage, err := openaihttp.Decode(r, func(e llm.Event) error { list = append(list, e); return nil })
	require.NoError(t, err)
	require.NotEmpty(t, list)
	last := list[len(list)-1]
	require.Equal(t, llm.Done, last.Kind)
	require.Equal(t, usage, *last.Usage)
	return list
}

func fold(t testing.TB, list []llm.Event) *llm.Response {
	t.Helper()
	var f llm.Fold
	for _, e := range list {
		require.NoError(t, f.Add(e))
	}
	r, err := f.Response()
	require.NoError(t, err)
	r.Pieces = nil // the order of text and calls is the fold's business
	return r
}

// conformance says what each recorded stream means. Engines differ in how they
// say things, and here is what they said.
func conformance() map[string]llm.Response {
	thought := llm.Response{
		Text: "It is.", Reasoning: "Let me see.\n", Finish: llm.Stop,
		Usage: llm.Usage{Prompt: 9, Cached: 4, Completion: 5, Reasoning: number(2)},
	}
	with := func(change func(*llm.Response)) llm.Response {
		r := thought
		change(&r)
		return r
	}
	called := func(ids [2]string, args [2]string) llm.Response {
		return llm.Response{
			Calls: []llm.Call{
				{ID: ids[0], Name: "get_weather", Arguments: args[0]},
				{ID: ids[1], Name: "list_files", Arguments: args[1]},
			},
			Finish: llm.ToolCalls, Usage: llm.Usage{Prompt: 50, Completion: 12},
		}
	}
	raw := llm.Response{Text: " Paris. <think>", Finish: llm.Length, Usage: llm.Usage{Prompt: 5, Cached: 4, Completion: 5}}
	rawReasoned := raw
	rawReasoned.Usage.Reasoning = number(0)
	echo := func(second string, reasoning *int64) llm.Response {
		return llm.Response{
			Text: "The sea is \uFFFD!", Finish: llm.Length, Usage: llm.Usage{Prompt: 3, Completion: 2, Reasoning: reasoning},
			Logprobs: []json.RawMessage{
				json.RawMessage(`[{"token":"The","logprob":null},{"token":" sea","logprob":-9.25,"top_logprobs":` + second + `},` +
					`{"token":" is","logprob":-0.5,"top_logprobs":[{"token":" is","logprob":-0.5}]},` +
					`{"token":" �","logprob":-0.125,"top_logprobs":[{"token":" �","logprob":-0.125}]}]`),
				json.RawMessage(`[{"token":"!","logprob":-2.0,"top_logprobs":[{"token":"!","logprob":-2.0}]}]`),
			},
		}
	}
	sglangCalls := called([2]string{"call_a1", "call_a2"}, [2]string{`{"city": "X"}`, "   "})
	sglangCalls.Usage.Reasoning = number(0)
	return map[string]llm.Response{
		"vllm": {
			Text: "北京🙂é <b>&\u2028\"q\" \\", Reasoning: "Let me see.\n", Finish: llm.Stop,
			Usage: llm.Usage{Prompt: 2454, Cached: 2450, Completion: 23},
		},
		"vllm-tools": called([2]string{"chatcmpl-tool-1", "chatcmpl-tool-2"}, [2]string{`{"city": "X"}`, ""}),
		"vllm-length": {
			Calls:  []llm.Call{{ID: "c1", Name: "write", Arguments: `{"path":"a.txt","content":"abc`}},
			Finish: llm.Length, Usage: llm.Usage{Prompt: 50, Completion: 64},
		},
		"vllm-logprobs": {
			Text: "Hi!", Finish: llm.Stop, Usage: llm.Usage{Prompt: 5, Completion: 3},
			Logprobs: []json.RawMessage{
				json.RawMessage(`[{"token":"Hi","logprob":-0.25,"bytes":[72,105],"top_logprobs":[]}]`),
				json.RawMessage(`[{"token":"ð","logprob":-0.25,"bytes":[195,176],"top_logprobs":[]}]`),
				json.RawMessage(`[{"token":"!","logprob":-0.25,"bytes":[33],"top_logprobs":[]}]`),
			},
		},
		"sglang":         thought,
		"sglang-tools":   sglangCalls,
		"llamacpp":       with(func(r *llm.Response) { r.Usage.Reasoning = nil }),
		"llamacpp-tools": called([2]string{"Qy1", "Qy2"}, [2]string{`{"city": "X"}`, ""}),
		"ollama": with(func(r *llm.Response) {
			r.Text = "It is <b>&🙂."
			r.Usage = llm.Usage{Prompt: 9, Completion: 5}
		}),
		"ollama-tools": called([2]string{"call_o1", "call_o2"}, [2]string{`{"city":"X"}`, "{}"}),
		"simulator":    thought,
		"openai":       with(func(r *llm.Response) { r.Usage = llm.Usage{Prompt: 9, Completion: 5} }),
		"vllm-raw":     raw, "sglang-raw": rawReasoned,
		"llamacpp-raw": func() llm.Response {
			r := raw
			r.Logprobs = []json.RawMessage{json.RawMessage(
				`[{"id":3974,"token":" Par","bytes":[32,80,97,114],"logprob":-0.25,"top_logprobs":[{"id":3974,"token":" Par","bytes":[32,80,97,114],"logprob":-0.25}]}]`,
			)}
			return r
		}(),
		"vllm-echo":   echo(`[{"token":" sea","logprob":-9.25},{"token":" first","logprob":-1.5}]`, nil),
		"sglang-echo": echo(`[{"token":" first","logprob":-1.5},{"token":" one","logprob":-2.0}]`, number(0)),
		"simulator-echo": {
			Text: "The sea isSimulated", Finish: llm.Length, Usage: llm.Usage{Prompt: 3, Completion: 2, Reasoning: number(0)},
			Logprobs: []json.RawMessage{
				json.RawMessage(`[{"token":"The","logprob":null},{"token":" sea","logprob":-24.99412039642375,"top_logprobs":[{"token":" fish","logprob":-1.3857758853707907}]},` +
					`{"token":" is","logprob":-24.99412039642375,"top_logprobs":[{"token":" big","logprob":-1.3857758853707907}]}]`),
				json.RawMessage(`[{"token":"Simu","logprob":-24.99412039642375,"top_logprobs":[{"token":" heat","logprob":-1.3857758853707907}]}]`),
				json.RawMessage(`[{"token":"lated","logprob":-24.99412039642375,"top_logprobs":[{"token":" cloud","logprob":-1.3857758853707907}]}]`),
			},
		},
		"openai-refusal": {Text: "I can\u2019t.", Finish: llm.Stop, Usage: llm.Usage{Prompt: 9, Completion: 5}},
		// The first name comes in pieces, the second with every piece.
		"openai-names": called([2]string{"call_n1", "call_n2"}, [2]string{`{"city":"X"}`, "{}"}),
		// Its JSON is ASCII, and its tokens end in the middle of characters.
		"openai-halves": {
			Text: "a 😀!", Reasoning: "🤔 hm", Calls: []llm.Call{{ID: "c1", Name: "f", Arguments: `{"x":"😀"}`}},
			Finish: llm.ToolCalls, Usage: llm.Usage{Prompt: 9, Completion: 8},
		},
		// Its words for the end are its own.
		"tgi": {Text: "It is.", Finish: llm.Stop, Usage: llm.Usage{Prompt: 9, Completion: 3}},
		// No counts came, so what came is counted.
		"openai-cr": {Text: "It is.", Finish: llm.Stop, Usage: llm.Usage{Completion: 2}},
	}
}

func TestEveryRecordedStreamIsInTheTable(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.sse")
	require.NoError(t, err)
	require.Len(t, files, len(conformance()))
}

func TestRecordedStreamsMeanWhatTheirEnginesSaid(t *testing.T) {
	t.Parallel()
	for name, want := range conformance() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, &want, fold(t, events(t, bytes.NewReader(fixture(t, name)))))
		})
	}
}

func TestCallsNameThemselvesOnce(t *testing.T) {
	t.Parallel()
	for name := range conformance() {
		named := map[int]bool{}
		for _, e := range events(t, bytes.NewReader(fixture(t, name))) {
			if e.Kind != llm.ToolCall {
				continue
			}
			first := !named[e.Call.Index]
			require.Equal(t, first, e.Call.ID != "", name)
			require.Equal(t, first, e.Call.Name != "", name)
			named[e.Call.Index] = true
		}
	}
}

// cutReader gives its bytes in two reads.
type cutReader struct {
	parts [2][]byte
}

func (c *cutReader) Read(b []byte) (int, error) {
	for i := range c.parts {
		if len(c.parts[i]) > 0 {
			n := copy(b, c.parts[i])
			c.parts[i] = c.parts[i][n:]
			return n, nil
		}
	}
	return 0, io.EOF
}

func TestWhereBytesAreCutMakesNoDifference(t *testing.T) {
	t.Parallel()
	for name := range conformance() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := fixture(t, name)
			want := events(t, bytes.NewReader(data))
			for at := range data {
				require.Equal(t, want, events(t, &cutReader{[2][]byte{data[:at], data[at:]}}), at)
			}
			require.Equal(t, want, events(t, iotest.OneByteReader(bytes.NewReader(data))))
			require.Equal(t, want, events(t, iotest.DataErrReader(bytes.NewReader(data))))
		})
	}
}

// An answer that breaks off anywhere is an error, and what came before is the
// beginning of the answer.
func TestWhatBreaksOffIsAnErrorEverywhere(t *testing.T) {
	t.Parallel()
	for name := range conformance() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := fixture(t, name)
			want := events(t, bytes.NewReader(data))
			end := bytes.Index(data, []byte(`"finish_reason":"`))
			if end < 0 {
				end = bytes.Index(data, []byte(`"finish_reason": "`))
			}
			for at := range end {
				for _, broken := range []error{io.EOF, errors.New("connection reset")} {
					if !errors.Is(broken, io.EOF) && at%7 != 0 {
						continue // how it breaks matters little once a few places agree
					}
					var list []llm.Event
					r := io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(broken))
					_, err := openaihttp.Decode(r, func(e llm.Event) error { list = append(list, e); return nil })
					require.True(t, fault.Is(err, fault.Engine), err)
					require.Equal(t, "the engine's answer was cut off", fault.Of(err).Message)
					require.LessOrEqual(t, len(list), len(want))
					require.Equal(t, want[:len(list)], append([]llm.Event{}, list...))
				}
			}
		})
	}
}

func TestTheQuickWayAgreesWithTheWholeOne(t *testing.T) {
	t.Parallel()
	quick := 0
	for name := range conformance() {
		for line := range bytes.Lines(fixture(t, name)) {
			data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
			if !ok || bytes.Equal(data, []byte("[DONE]")) {
				continue
			}
			if agree(t, data) {
				quick++
			}
		}
	}
	require.Greater(t, quick, 40, "the usual chunk goes the quick way")
}

// agree compares the two ways of reading a chunk and tells whether the quick
// one took it.
func agree(t testing.TB, data []byte) bool {
	t.Helper()
	got, ok := openaihttp.DecodeQuick(data)
	if !ok {
		return false
	}
	want, err := openaihttp.DecodeSlow(data)
	require.NoError(t, err, "%s", data)
	require.Equal(t, want, got, "%s", data)
	return true
}

func FuzzChunk(f *testing.F) {
	for name := range conformance() {
		for line := range bytes.Lines(fixture(f, name)) {
			f.Add(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: ")))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}

func FuzzStream(f *testing.F) {
	for name := range conformance() {
		f.Add(fixture(f, name), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		read := func(r io.Reader) (list []llm.Event, usage llm.Usage, code fault.Code) {
			var fold llm.Fold
			usage, err := openaihttp.Decode(r, func(e llm.Event) error {
				list = append(list, e)
				require.True(t, utf8.ValidString(e.Text))
				return fold.Add(e)
			})
			if err != nil {
				return list, usage, fault.Of(err).Code
			}
			_, err = fold.Response()
			require.NoError(t, err)
			return list, usage, ""
		}
		list, usage, code := read(bytes.NewReader(data))
		at = min(max(0, at), len(data))
		again, sameUsage, sameCode := read(&cutReader{[2][]byte{data[:at], data[at:]}})
		named(list)
		named(again)
		require.Equal(t, list, again)
		require.Equal(t, usage, sameUsage)
		require.Equal(t, code, sameCode)
	})
}

// named replaces ids, which are made up where the engine gives none.
func named(list []llm.Event) {
	for i := range list {
		if list[i].Call != nil && list[i].Call.ID != "" {
			list[i].Call.ID = "id"
		}
	}
}
