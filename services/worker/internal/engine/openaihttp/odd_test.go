package openaihttp_test

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// lines makes a stream of chunks.
func lines(chunks ...string) io.Reader {
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString("data: " + c + "\n\n")
	}
	return strings.NewReader(b.String())
}

func delta(members string) string {
	return `{"choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}]}`
}

func end(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func piece(index int, id, name, args string) string {
	return delta(`"tool_calls":[{"index":` + strconv.Itoa(index) + `,"id":"` + id + `","function":{"name":"` + name +
		`","arguments":` + strconv.Quote(args) + `}}]`)
}

const said = `{"choices":[{"index":0,"delta":{"content":"hel"},"finish_reason":null}]}`

func TestOddChunksEndOnlyTheirExchange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chunk   string
		code    fault.Code
		message string
	}{
		"a null choice":            {`{"choices":[null]}`, fault.Engine, "the engine's answer cannot be read"},
		"indices out of range":     {`{"choices":[{"index":-1,"delta":{"tool_calls":[{"index":99999999}]}}]}`, fault.Engine, "the engine's answer cannot be read"},
		"another choice":           {`{"choices":[{"index":1,"delta":{"content":"x"}}]}`, fault.Engine, "the engine's answer cannot be read"},
		"two choices":              {`{"choices":[{"index":0},{"index":1}]}`, fault.Engine, "the engine's answer cannot be read"},
		"content is an object":     {delta(`"content":{"text":"x"}`), fault.Engine, "the engine's answer cannot be read"},
		"choices is an object":     {`{"choices":{}}`, fault.Engine, "the engine's answer cannot be read"},
		"a call at a high index":   {delta(`"tool_calls":[{"index":99999999,"function":{"name":"f"}}]`), fault.Engine, "the engine's answer cannot be read"},
		"a call at the bound":      {delta(`"tool_calls":[{"index":128,"function":{"name":"f"}}]`), fault.Engine, "the engine's answer cannot be read"},
		"a call below zero":        {delta(`"tool_calls":[{"index":-1,"function":{"name":"f"}}]`), fault.Engine, "the engine's answer cannot be read"},
		"a null call":              {delta(`"tool_calls":[null]`), fault.Engine, "the engine's answer cannot be read"},
		"arguments are a number":   {delta(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":1}}]`), fault.Engine, "the engine's answer cannot be read"},
		"logprobs are an object":   {`{"choices":[{"index":0,"delta":{},"logprobs":{"content":{}}}]}`, fault.Engine, "the engine's answer cannot be read"},
		"broken JSON":              {`{"choices":[{"index":0,"delta":{"content":"bro`, fault.Engine, "the engine's answer cannot be read"},
		"not an object":            {`1`, fault.Engine, "the engine's answer cannot be read"},
		"deep nesting":             {strings.Repeat("[", 1<<20), fault.Engine, "the engine's answer cannot be read"},
		"an abort with the text":   {`{"choices":[{"index":0,"delta":{"content":"hello again"},"finish_reason":"abort"}]}`, fault.Engine, "the engine gave up before the answer was finished"},
		"an abort in capitals":     {end("ABORT"), fault.Engine, "the engine gave up before the answer was finished"},
		"TensorRT-LLM's timeout":   {end("timeout"), fault.Engine, "the engine gave up before the answer was finished"},
		"TensorRT-LLM's cancel":    {end("cancelled"), fault.Engine, "the engine gave up before the answer was finished"},
		"DeepSeek's lack of room":  {end("insufficient_system_resource"), fault.Engine, "the engine gave up before the answer was finished"},
		"an error":                 {`{"error":{"message":"boom","code":500}}`, fault.Engine, "the engine failed"},
		"an error with a word":     {`{"error":"boom"}`, fault.Engine, "the engine failed"},
		"an error of the caller":   {`{"error":{"message":"prompt has 900 tokens","type":"invalid_request_error","code":null}}`, fault.Invalid, "prompt has 900 tokens"},
		"an error by its code":     {`{"error":{"message":"too long","code":"400"}}`, fault.Invalid, "too long"},
		"a flat error":             {`{"object":"error","message":"too long","code":400}`, fault.Invalid, "too long"},
		"an error of load":         {`{"error":{"message":"x","type":"overloaded_error"}}`, fault.Busy, "the engine is busy"},
		"an error beside a choice": {`{"error":{"message":"x"},"choices":[]}`, fault.Engine, "the engine failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list []llm.Event
			usage, err := openaihttp.Decode(lines(said, c.chunk, delta(`"content":"lo"`), end("stop"), "[DONE]"),
				func(e llm.Event) error { list = append(list, e); return nil })
			f := fault.Of(err)
			require.Equal(t, c.code, f.Code, err)
			require.Equal(t, c.message, f.Message)
			require.Equal(t, []llm.Event{{Kind: llm.Text, Text: "hel"}}, list)
			require.Equal(t, llm.Usage{Completion: 1}, usage)
		})
	}
}

func TestEmptyChunksSayNothing(t *testing.T) {
	t.Parallel()
	r := fold(t, events(t, lines(
		`{}`, `{"choices":null}`, `{"choices":[]}`, `{"choices":[{"index":0}]}`, `{"choices":[{"index":0,"delta":null}]}`,
		delta(`"role":"assistant","content":"","tool_calls":[]`), said, `{"error":null,"choices":[]}`, "",
		delta(`"content":"lo","tool_calls":null`), end("tool_calls"), `{"choices":[],"usage":null}`,
	)))
	require.Equal(t, &llm.Response{Text: "hello", Finish: llm.Stop, Usage: llm.Usage{Completion: 2}}, r)
}

func TestARefusalIsText(t *testing.T) {
	t.Parallel()
	for name, chunks := range map[string][]string{
		"in pieces":           {delta(`"content":null,"refusal":""`), delta(`"refusal":"I can"`), delta(`"refusal":"not."`)},
		"with an escape":      {delta(`"refusal":"I can\u006eot."`)},
		"behind some content": {delta(`"content":"I ","refusal":"can"`), delta(`"content":"","refusal":"not."`)},
		"that is no text":     {delta(`"content":"I cannot.","refusal":false`), delta(`"refusal":{"a":1}`), delta(`"refusal":null`)},
		"in one piece":        {`{"choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"I cannot."}}]}`},
	} {
		r := fold(t, events(t, lines(append(chunks, end("stop"))...)))
		require.Equal(t, "I cannot.", r.Text, name)
		require.Positive(t, r.Usage.Completion)
	}
}

func TestWhyAnAnswerEnded(t *testing.T) {
	t.Parallel()
	whole, half := piece(0, "a", "f", `{"x":1}`), piece(0, "a", "f", `{"x":"`)
	for name, c := range map[string]struct {
		chunks []string
		want   llm.Finish
	}{
		"stop":                              {[]string{said, end("stop")}, llm.Stop},
		"length":                            {[]string{said, end("length")}, llm.Length},
		"filter":                            {[]string{said, end("content_filter")}, llm.Filter},
		"calls":                             {[]string{whole, end("tool_calls")}, llm.ToolCalls},
		"the old word":                      {[]string{whole, end("function_call")}, llm.ToolCalls},
		"stop after a call":                 {[]string{whole, end("stop")}, llm.ToolCalls},
		"calls without a call":              {[]string{said, end("tool_calls")}, llm.Stop},
		"length with a whole call":          {[]string{whole, end("length")}, llm.Length},
		"length, then calls":                {[]string{whole, end("length"), end("tool_calls")}, llm.Length},
		"a cut call that is said to be one": {[]string{half, end("tool_calls")}, llm.Length},
		"TGI's stop":                        {[]string{said, end("eos_token")}, llm.Stop},
		"TGI's other stop":                  {[]string{said, end("stop_sequence")}, llm.Stop},
		"eos":                               {[]string{said, end("eos")}, llm.Stop},
		"in capitals":                       {[]string{said, end("MAX_TOKENS")}, llm.Length},
		"Anthropic's stop":                  {[]string{said, end("end_turn")}, llm.Stop},
		"Anthropic's length":                {[]string{said, end("max_tokens")}, llm.Length},
		"Anthropic's calls":                 {[]string{whole, end("tool_use")}, llm.ToolCalls},
		"Mistral's length":                  {[]string{said, end("model_length")}, llm.Length},
		"length by another word":            {[]string{said, end("max_length"), end("stop")}, llm.Length},
		"a word that nobody knows":          {[]string{said, end("tired"), "[DONE]"}, llm.Stop},
		"such a word after a call":          {[]string{whole, end("tired"), "[DONE]"}, llm.ToolCalls},
		"such a word after a half call":     {[]string{half, end("tired"), "[DONE]"}, llm.Length},
		"such a word, then a known one":     {[]string{said, end("tired"), end("length")}, llm.Length},
	} {
		require.Equal(t, c.want, fold(t, events(t, lines(c.chunks...))).Finish, name)
	}
}

// A word that nobody knows is an end only when nothing else is wrong.
func TestAnUnknownEndIsNoEndOfWhatBreaksOff(t *testing.T) {
	t.Parallel()
	stream, err := io.ReadAll(lines(said, end("tired")))
	require.NoError(t, err)
	for _, rest := range []io.Reader{iotest.ErrReader(errors.New("connection reset")), strings.NewReader(`data: {"choices":[{"in`)} {
		_, err := openaihttp.Decode(io.MultiReader(bytes.NewReader(stream), rest), ignore)
		require.Equal(t, "the engine's answer was cut off", fault.Of(err).Message)
	}
}

func TestCallsAreTrue(t *testing.T) {
	t.Parallel()
	call := func(id, name, args string) llm.Call { return llm.Call{ID: id, Name: name, Arguments: args} }
	for name, c := range map[string]struct {
		chunks []string
		want   []llm.Call
	}{
		"arguments are empty":  {[]string{piece(0, "a", "f", "")}, []llm.Call{call("a", "f", "")}},
		"arguments are spaces": {[]string{piece(0, "a", "f", "   ")}, []llm.Call{call("a", "f", "   ")}},
		"the end repeats all": {
			[]string{piece(0, "a", "f", `{"x":`), piece(0, "", "", `"}{"}`), piece(0, "a", "f", `{"x":"}{"}`)},
			[]llm.Call{call("a", "f", `{"x":"}{"}`)},
		},
		"the end repeats all, spelled otherwise": {
			[]string{piece(0, "a", "f", `{"x": "\""}`), piece(0, "", "", `{"x":"\""}`)},
			[]llm.Call{call("a", "f", `{"x": "\""}`)},
		},
		"indices have a gap": {
			[]string{piece(3, "a", "f", `{}`), piece(7, "b", "g", `{"y"`), piece(7, "", "", `:2}`)},
			[]llm.Call{call("a", "f", `{}`), call("b", "g", `{"y":2}`)},
		},
		"one index for all": {
			[]string{piece(0, "a", "f", `{}`), piece(0, "b", "f", ``), piece(0, "c", "g", `{"x":1}`)},
			[]llm.Call{call("a", "f", `{}`), call("b", "f", ``), call("c", "g", `{"x":1}`)},
		},
		"no index": {
			[]string{
				delta(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]`),
				delta(`"tool_calls":[{"function":{"arguments":"}"}}]`),
				delta(`"tool_calls":[{"id":"b","function":{"name":"f","arguments":{"x": 1}}}]`),
			},
			[]llm.Call{call("a", "f", `{}`), call("b", "f", `{"x": 1}`)},
		},
		"the name comes late": {
			[]string{piece(0, "a", "", `{"x"`), piece(0, "", "f", `:1}`)},
			[]llm.Call{call("a", "f", `{"x":1}`)},
		},
		"the name comes in pieces": {
			[]string{piece(0, "a", "ge", ""), piece(0, "", "t", ""), piece(0, "", "_x", `{"x"`), piece(0, "", "", `:1}`)},
			[]llm.Call{call("a", "get_x", `{"x":1}`)},
		},
		"the name comes in pieces, and no arguments": {
			[]string{piece(0, "a", "ge", ""), piece(0, "", "t", ""), piece(1, "b", "pu", ""), piece(1, "", "t", "")},
			[]llm.Call{call("a", "get", ""), call("b", "put", "")},
		},
		"the name is repeated": {
			[]string{piece(0, "a", "get", ""), piece(0, "a", "get", ""), piece(0, "a", "get", `{"x"`), piece(0, "a", "get", `:1}`)},
			[]llm.Call{call("a", "get", `{"x":1}`)},
		},
		"a name behind the arguments": {
			[]string{piece(0, "a", "get", `{"x"`), piece(0, "", "more", `:1}`)},
			[]llm.Call{call("a", "get", `{"x":1}`)},
		},
		"two calls in turn": {
			[]string{piece(0, "a", "f", `{`), piece(1, "b", "g", `{`), piece(0, "", "", `}`), piece(1, "", "", `}`)},
			[]llm.Call{call("a", "f", `{}`), call("b", "g", `{}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, fold(t, events(t, lines(append(c.chunks, end("tool_calls"))...))).Calls)
		})
	}
}

// A call that has no arguments yet stands before what is said behind it.
func TestCallsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	list := events(t, lines(said, piece(0, "a", "f", ""), delta(`"content":"lo"`), piece(1, "b", "g", ""), end("tool_calls")))
	var kinds []llm.Kind
	for _, e := range list {
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []llm.Kind{llm.Text, llm.ToolCall, llm.Text, llm.ToolCall, llm.Done}, kinds)
}

func TestACallWithoutAnIDGetsOne(t *testing.T) {
	t.Parallel()
	r := fold(t, events(t, lines(piece(0, "", "f", "{}"), piece(1, "", "f", "{}"), end("tool_calls"))))
	require.Len(t, r.Calls, 2)
	require.Regexp(t, "^call_[A-Z0-9]{20,}$", r.Calls[0].ID)
	require.NotEqual(t, r.Calls[0].ID, r.Calls[1].ID)
}

func TestCallsHaveABound(t *testing.T) {
	t.Parallel()
	var chunks []string
	for i := range llm.CallsMax {
		chunks = append(chunks, piece(i, "id"+strconv.Itoa(i), "f", "{}"))
	}
	require.Len(t, fold(t, events(t, lines(append(chunks, end("tool_calls"))...))).Calls, llm.CallsMax)

	_, err := openaihttp.Decode(lines(append(chunks, piece(0, "more", "f", "{}"), end("tool_calls"))...), ignore)
	require.True(t, fault.Is(err, fault.Engine), err)
	require.Equal(t, "the engine made too many tool calls", fault.Of(err).Message)
}

func TestANameHasABound(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("n", openaihttp.NameBytesMax/2-1)
	r := fold(t, events(t, lines(piece(0, "a", half+"x", ""), piece(0, "", half+"y", ""), end("tool_calls"))))
	require.Equal(t, half+"x"+half+"y", r.Calls[0].Name)

	_, err := openaihttp.Decode(lines(piece(0, "a", half+"x", ""), piece(0, "", half+"yz", ""), end("tool_calls")), ignore)
	require.True(t, fault.Is(err, fault.Engine), err)
	require.Equal(t, "the engine made a tool call with too long a name", fault.Of(err).Message)
}

func TestACallWithoutANameIsAFault(t *testing.T) {
	t.Parallel()
	for _, chunks := range [][]string{
		{piece(0, "a", "", "{}"), end("tool_calls")},
		{piece(0, "a", "", "{}"), piece(1, "b", "f", "{}"), end("tool_calls")},
	} {
		_, err := openaihttp.Decode(lines(chunks...), ignore)
		require.True(t, fault.Is(err, fault.Engine), err)
		require.Equal(t, "the engine made a tool call without a name", fault.Of(err).Message)
	}
}

func TestCountsReplaceEarlierOnes(t *testing.T) {
	t.Parallel()
	usage := func(text string) string { return `{"choices":[],"usage":` + text + `}` }
	for name, c := range map[string]struct {
		chunks []string
		want   llm.Usage
	}{
		"running totals": {
			[]string{usage(`{"prompt_tokens":9,"completion_tokens":1}`), usage(`{"prompt_tokens":9,"completion_tokens":4}`), usage(`{"prompt_tokens":9,"completion_tokens":5}`)},
			llm.Usage{Prompt: 9, Completion: 5},
		},
		"more cached than there is": {
			[]string{usage(`{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":1000}}`)},
			llm.Usage{Prompt: 9, Cached: 9, Completion: 5},
		},
		// What cannot be is no count: what came is counted here instead.
		"below zero": {
			[]string{usage(`{"prompt_tokens":-9,"completion_tokens":-5,"prompt_tokens_details":{"cached_tokens":-1}}`)},
			llm.Usage{Completion: 1},
		},
		"below zero cached":  {[]string{usage(`{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}`)}, llm.Usage{Prompt: 9, Completion: 5}},
		"nothing":            {[]string{usage(`{}`)}, llm.Usage{Completion: 1}},
		"null counts":        {[]string{usage(`{"prompt_tokens":null,"completion_tokens":null}`)}, llm.Usage{Completion: 1}},
		"a sum only":         {[]string{usage(`{"total_tokens":14}`)}, llm.Usage{Completion: 1}},
		"no prompt":          {[]string{usage(`{"completion_tokens":5}`)}, llm.Usage{Completion: 1}},
		"no prompt counted":  {[]string{usage(`{"prompt_tokens":0,"completion_tokens":500}`)}, llm.Usage{Completion: 500}},
		"zeros":              {[]string{usage(`{"prompt_tokens":0,"completion_tokens":0}`)}, llm.Usage{Completion: 1}},
		"nothing was made":   {[]string{usage(`{"prompt_tokens":9,"completion_tokens":0}`)}, llm.Usage{Prompt: 9, Completion: 1}},
		"good after bad":     {[]string{usage(`{"prompt_tokens":9,"completion_tokens":-1}`), usage(`{"prompt_tokens":9,"completion_tokens":6}`)}, llm.Usage{Prompt: 9, Completion: 6}},
		"bad after good":     {[]string{usage(`{"prompt_tokens":9,"completion_tokens":6}`), usage(`{"prompt_tokens":9,"completion_tokens":-1}`)}, llm.Usage{Prompt: 9, Completion: 6}},
		"timings beside bad": {[]string{`{"choices":[],"usage":{},"timings":{"cache_n":4,"prompt_n":5,"predicted_n":6}}`}, llm.Usage{Prompt: 9, Cached: 4, Completion: 6}},
		"reasoning inside": {
			[]string{usage(`{"prompt_tokens":9,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":3},"reasoning_tokens":4}`)},
			llm.Usage{Prompt: 9, Completion: 5, Reasoning: number(3)},
		},
		"reasoning on top": {
			[]string{usage(`{"prompt_tokens":9,"completion_tokens":5,"completion_tokens_details":null,"reasoning_tokens":4}`)},
			llm.Usage{Prompt: 9, Completion: 5, Reasoning: number(4)},
		},
		"timings alone": {
			[]string{`{"choices":[],"timings":{"cache_n":4,"prompt_n":5,"predicted_n":6}}`, `{"choices":[],"timings":{"cache_n":4,"prompt_n":5,"predicted_n":7}}`},
			llm.Usage{Prompt: 9, Cached: 4, Completion: 7},
		},
		"timings after usage": {
			[]string{usage(`{"prompt_tokens":9,"completion_tokens":5}`), `{"choices":[],"timings":{"cache_n":1,"prompt_n":1,"predicted_n":1}}`},
			llm.Usage{Prompt: 9, Completion: 5},
		},
	} {
		require.Equal(t, c.want, fold(t, events(t, lines(append(c.chunks, said, end("stop"))...))).Usage, name)
	}
}

func TestLongLinesArriveWhole(t *testing.T) {
	t.Parallel()
	for _, n := range []int{70 << 10, 2 << 20} {
		text := strings.Repeat("北京🙂é", n/12)
		r := fold(t, events(t, lines(piece(0, "a", "write", `{"content":"`+strings.Repeat("x", n)+`"}`), delta(`"content":"`+text+`"`), end("stop"))))
		require.Equal(t, text, r.Text)
		require.Len(t, r.Calls[0].Arguments, n+len(`{"content":""}`))
	}
}

func TestLinesHaveABound(t *testing.T) {
	t.Parallel()
	// fill makes a stream whose longest line has n bytes.
	fill := func(n int) io.Reader {
		head := len("data: ") + len(delta(`"content":""`))
		return lines(delta(`"content":"`+strings.Repeat("x", n-head)+`"`), end("stop"))
	}
	for _, limit := range []int{1 << 10, 5000, openaihttp.LineBytesMax} {
		_, err := openaihttp.DecodeWithin(fill(limit), ignore, limit)
		require.NoError(t, err, limit)
		_, err = openaihttp.DecodeWithin(fill(limit+1), ignore, limit)
		require.True(t, fault.Is(err, fault.Engine), err)
		require.Equal(t, "the engine's answer cannot be read", fault.Of(err).Message)
	}
}

// sum is what a stream sends that never says anything.
const sum = 256 << 10

// What never ends must not be gathered for ever.
func TestStreamsWithoutEventsTakeNoMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin, line string
		bad         bool
	}{
		"a line without end":     {"", "x", true},
		"an event without end":   {"", "data: x\n", true},
		"comments":               {"", ": ping\n", false},
		"fields and no event":    {"", "event: x\n", false},
		"comments after data":    {"data: 1\n", ": ping\n", false},
		"an event of empty data": {"", "data\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rest := sum
			r := io.MultiReader(strings.NewReader(c.begin), readerFunc(func(b []byte) (int, error) {
				if rest <= 0 {
					return 0, errors.New("enough")
				}
				n := 0
				for n < len(b) {
					n += copy(b[n:], c.line[(sum-rest+n)%len(c.line):])
				}
				rest -= n
				require.LessOrEqual(t, len(b), 64<<10, "the buffer grew")
				return n, nil
			}))
			_, err := openaihttp.DecodeWithin(r, ignore, 8<<10)
			want := "the engine's answer was cut off"
			if c.bad {
				want = "the engine's answer cannot be read"
			}
			require.Equal(t, want, fault.Of(err).Message)
		})
	}
}

func TestAnEndThatWasSaidCounts(t *testing.T) {
	t.Parallel()
	stream, err := io.ReadAll(lines(said, end("stop")))
	require.NoError(t, err)
	for _, broken := range []error{io.EOF, errors.New("connection reset")} {
		for _, rest := range []string{"", "data: [DO", "data: {\"usage\"", "data: [DONE]", ": bye"} {
			r := io.MultiReader(bytes.NewReader(stream), strings.NewReader(rest), iotest.ErrReader(broken))
			got, err := openaihttp.Decode(r, ignore)
			require.NoError(t, err, rest)
			require.Equal(t, llm.Usage{Completion: 1}, got)
		}
	}
}
