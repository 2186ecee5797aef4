package openaihttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

func rawText(text string) *llm.Request {
	return &llm.Request{MaxTokens: 1, Raw: &llm.Raw{Text: llm.NewVerbatim(text)}}
}

func rawIDs(list string) *llm.Request {
	return &llm.Request{MaxTokens: 1, Raw: &llm.Raw{IDs: llm.TokenIDs(list)}}
}

// spanOf asks for the scores from an offset on.
func spanOf(r *llm.Request, from int64) *llm.Request {
	r.Raw.ScoreFrom = &from
	return r
}

func settings() []llm.Field {
	return []llm.Field{
		field("temperature", "0"), field("seed", "0"), field("stop", `["\n"]`), field("min_tokens", "1"), field("top_p", "null"),
		field("unknown", `{"b":1.0}`), field("echo", "true"), field("prompt", `"x"`), field("messages", "[]"), field("stream", "false"),
		field("prompt_logprobs", "5"), field("truncate_prompt_tokens", "1"), field("suffix", `"x"`), field("rid", `"x"`), field("n", "2"),
		field("add_special_tokens", "true"), field("return_token_ids", "true"), field("input_ids", "[1]"),
	}
}

func TestEnginesSeeARawPromptAsItStands(t *testing.T) {
	t.Parallel()
	with := func(r *llm.Request, change func(*llm.Request)) *llm.Request {
		r.Extra = settings()
		if change != nil {
			change(r)
		}
		return r
	}
	const (
		text     = `[gMASK]<sop><|user|>"q"\n<|assistant|><think>`
		quoted   = `"[gMASK]<sop><|user|>\"q\"\\n<|assistant|><think>"`
		usual    = `"temperature":0,"seed":0,"stop":["\n"],"min_tokens":1,"top_p":null,"unknown":{"b":1.0}`
		sampling = `"temperature":0,"sampling_seed":0,"stop":["\n"],"min_new_tokens":1`
		running  = `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`
	)
	scored := func(r *llm.Request) { r.Raw.Echo, r.Logprobs, r.TopLogprobs = true, true, 3 }
	for name, c := range map[string]struct {
		kind       string
		req        *llm.Request
		path, want string
	}{
		"vllm, a text":    {openaihttp.VLLM, with(rawText(text), nil), "/v1/completions", `{"model":"m","prompt":` + quoted + `,"add_special_tokens":false,` + running + `,"max_tokens":1,` + usual + `}`},
		"vllm, ids":       {openaihttp.VLLM, with(rawIDs("[1, 2]"), nil), "/v1/completions", `{"model":"m","prompt":[1, 2],` + running + `,"max_tokens":1,` + usual + `}`},
		"vllm, an echo":   {openaihttp.VLLM, with(rawIDs("[1,2]"), scored), "/v1/completions", `{"model":"m","prompt":[1,2],` + running + `,"echo":true,"logprobs":3,"max_tokens":1,` + usual + `}`},
		"vllm, a span":    {openaihttp.VLLM, with(spanOf(rawIDs("[1,2]"), 1), nil), "/v1/completions", `{"model":"m","prompt":[1,2],"prompt_logprobs":0,"max_tokens":1,` + usual + `}`},
		"vllm, of a text": {openaihttp.VLLM, with(spanOf(rawText("ab"), 1), nil), "/v1/completions", `{"model":"m","prompt":"ab","add_special_tokens":false,"prompt_logprobs":0,"return_token_ids":true,"max_tokens":1,` + usual + `}`},
		"sglang, a text":  {openaihttp.SGLang, with(rawText(text), nil), "/v1/completions", `{"model":"m","prompt":` + quoted + `,` + running + `,"max_tokens":1,` + usual + `,"rid":"r"}`},
		"sglang, an echo": {openaihttp.SGLang, with(rawText("ab"), scored), "/v1/completions", `{"model":"m","prompt":"ab",` + running + `,"echo":true,"logprobs":3,"max_tokens":1,` + usual + `,"rid":"r"}`},
		// One token more than asked for, since its first has no value.
		"sglang, a span":               {openaihttp.SGLang, with(spanOf(rawIDs("[1,2,3]"), 2), nil), "/generate", `{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":1,` + sampling + `},"return_logprob":true,"logprob_start_len":1,"rid":"r"}`},
		"sglang, from the start":       {openaihttp.SGLang, with(spanOf(rawIDs("[1,2,3]"), 0), nil), "/generate", `{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":1,` + sampling + `},"return_logprob":true,"logprob_start_len":0,"rid":"r"}`},
		"the simulator, a span":        {openaihttp.Simulator, with(spanOf(rawText("ab"), 1), nil), "/generate", `{"model":"m","text":"ab","sampling_params":{"max_new_tokens":1,` + sampling + `},"return_logprob":true,"logprob_start_len":0,"rid":"r"}`},
		"llama.cpp, a text":            {openaihttp.LlamaCpp, with(rawText("ab"), nil), "/v1/completions", `{"model":"m","prompt":"ab","stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"max_tokens":1,` + usual + `}`},
		"an echo that needs no engine": {openaihttp.OpenAI, with(rawText("ab"), func(r *llm.Request) { r.Raw.Echo = true }), "/v1/completions", `{"model":"m","prompt":"ab","stream":true,"stream_options":{"include_usage":true},"max_tokens":1,` + usual + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rid := ""
			if strings.HasSuffix(c.want, `"rid":"r"}`) {
				rid = "r"
			}
			for range 10 {
				got := openaihttp.Encode(c.kind, "m", c.req, rid)
				require.Equal(t, c.want, string(got))
				require.True(t, json.Valid(got))
			}
			require.Equal(t, c.path, openaihttp.Ask(c.kind, c.req))
		})
	}
}

func TestAnEngineIsNotAskedForWhatItCannotDo(t *testing.T) {
	t.Parallel()
	echo := func(r *llm.Request, logprobs bool) *llm.Request {
		r.Raw.Echo, r.Logprobs, r.TopLogprobs = true, logprobs, 1
		return r
	}
	asked := func(t *testing.T, kind string, req *llm.Request) error {
		t.Helper()
		e := open(t, openaihttp.Config{Kind: kind}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}))
		_, err := e.Generate(t.Context(), "m", req, ignore)
		return err
	}
	for name, c := range map[string]struct {
		req   *llm.Request
		kinds string
	}{
		"a text":                     {rawText("x"), "vllm sglang simulator llamacpp openai"},
		"ids":                        {rawIDs("[1]"), "vllm sglang simulator llamacpp"},
		"a span":                     {spanOf(rawIDs("[1]"), 0), "vllm sglang simulator"},
		"a span of a text":           {spanOf(rawText("x"), 0), "vllm sglang simulator"},
		"a scored echo":              {echo(rawText("x"), true), "vllm sglang simulator"},
		"an echo of ids":             {echo(rawIDs("[1]"), false), "vllm sglang simulator"},
		"an echo that is not scored": {echo(rawText("x"), false), "vllm sglang simulator llamacpp openai"},
	} {
		for _, kind := range []string{openaihttp.VLLM, openaihttp.SGLang, openaihttp.Simulator, openaihttp.LlamaCpp, openaihttp.Ollama, openaihttp.OpenAI} {
			err := asked(t, kind, c.req)
			require.True(t, fault.Is(err, fault.Engine), "%v", err)
			can := strings.Contains(c.kinds, kind)
			require.Equal(t, can, fault.Of(err).Message == "the engine failed", "%s, %s: %v", name, kind, err)
		}
	}
}

func TestAnEchoThatIsNotScoredIsOurs(t *testing.T) {
	t.Parallel()
	req := rawText("The sea \u2028\x00")
	req.Raw.Echo = true
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, serve(fixture(t, "vllm-raw")))
	var f llm.Fold
	usage, err := e.Generate(t.Context(), "m", req, f.Add)
	require.NoError(t, err)
	r, err := f.Response()
	require.NoError(t, err)
	require.Equal(t, "The sea \u2028\x00 Paris. <think>", r.Text)
	require.Equal(t, int64(5), usage.Completion)
}

func TestManyLogprobsComeInParts(t *testing.T) {
	t.Parallel()
	const n = 5000
	var tokens, values, tops []string
	for i := range n {
		tokens = append(tokens, fmt.Sprintf(`"token-%d"`, i))
		values = append(values, fmt.Sprintf("-%d.5", i))
		tops = append(tops, fmt.Sprintf(`{"a":-%d,"a":-1e-7}`, i))
	}
	chunk := `{"choices":[{"index":0,"text":"x","finish_reason":"stop","logprobs":{"tokens":[` + strings.Join(tokens, ",") +
		`],"token_logprobs":[` + strings.Join(values, ",") + `],"top_logprobs":[` + strings.Join(tops, ",") + `]}}]}`
	list := events(t, lines(chunk))
	var all []llm.TokenLogprob
	for i, e := range list[:len(list)-1] {
		require.Equal(t, i == 0, e.Text == "x", "the text comes once")
		require.Less(t, len(e.Logprobs), openaihttp.PartBytesMax+1<<10)
		var some []llm.TokenLogprob
		require.NoError(t, json.Unmarshal(e.Logprobs, &some))
		all = append(all, some...)
	}
	require.Greater(t, len(list), 3)
	require.Len(t, all, n)
	for i, entry := range all {
		require.Equal(t, fmt.Sprintf("token-%d", i), entry.Token)
		require.Equal(t, values[i], string(entry.Logprob))
		require.Len(t, entry.Top, 2, "twins are for the caller's side to join")
	}
}

func TestListsThatDoNotFitAreAFault(t *testing.T) {
	t.Parallel()
	for name, lists := range map[string]string{
		"fewer values":   `{"tokens":["a","b"],"token_logprobs":[-1]}`,
		"more values":    `{"tokens":["a"],"token_logprobs":[-1,-2]}`,
		"fewer tops":     `{"tokens":["a","b"],"token_logprobs":[-1,-2],"top_logprobs":[{}]}`,
		"words":          `{"tokens":["a"],"token_logprobs":["-1"]}`,
		"a word on top":  `{"tokens":["a"],"token_logprobs":[-1],"top_logprobs":[{"a":"b"}]}`,
		"no token":       `{"tokens":[5],"token_logprobs":[-1]}`,
		"not even lists": `{"tokens":"a"}`,
	} {
		chunk := `{"choices":[{"index":0,"text":"x","finish_reason":"stop","logprobs":` + lists + `}]}`
		_, err := openaihttp.Decode(lines(chunk), ignore)
		require.True(t, fault.Is(err, fault.Engine), name)
	}
	for name, lists := range map[string]string{
		"empty ones":   `{"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]}`,
		"no tops":      `{"tokens":["a"],"token_logprobs":[-1],"top_logprobs":[]}`,
		"null as tops": `{"tokens":["a"],"token_logprobs":[null],"top_logprobs":[null]}`,
		"null":         `null`,
	} {
		chunk := `{"choices":[{"index":0,"text":"x","finish_reason":"stop","logprobs":` + lists + `}]}`
		require.Len(t, events(t, lines(chunk)), 2, name)
	}
}

func TestAnIDPromptIsCountedByItself(t *testing.T) {
	t.Parallel()
	e := open(t, openaihttp.Config{Kind: openaihttp.VLLM}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, `{"count":%d}`, strings.Count(string(body), `"prompt":"abc"`)*7)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	for want, req := range map[int64]*llm.Request{3: rawIDs("[1,2,3]"), 7: rawText("abc")} {
		usage, err := e.Generate(t.Context(), "m", req, ignore)
		require.NoError(t, err)
		require.Equal(t, llm.Usage{Prompt: want, Completion: 1}, usage)
		n, err := e.Count(t.Context(), "m", req)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}
