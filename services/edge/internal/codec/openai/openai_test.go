package openai_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
)

const route = "POST /v1/chat/completions"

func TestGoldenCases(t *testing.T) {
	t.Parallel()
	codectest.Run(t, openai.Codec{}, route, "testdata")
}

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Codes() {
		status, body := openai.Codec{}.Error(fault.New(c, "why"), "id")
		require.Equal(t, c == fault.Internal, status == 500, "%s", c)
		var shape struct {
			Error struct {
				Message string  `json:"message"`
				Type    string  `json:"type"`
				Param   *string `json:"param"`
				Code    int     `json:"code"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal(body, &shape, json.RejectUnknownMembers(true)))
		require.Equal(t, status, shape.Error.Code)
		require.NotEmpty(t, shape.Error.Type)
	}
}

func TestAnInternalErrorTellsOnlyItsID(t *testing.T) {
	t.Parallel()
	_, body := openai.Codec{}.Error(fault.Wrap(fault.Internal, "secret detail", nil), "abc123")
	require.Contains(t, string(body), "abc123")
	require.NotContains(t, string(body), "secret")
}

func TestARefusalQuotesNoContent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"MARKER" x}]}`,
		`{"model":"m","messages":[{"role":"MARKER","content":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"MARKER"}]}]}`,
		`{"model":"m","max_tokens":"MARKER","messages":[{"role":"user","content":"x"}]}`,
	} {
		_, err := openai.Codec{}.Decode(route, []byte(body))
		require.Error(t, err)
		_, out := openai.Codec{}.Error(err, "id")
		require.NotContains(t, string(out), "MARKER")
	}
}

func TestALimitIsCheckedAtItsBound(t *testing.T) {
	t.Parallel()
	message := `{"role":"user","content":"x"}`
	body := func(n int) []byte {
		return []byte(`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(message+",", n), ",") + `]}`)
	}
	_, err := openai.Codec{}.Decode(route, body(20_000))
	require.NoError(t, err)
	_, err = openai.Codec{}.Decode(route, body(20_001))
	require.True(t, fault.Is(err, fault.Invalid))
}

func TestEffortIsReadInAllItsForms(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]string{
		`"reasoning_effort":"high"`:                                   {"high", ""},
		`"reasoning_effort":"NONE"`:                                   {"NONE", ""},
		`"reasoning_effort":"banana"`:                                 {"banana", ""},
		`"reasoning_effort":""`:                                       {"", ""},
		`"reasoning_effort":null,"reasoning":null,"thinking":null`:    {"", ""},
		`"reasoning":{"effort":"low"}`:                                {"low", ""},
		`"reasoning":{"effort":null,"enabled":null,"max_tokens":9}`:   {"", ""},
		`"reasoning":{"enabled":false}`:                               {"", "disabled"},
		`"reasoning":{"enabled":true}`:                                {"", "enabled"},
		`"reasoning":{"effort":"low"},"reasoning_effort":"max"`:       {"max", ""},
		`"thinking":{"type":"disabled"}`:                              {"", "disabled"},
		`"thinking":{"type":"enabled","budget_tokens":5}`:             {"", "enabled"},
		`"thinking":{"type":"adaptive"}`:                              {"", ""},
		`"thinking":{"type":"enabled"},"reasoning":{"enabled":false}`: {"", "disabled"},
		`"reasoning_effort":"` + strings.Repeat("x", 64) + `"`:        {strings.Repeat("x", 64), ""},
	} {
		req, err := openai.Codec{}.Decode(route, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],`+body+`}`))
		require.NoError(t, err, body)
		require.Equal(t, want, [2]string{req.Effort, req.Thinking}, body)
		require.Empty(t, req.Extra, body)
	}
}

func TestACallerMayNameItsCache(t *testing.T) {
	t.Parallel()
	for path, prompt := range map[string]string{route: `"messages":[{"role":"user","content":"x"}]`, rawRoute: `"prompt":"x"`} {
		for key, want := range map[string]string{
			`"shelf"`: `"shelf"`, `null`: "", `7`: "",
			`"` + strings.Repeat("x", 5000) + `"`: `"` + strings.Repeat("x", 1023),
		} {
			req, err := openai.Codec{}.Decode(path, []byte(`{"model":"m",`+prompt+`,"prompt_cache_key":`+key+`}`))
			require.NoError(t, err)
			require.Equal(t, want, req.CacheKey)
			require.Empty(t, req.Extra, "no engine reads it")
		}
	}
}

func TestNoBodyIsDear(t *testing.T) {
	t.Parallel()
	codectest.Hostile(t, openai.Codec{}, route, map[string]string{
		`{"model":"m","messages":[{"role":"assistant","content":[MANY]}]}`:                        `{"type":"thinking","thinking":"xx"}`,
		`{"model":"m","messages":[{"role":"assistant","content":[MANY ]}]}`:                       `{"type":"tool_use","id":"t","name":"f","input":{}}`,
		`{"model":"m","messages":[{"role":"user","content":[MANY]}]}`:                             `{"type":"tool_result","tool_use_id":"t"}`,
		`{"model":"m","messages":[{"role":"assistant","content":"","reasoning_details":[MANY]}]}`: `{"text":"xx"}`,
		`{"model":"m","messages":[{"role":"assistant","content":"","tool_calls":[MANY]}]}`:        `{"id":"t","function":{"name":"f","arguments":""}}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[MANY]}`:                 `{"type":"web_search"}`,
		`{"model":"m","messages":[MANY]}`:                                                         `{"role":"user","content":""}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"stop":[MANY]}`:                  `"x"`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"stop_token_ids":[MANY]}`:        `1e9`,
	})
}

func TestABodyOfResponsesIsHandedOn(t *testing.T) {
	t.Parallel()
	const body = `{"model":"a/b","input":"hi","stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"custom","name":"f","format":{"type":"text"}}]}`
	read := &llm.Request{Spelling: "a/b", Stream: true}
	c := openai.Codec{Responses: func(where string, got []byte) (*llm.Request, error) {
		require.Equal(t, route, where)
		require.Equal(t, body, string(got))
		return read, nil
	}}
	req, err := c.Decode(route, []byte(body))
	require.NoError(t, err)
	require.Same(t, read, req)
	require.True(t, req.IncludeUsage)

	c.Responses = func(string, []byte) (*llm.Request, error) { return nil, fault.At("input", "no") }
	_, err = c.Decode(route, []byte(`{"model":"m","input":5}`))
	require.Equal(t, "input", fault.Of(err).Field)
	_, err = c.Decode(route, []byte(`{"model":"m"}`))
	require.Equal(t, "messages", fault.Of(err).Field)
}

func FuzzDecode(f *testing.F) {
	for _, body := range codectest.Requests(f, "testdata") {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := openai.Codec{}.Decode(route, body)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.Of(err).Code, "%v", err)
			return
		}
		require.NotEmpty(t, req.Items)
		raw, err := json.Marshal(req)
		require.NoError(t, err, "what is kept is valid")
		require.NoError(t, json.Unmarshal(raw, new(llm.Request)))
	})
}

func BenchmarkDecode(b *testing.B) {
	codectest.BenchDecode(b, openai.Codec{}, route, []byte(`{"model":"m","messages":[`+codectest.Repeat(
		`{"role":"user","content":[{"type":"text","text":"TEXT"}]},`+
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"path\":\"a.go\"}"}}]},`+
			`{"role":"tool","tool_call_id":"call_1","content":"TEXT"},`+
			`{"role":"assistant","content":"TEXT"}`)+`]}`))
}
