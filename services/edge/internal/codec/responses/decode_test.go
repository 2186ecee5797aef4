package responses_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
	"github.com/engy-ai/engy/services/edge/internal/codec/responses"
)

func TestEffortIsRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]string{
		`"reasoning":{"effort":"high","summary":"auto"}`: {"high", ""},
		`"reasoning":{"effort":null,"summary":"auto"}`:   {"", ""},
		`"reasoning":{"enabled":false}`:                  {"", "disabled"},
		`"reasoning":null`:                               {"", ""},
	} {
		req := decoded(t, `{"model":"m","input":"go",`+body+`}`)
		require.Equal(t, want, [2]string{req.Effort, req.Thinking}, body)
		require.Empty(t, req.Extra, body)
	}
}

func TestACallerMayNameItsCache(t *testing.T) {
	t.Parallel()
	req := decoded(t, `{"model":"m","input":"go","prompt_cache_key":"shelf"}`)
	require.Equal(t, `"shelf"`, req.CacheKey)
	require.Empty(t, req.Extra)
}

func TestRequirementsForWorkersAreRead(t *testing.T) {
	t.Parallel()
	req := decoded(t, `{"model":"m","input":"go","provider":{"zdr":true,"region_only":["eu"],"data_collection":"deny"}}`)
	require.Equal(t, llm.Policy{ZDR: true, RegionOnly: []string{"eu"}, Collect: "deny"}, req.Policy)
}

func TestARefusalQuotesNoContent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"model":"m","input":"MARKER" x}`,
		`{"model":"m","input":[{"role":"MARKER","content":"x"}]}`,
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":"MARKER"}]}]}`,
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"MARKER"}]}]}`,
		`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":["MARKER"]}]}`,
		`{"model":"m","input":"x","tool_choice":"MARKER"}`,
		`{"model":"m","input":"x","tools":[{"type":"custom","name":"f","format":"MARKER"}]}`,
		`{"model":"m","input":"x","reasoning":"MARKER"}`,
		`{"model":"m","input":"x","text":{"format":{"type":"MARKER"}}}`,
		`{"model":"m","input":"x","previous_response_id":"MARKER"}`,
	} {
		_, err := responses.Codec{}.Decode(route, []byte(body))
		require.Error(t, err, body)
		_, out := responses.Codec{}.Error(err, "id")
		require.NotContains(t, string(out), "MARKER")
	}
}

// list joins n copies of an element.
func list(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

func TestLimitsAreCheckedAtTheirBounds(t *testing.T) {
	t.Parallel()
	message := `{"role":"user","content":"x"}`
	tool := `{"type":"function","name":"f"}`
	name := func(n int) string { return strings.Repeat("f", n) }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, limit := range []struct{ what, good, bad string }{
		{"items", `"input":` + list(message, 20_000), `"input":` + list(message, 20_001)},
		{"tools", `"input":"x","tools":` + list(tool, 1_024), `"input":"x","tools":` + list(tool, 1_025)},
		{
			"tools of namespaces",
			`"input":"x","tools":` + list(`{"type":"namespace","name":"n","tools":`+list(tool, 512)+`}`, 2),
			`"input":"x","tools":` + list(`{"type":"namespace","name":"n","tools":`+list(tool, 513)+`}`, 2),
		},
		{
			"name of a tool",
			`"input":"x","tools":[{"type":"function","name":"` + name(256) + `"}]`,
			`"input":"x","tools":[{"type":"function","name":"` + name(257) + `"}]`,
		},
		{
			"name of a call",
			`"input":[{"type":"function_call","call_id":"c","name":"` + name(256) + `"}]`,
			`"input":[{"type":"function_call","call_id":"c","name":"` + name(257) + `"}]`,
		},
		{"top_logprobs", `"input":"x","top_logprobs":30`, `"input":"x","top_logprobs":31`},
		{"effort", `"input":"x","reasoning":{"effort":"` + name(64) + `"}`, `"input":"x","reasoning":{"effort":"` + name(65) + `"}`},
		{"depth of a kept value", `"input":"x","k":` + deep(1_000), `"input":"x","k":` + deep(1_001)},
		{
			"depth of a schema",
			`"input":"x","tools":[{"type":"function","name":"f","parameters":{"a":` + deep(999) + `}}]`,
			`"input":"x","tools":[{"type":"function","name":"f","parameters":{"a":` + deep(1_000) + `}}]`,
		},
		{
			"depth of a format",
			`"input":"x","text":{"format":{"type":"json_schema","a":` + deep(999) + `}}`,
			`"input":"x","text":{"format":{"type":"json_schema","a":` + deep(1_000) + `}}`,
		},
	} {
		_, err := responses.Codec{}.Decode(route, []byte(`{"model":"m",`+limit.good+`}`))
		require.NoError(t, err, limit.what)
		_, err = responses.Codec{}.Decode(route, []byte(`{"model":"m",`+limit.bad+`}`))
		require.True(t, fault.Is(err, fault.Invalid), limit.what)
	}
}

func TestWhatIsRepeatedIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 256 << 10
	repeated := func(size int) string {
		text := `"` + strings.Repeat("x", size-2) + `"`
		req := decoded(t, `{"model":"m","input":"go","instructions":`+text+`,"user":`+text+`}`)
		require.Len(t, req.Items, 2, "the model gets the instructions whatever their size")
		var out struct {
			Instructions *string `json:"instructions"`
			User         *string `json:"user"`
		}
		require.NoError(t, json.Unmarshal(written(t, req, false, []llm.Event{{Kind: llm.Done, Finish: llm.Stop}}), &out))
		require.Equal(t, out.Instructions, out.User)
		if out.User == nil {
			return ""
		}
		return *out.User
	}
	require.Len(t, repeated(bound), bound-2)
	require.Empty(t, repeated(bound+1))
}

func TestARequestOfAnotherCodecIsAnsweredToo(t *testing.T) {
	t.Parallel()
	var out map[string]any
	body := written(t, &llm.Request{Spelling: "m"}, false, []llm.Event{{Kind: llm.Text, Text: "x"}, {Kind: llm.Done, Finish: llm.Stop}})
	require.NoError(t, json.Unmarshal(body, &out))
	require.Equal(t, []any{}, out["tools"])
}

func TestNoBodyIsDear(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	codectest.Hostile(t, responses.Codec{}, route, map[string]string{
		`{"model":"m","input":[MANY]}`:                                                    `{"type":"reasoning","summary":[{"text":"` + long + `"}]},{"type":"item_reference","id":"x"}`,
		`{"model":"m","input":[MANY ]}`:                                                   `{"type":"function_call","call_id":"c","name":"f","arguments":"` + long + `"}`,
		`{"model":"m","input":[MANY  ]}`:                                                  `{"type":"function_call_output","call_id":"c","output":"` + long + `"}`,
		`{"model":"m","input":[{"role":"user","content":[MANY]}]}`:                        `{"text":"x"}`,
		`{"model":"m","input":[{"type":"reasoning","content":[MANY]}]}`:                   `{"text":"x"}`,
		`{"model":"m","input":"x","tools":[MANY]}`:                                        `{"type":"web_search"}`,
		`{"model":"m","input":"x","include":[MANY]}`:                                      `"x"`,
		`{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","tools":[MANY]}}`: `{"name":"x"}`,
		`{"model":"m","input":"x","tool_choice":[MANY]}`:                                  `1`,
		`{"model":"m","input":"x","instructions":"MANY"}`:                                 `\n`,
	})
}

func TestEveryFailureHasACode(t *testing.T) {
	t.Parallel()
	req := decoded(t, `{"model":"m","input":"go","stream":true}`)
	codes := map[fault.Code]string{
		fault.Overlong: "context_length_exceeded", fault.NoFunds: "insufficient_quota", fault.Busy: "rate_limit_exceeded",
		fault.Invalid: "invalid_prompt", fault.TooLarge: "invalid_prompt", fault.HeadTooLarge: "invalid_prompt",
	}
	for _, c := range fault.Codes() {
		want := codes[c]
		if want == "" {
			want = "server_error"
		}
		for _, f := range []*llm.Fault{{Code: c, Message: "why"}, nil} {
			out := written(t, req, true, []llm.Event{{Kind: llm.Failed, Fault: f}})
			_, frame, _ := bytes.Cut(out, []byte("event: response.failed\ndata: "))
			if f == nil {
				want = "server_error"
			}
			require.Contains(t, string(frame), `"error":{"code":`+strconv.Quote(want)+`,"message":`, "%s", c)
			require.NotContains(t, string(frame), `"finish_reason"`)
		}
	}
}

func TestThoughtsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	req := decoded(t, `{"model":"m","input":"go","include":["reasoning.encrypted_content"]}`)
	var out struct {
		Output []jsontext.Value `json:"output"`
	}
	require.NoError(t, json.Unmarshal(written(t, req, false, []llm.Event{
		{Kind: llm.Reasoning, Text: "北京 \n"}, {Kind: llm.Text, Text: "x"}, {Kind: llm.Done, Finish: llm.Stop},
	}), &out))
	for _, sent := range []string{
		string(out.Output[0]),
		strings.Replace(string(out.Output[0]), `"summary":[`, `"summary":[],"x":[`, 1),
		strings.Replace(string(out.Output[0]), `"encrypted_content"`, `"x"`, 1),
	} {
		again := decoded(t, `{"model":"m","input":[{"role":"user","content":"go"},`+sent+`,`+string(out.Output[1])+`]}`)
		require.Equal(t, "北京 \n", again.Items[1].Reasoning, sent)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(everyTool))
	for _, body := range codectest.Requests(f, "testdata") {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := responses.Codec{}.Decode(route, body)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.Of(err).Code, "%v", err)
			return
		}
		requirePaired(t, req)
		raw, err := json.Marshal(req)
		require.NoError(t, err, "what is kept is valid")
		require.NoError(t, json.Unmarshal(raw, new(llm.Request)))
		out := written(t, req, false, []llm.Event{{Kind: llm.Text, Text: "x"}, {Kind: llm.Done, Finish: llm.Stop}})
		require.NoError(t, json.Unmarshal(out, new(map[string]any)), "what is repeated is valid")
		require.NotContains(t, string(out), "\n", "a frame is one line")
	})
}

// requirePaired checks that every call is followed by its answer, and every answer
// preceded by its call.
func requirePaired(t *testing.T, req *llm.Request) {
	var open []string
	require.NotEmpty(t, req.Items)
	for _, it := range req.Items {
		if it.Role == llm.Tool {
			require.NotEmpty(t, open, "an answer without a call")
			require.Equal(t, open[0], it.CallID)
			open = open[1:]
			continue
		}
		require.Empty(t, open, "a call without an answer")
		for _, c := range it.Calls {
			open = append(open, c.ID)
		}
	}
	require.Empty(t, open)
}

func BenchmarkDecode(b *testing.B) {
	codectest.BenchDecode(b, responses.Codec{}, route, []byte(`{"model":"m","input":[`+codectest.Repeat(
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"TEXT"}]},`+
			`{"type":"function_call","call_id":"call_1","name":"f","arguments":"{\"path\":\"a.go\"}"},`+
			`{"type":"function_call_output","call_id":"call_1","output":"TEXT"},`+
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"TEXT"}]}`)+`]}`))
}
