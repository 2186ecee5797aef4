package openaihttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// spans says what each recorded answer to a scored span means.
func spans() map[string]struct {
	kind string
	req  *llm.Request
	want llm.Response
} {
	answer := func(scores string) llm.Response {
		return llm.Response{
			Text: " Par", Finish: llm.Length, Usage: llm.Usage{Prompt: 5, Completion: 1},
			Scores: []json.RawMessage{json.RawMessage(scores)},
		}
	}
	native := answer(`[{"id":8,"logprob":-0.5},{"id":9,"logprob":-12.0625}]`)
	native.Usage.Cached = 2
	sim := answer(`[{"id":454529615,"logprob":-24.99412039642375},{"id":454690953,"logprob":-2.7041106317725223}]`)
	sim.Text, sim.Usage.Prompt = "Simu", 4
	sim.Scores = []json.RawMessage{json.RawMessage(`[{"id":454529615,"logprob":-24.99412039642375},{"id":454690953,"logprob":-2.7041106317725223}]`)}
	type c = struct {
		kind string
		req  *llm.Request
		want llm.Response
	}
	return map[string]c{
		"span-sglang":    {openaihttp.SGLang, spanOf(rawIDs("[5,6,7,8,9]"), 3), native},
		"span-vllm":      {openaihttp.VLLM, spanOf(rawIDs("[5,6,7,8,9]"), 3), answer(`[{"id":8,"logprob":-0.5},{"id":9,"logprob":-12.0625}]`)},
		"span-vllm-text": {openaihttp.VLLM, spanOf(rawText("a b c d"), 0), answer(`[{"id":5,"logprob":null},{"id":6,"logprob":-3.0},{"id":7,"logprob":-1.0},{"id":8,"logprob":-0.5},{"id":9,"logprob":-12.0625}]`)},
		"span-simulator": {openaihttp.Simulator, spanOf(rawText("The sea is here"), 2), sim},
	}
}

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	return data
}

func TestRecordedSpansMeanWhatTheirEnginesSaid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(spans()))
	for name, c := range spans() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := recorded(t, name)
			read := func(r io.Reader) *llm.Response {
				var list []llm.Event
				usage, err := openaihttp.DecodeWhole(c.kind, c.req, r, func(e llm.Event) error { list = append(list, e); return nil })
				require.NoError(t, err)
				require.Equal(t, usage, *list[len(list)-1].Usage)
				return fold(t, list)
			}
			require.Equal(t, &c.want, read(bytes.NewReader(data)))
			require.Equal(t, &c.want, read(iotest.OneByteReader(bytes.NewReader(data))))
			for at := range data {
				for _, broken := range []error{io.EOF, errors.New("connection reset")} {
					r := io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(broken))
					_, err := openaihttp.DecodeWhole(c.kind, c.req, r, func(llm.Event) error { t.Error("an event"); return nil })
					require.True(t, fault.Is(err, fault.Engine), err)
				}
			}
			// Over HTTP it is the same.
			e := open(t, openaihttp.Config{Kind: c.kind}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(data)
			}))
			var f llm.Fold
			_, err := e.Generate(t.Context(), "m", c.req, f.Add)
			require.NoError(t, err)
			r, err := f.Response()
			require.NoError(t, err)
			r.Pieces = nil
			require.Equal(t, &c.want, r)
		})
	}
}

// What was not asked for, or not all of it, is no answer: a caller who adds up
// would not notice.
func TestAnotherSpanThanAskedForIsAFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind     string
		req      *llm.Request
		old, new string
		message  string
		code     fault.Code
	}{
		"sglang, one too few":    {openaihttp.SGLang, nil, `,[-12.0625,9,null]`, ``, "the engine's answer cannot be read", fault.Engine},
		"sglang, one too many":   {openaihttp.SGLang, nil, `[null,7,null]`, `[null,6,null],[-1,7,null]`, "the engine's answer cannot be read", fault.Engine},
		"sglang, none":           {openaihttp.SGLang, nil, `"input_token_logprobs"`, `"other"`, "the engine's answer cannot be read", fault.Engine},
		"sglang, a hole":         {openaihttp.SGLang, nil, `[-0.5,8,null]`, `[null,8,null]`, "the engine's answer cannot be read", fault.Engine},
		"sglang, no count":       {openaihttp.SGLang, nil, `"prompt_tokens":5,`, ``, "the engine's answer cannot be read", fault.Engine},
		"sglang, aborted":        {openaihttp.SGLang, nil, `"type":"length","length":1`, `"type":"abort","message":"x"`, "the engine gave up before the answer was finished", fault.Engine},
		"sglang, not finished":   {openaihttp.SGLang, nil, `{"type":"length","length":1}`, `null`, "the engine's answer cannot be read", fault.Engine},
		"sglang, an error":       {openaihttp.SGLang, nil, `{"text"`, `{"error":{"message":"boom","code":400},"text"`, "boom", fault.Invalid},
		"sglang, behind the end": {openaihttp.SGLang, spanOf(rawText("abcdefgh"), 5), "", "", "logprob_start_len must be below the length of the prompt, which is 5 tokens", fault.Invalid},
		"vllm, one too few":      {openaihttp.VLLM, nil, `,{"9":{"logprob":-12.0625,"rank":801,"decoded_token":" d"}}`, ``, "the engine's answer cannot be read", fault.Engine},
		"vllm, other tokens":     {openaihttp.VLLM, nil, `"9":{`, `"10":{`, "the engine's answer cannot be read", fault.Engine},
		"vllm, none":             {openaihttp.VLLM, nil, `"prompt_logprobs"`, `"other"`, "the engine's answer cannot be read", fault.Engine},
		"vllm, null":             {openaihttp.VLLM, nil, `{"8":{"logprob":-0.5,"rank":1,"decoded_token":" c"}}`, `null`, "the engine's answer cannot be read", fault.Engine},
		"vllm, no value":         {openaihttp.VLLM, nil, `"logprob":-12.0625,`, ``, "the engine's answer cannot be read", fault.Engine},
		"vllm, two choices":      {openaihttp.VLLM, nil, `"choices":[`, `"choices":[{},`, "the engine's answer cannot be read", fault.Engine},
		"vllm, an error":         {openaihttp.VLLM, nil, `{"id"`, `{"error":{"message":"boom","code":400},"id"`, "boom", fault.Invalid},
		"vllm, behind the end":   {openaihttp.VLLM, spanOf(rawText("abcdefgh"), 5), "", "", "logprob_start_len must be below the length of the prompt, which is 5 tokens", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := c.req
			if req == nil {
				req = spanOf(rawIDs("[5,6,7,8,9]"), 3)
			}
			data := string(recorded(t, "span-"+c.kind))
			require.Contains(t, data, c.old)
			_, err := openaihttp.DecodeWhole(c.kind, req, strings.NewReader(strings.Replace(data, c.old, c.new, 1)), ignore)
			require.True(t, fault.Is(err, c.code), "%v", err)
			require.Equal(t, c.message, fault.Of(err).Message)
		})
	}
	// The id of a text's first token must be told.
	data := strings.Replace(string(recorded(t, "span-vllm-text")), `"prompt_token_ids":[5,6,7,8,9]`, `"prompt_token_ids":null`, 1)
	_, err := openaihttp.DecodeWhole(openaihttp.VLLM, spanOf(rawText("a b c d"), 0), strings.NewReader(data), ignore)
	require.True(t, fault.Is(err, fault.Engine), "%v", err)
}

func TestARefusedOffsetIsSaidInOurWords(t *testing.T) {
	t.Parallel()
	e := open(t, openaihttp.Config{Kind: openaihttp.SGLang}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"req.logprob_start_len=7 is higher than the number of input tokens len(req.origin_input_ids)=3."}}`)
	}))
	_, err := e.Generate(t.Context(), "m", spanOf(rawText("abcdefgh"), 8), ignore)
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	require.Equal(t, "logprob_start_len must be below the length of the prompt", fault.Of(err).Message)
}

func TestALongPrefixIsPassedOver(t *testing.T) {
	t.Parallel()
	const prefix = 200_000
	var ids, places strings.Builder
	ids.WriteString("[0")
	places.WriteString("[null")
	for range prefix {
		ids.WriteString(",7")
		places.WriteString(`,{"7":{"logprob":-1.25,"rank":1,"decoded_token":"x"}}`)
	}
	ids.WriteString(",9]")
	places.WriteString(`,{"9":{"logprob":-0.5,"rank":1,"decoded_token":"y"}}]`)
	data := `{"choices":[{"index":0,"text":"z","finish_reason":"stop","prompt_logprobs":` + places.String() + `}],"usage":{"prompt_tokens":200002,"completion_tokens":1}}`
	var list []llm.Event
	_, err := openaihttp.DecodeWhole(openaihttp.VLLM, spanOf(rawIDs(ids.String()), prefix+1), strings.NewReader(data),
		func(e llm.Event) error { list = append(list, e); return nil })
	require.NoError(t, err)
	require.JSONEq(t, `[{"id":9,"logprob":-0.5}]`, string(list[0].Logprobs))
}

func TestAnswersWithScoresHaveABound(t *testing.T) {
	t.Parallel()
	data := recorded(t, "span-vllm")
	req := spanOf(rawIDs("[5,6,7,8,9]"), 3)
	for more, fits := range map[int64]bool{0: true, 1: false} {
		blanks := &repeated{" ", openaihttp.ScoresBytesMax - int64(len(data)) + more}
		r := io.MultiReader(bytes.NewReader(data[:1]), blanks, bytes.NewReader(data[1:]))
		_, err := openaihttp.DecodeWhole(openaihttp.VLLM, req, r, ignore)
		require.Equal(t, fits, err == nil, "%v", err)
		require.True(t, fits || fault.Is(err, fault.Engine))
	}
}

// repeated gives a text again and again.
type repeated struct {
	text string
	left int64
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), r.left)
	for i := range n {
		b[i] = r.text[0]
	}
	r.left -= n
	return int(n), nil
}

// An engine that is told to stop says what it has done, which is what the caller
// pays for.
func TestWhatWasDoneOfAScoreIsKnownWhenItsCallerLeaves(t *testing.T) {
	t.Parallel()
	rids := make(chan string, 2)
	aborted := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/generate", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ RID string }
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &body)
		rids <- body.RID
		<-aborted
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"text":"a b","meta_info":{"finish_reason":{"type":"abort"},"prompt_tokens":5,"cached_tokens":2,"completion_tokens":40,"input_token_logprobs":[]}}`)
	})
	var aborts atomic.Int32
	mux.HandleFunc("/abort_request", func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ RID string }
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &body)
		if aborts.Add(1) == 1 {
			rids <- body.RID
			close(aborted)
		}
	})
	e := open(t, openaihttp.Config{Kind: openaihttp.SGLang}, mux)
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan string, 1)
	go func() { first <- <-rids; cancel(fault.New(fault.Canceled, "the client left")) }()
	usage, err := e.Generate(ctx, "m", spanOf(rawIDs("[5,6,7,8,9]"), 3), ignore)
	require.True(t, fault.Is(err, fault.Canceled), "%v", err)
	require.Equal(t, llm.Usage{Prompt: 5, Cached: 2, Completion: 40}, usage)
	rid := <-first
	require.NotEmpty(t, rid)
	require.Equal(t, rid, <-rids)
	require.Equal(t, int32(1), aborts.Load())
}

func TestAnEngineThatDoesNotSayWhatItDidIsLeft(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	begun := make(chan struct{}, 1)
	e := open(t, openaihttp.Config{Kind: openaihttp.SGLang}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if r.URL.Path != "/generate" {
			return
		}
		begun <- struct{}{}
		<-r.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	at := time.Now()
	usage, err := e.Generate(ctx, "m", spanOf(rawIDs("[5]"), 0), ignore)
	require.True(t, fault.Is(err, fault.Canceled), "%v", err)
	require.Equal(t, llm.Usage{}, usage)
	require.Less(t, time.Since(at), 10*openaihttp.AbortMax)
	<-gone
}

// An engine without a way to abort notices that nobody listens.
func TestCancelClosesAScoreOfVLLM(t *testing.T) {
	t.Parallel()
	gone, begun := make(chan struct{}), make(chan struct{})
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(begun)
		<-r.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := e.Generate(ctx, "m", spanOf(rawIDs("[5]"), 0), ignore)
	require.True(t, fault.Is(err, fault.Canceled), "%v", err)
	<-gone
}

func TestASilentScoreHasTheTimeOfItsTokens(t *testing.T) {
	t.Parallel()
	for tokens, fits := range map[int64]bool{1: false, 50: true} {
		e := open(t, openaihttp.Config{Kind: openaihttp.VLLM, Idle: time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			if !fits {
				<-r.Context().Done()
				return
			}
			<-time.After(5 * openaihttp.TokenMax)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(recorded(t, "span-vllm"))
		}))
		req := spanOf(rawIDs("[5,6,7,8,9]"), 3)
		req.MaxTokens = tokens
		_, err := e.Generate(t.Context(), "m", req, ignore)
		require.Equal(t, fits, err == nil, "%v", err)
		require.True(t, fits || fault.Is(err, fault.Timeout))
	}
}

func FuzzSpan(f *testing.F) {
	for name, c := range spans() {
		f.Add(recorded(f, name), c.kind == openaihttp.VLLM, uint8(*c.req.Raw.ScoreFrom))
	}
	f.Fuzz(func(t *testing.T, data []byte, vllm bool, from uint8) {
		kind := openaihttp.SGLang
		if vllm {
			kind = openaihttp.VLLM
		}
		var fold llm.Fold
		_, err := openaihttp.DecodeWhole(kind, spanOf(rawText("some text"), int64(from)), bytes.NewReader(data), fold.Add)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.Of(err).Code)
			return
		}
		r, err := fold.Response()
		require.NoError(t, err)
		n := 0
		for _, raw := range r.Scores {
			var some []llm.TokenLogprob
			require.NoError(t, json.Unmarshal(raw, &some))
			for _, entry := range some {
				require.True(t, string(entry.Logprob) != "null" || n == 0 && from == 0)
				n++
			}
		}
		require.Positive(t, n)
	})
}
