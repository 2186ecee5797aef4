package anthropic_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/anthropic"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
)

const (
	route      = "POST /v1/messages"
	countRoute = "POST /v1/messages/count_tokens"
)

func TestGoldenCases(t *testing.T) {
	t.Parallel()
	codectest.Run(t, anthropic.Codec{}, route, "testdata")
}

func decode(t require.TestingT, body string) *llm.Request {
	req, err := anthropic.Codec{}.Decode(route, []byte(body))
	require.NoError(t, err)
	return req
}

func TestWhatStaysAtTheEdgeIsRead(t *testing.T) {
	t.Parallel()
	body := func(more string) string {
		return `{"model":"engy/m","messages":[{"role":"user","content":"x"}]` + more + `}`
	}
	for more, want := range map[string]llm.Request{
		``: {},
		`,"thinking":{"type":"enabled","budget_tokens":1024}`:    {Thinking: "enabled"},
		`,"thinking":{"type":"disabled"}`:                        {Thinking: "disabled"},
		`,"thinking":{"type":"adaptive","display":"summarized"}`: {},
		`,"thinking":{"type":"later"}`:                           {},
		`,"output_config":{"effort":"High"}`:                     {Effort: "High"},
		`,"output_config":{"effort":null,"later":1}`:             {},
		`,"provider":{"zdr":true,"require_proof":true,"region_only":["eu"],"region_exclude":[],"data_collection":"deny"}`: {
			Policy: llm.Policy{ZDR: true, Proof: true, RegionOnly: []string{"eu"}, RegionExclude: []string{}, Collect: "deny"},
		},
		`,"provider":null`: {},
	} {
		got := decode(t, body(more))
		require.Equal(t, "engy/m", got.Spelling)
		require.Equal(t, want.Thinking, got.Thinking, more)
		require.Equal(t, want.Effort, got.Effort, more)
		require.Equal(t, want.Policy, got.Policy, more)
		require.Empty(t, got.Extra, more)
	}
}

func TestTheSameBodyIsReadTheSameWay(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","messages":[{"role":"user","content":"<>&\u2028"}],"tools":[{"name":"f","input_schema":{"zeta":1,"alpha":2}}],"seed":9007199254740993,"b":1,"a":2}`
	first, err := json.Marshal(decode(t, body))
	require.NoError(t, err)
	for range 100 {
		again, err := json.Marshal(decode(t, body))
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
	}
}

func TestTheMessageBeginsWithTheEstimate(t *testing.T) {
	t.Parallel()
	stream := write(t, llm.Request{Stream: true, PromptTokens: 77}, []llm.Event{{Kind: llm.Ping}})
	require.Contains(t, string(stream), `"usage":{"input_tokens":77,`)
	require.True(t, strings.HasSuffix(string(stream), "event: ping\ndata: {\"type\":\"ping\"}\n\n"))
}

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	kinds := map[fault.Code]string{
		fault.Invalid: "invalid_request_error", fault.Unauthorized: "authentication_error", fault.NoFunds: "api_error",
		fault.Forbidden: "permission_error", fault.NotFound: "not_found_error", fault.TooLarge: "request_too_large",
		fault.Busy: "rate_limit_error", fault.NoWorker: "overloaded_error", fault.Timeout: "api_error",
	}
	for _, c := range fault.Codes() {
		status, body := anthropic.Codec{}.Error(fault.New(c, "why"), "id")
		require.Equal(t, c == fault.Internal, status == 500, "%s", c)
		var shape struct {
			Type  string
			Error struct{ Type, Message string }
			ID    string `json:"request_id"`
		}
		dec := json.NewDecoder(strings.NewReader(string(body)))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&shape), "%s", body)
		require.Equal(t, "error", shape.Type)
		require.Equal(t, "id", shape.ID)
		require.NotEmpty(t, shape.Error.Type)
		require.Contains(t, shape.Error.Type, kinds[c])
	}
}

func TestAnInternalErrorTellsOnlyItsID(t *testing.T) {
	t.Parallel()
	_, body := anthropic.Codec{}.Error(fault.Wrap(fault.Internal, "secret detail", nil), "abc123")
	require.Contains(t, string(body), "abc123")
	require.NotContains(t, string(body), "secret")
}

func TestAPromptTooLongIsSaidInItsNumbers(t *testing.T) {
	t.Parallel()
	status, body := anthropic.Codec{}.Error(fault.TooLong(270_000, 262_144), "id")
	require.Equal(t, 400, status)
	require.Contains(t, string(body), `"message":"prompt is too long: 270000 tokens > 262144 maximum"`)
	_, body = anthropic.Codec{}.Error(fault.New(fault.Overlong, "says the engine"), "id")
	require.Contains(t, string(body), `"message":"prompt is too long: says the engine"`)
}

func TestARefusalQuotesNoContent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"MARKER" x}]}`,
		`{"model":"m","messages":[{"role":"MARKER","content":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"MARKER"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"MARKER","data":"MARKER"}}]}]}`,
		`{"model":"m","max_tokens":"MARKER","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"tool","name":"MARKER"}}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"` + strings.Repeat("MARKER", 50) + `"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"stop_sequences":["MARKER",1]}`,
	} {
		_, err := anthropic.Codec{}.Decode(route, []byte(body))
		require.Error(t, err)
		_, out := anthropic.Codec{}.Error(err, "id")
		require.NotContains(t, string(out), "MARKER")
	}
}

func TestALimitIsCheckedAtItsBound(t *testing.T) {
	t.Parallel()
	list := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	messages := func(n int) string {
		return `{"model":"m","messages":[` + list(n, `{"role":"user","content":"x"}`) + `]}`
	}
	results := func(n int) string {
		return `{"model":"m","messages":[{"role":"user","content":[` + list(n, `{"type":"tool_result","tool_use_id":"A"}`) + `]}]}`
	}
	tools := func(n int) string {
		return `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[` + list(n, `{"name":"f"}`) + `]}`
	}
	for _, bound := range []struct {
		most int
		body func(int) string
	}{{20_000, messages}, {20_000, results}, {1_024, tools}} {
		decode(t, bound.body(bound.most))
		_, err := anthropic.Codec{}.Decode(route, []byte(bound.body(bound.most+1)))
		require.True(t, fault.Is(err, fault.Invalid), "%d", bound.most)
	}
}

// Time grows with size and not with its square, whatever a body is made of.
func TestNoBodyTakesForever(t *testing.T) {
	t.Parallel()
	thoughts := func(n int) string {
		one := `{"type":"thinking","thinking":"` + strings.Repeat("x", 100) + `"},`
		return `{"model":"m","messages":[{"role":"assistant","content":[` + strings.Repeat(one, n) + `{"type":"text","text":"x"}]}]}`
	}
	members := func(n int) string {
		b := &strings.Builder{}
		for i := range n {
			fmt.Fprintf(b, `,"x%d":1`, i)
		}
		return `{"model":"m","messages":[{"role":"user","content":"x"}]` + b.String() + `}`
	}
	for name, body := range map[string]func(int) string{"thoughts": thoughts, "members": members} {
		best := func(n int) time.Duration {
			raw, least := []byte(body(n)), time.Hour
			for range 3 {
				began := time.Now()
				_, err := anthropic.Codec{}.Decode(route, raw)
				require.NoError(t, err)
				least = min(least, time.Since(began))
			}
			return least
		}
		// Four times as much takes four times as long, not sixteen; a machine that is
		// busy gets more than one chance to show it.
		linear := false
		for range 20 {
			if linear = best(20_000) < 10*best(5_000); linear {
				break
			}
		}
		require.True(t, linear, name)
	}
	nested := `{"model":"m","messages":[{"role":"user","content":` + strings.Repeat(`[{"content":`, 4_000) + `"x"` + strings.Repeat(`}]`, 4_000) + `}]}`
	require.Len(t, decode(t, nested).Items, 1)
}

func TestEveryIDFindsItsWayBack(t *testing.T) {
	t.Parallel()
	fit := regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.OneOf(
			rapid.StringMatching(`functions\.[a-z]{1,3}:[0-9]`), rapid.StringMatching(`call_[a-c]`), rapid.String(),
			rapid.StringMatching(`engy_[0-9a-f]{10}_[A-Za-z0-9_-]{2,6}`),
		), 1, 8).Draw(t, "ids")
		var events []llm.Event
		for i, id := range ids {
			events = append(events, llm.Event{Kind: llm.ToolCall, Text: "{}", Call: &llm.CallDelta{Index: i, ID: id, Name: "f"}})
		}
		var whole struct {
			Content json.RawMessage
		}
		require.NoError(t, json.Unmarshal(write(t, llm.Request{}, append(events, llm.Event{Kind: llm.Done, Finish: llm.ToolCalls})), &whole))
		var blocks []struct{ ID string }
		require.NoError(t, json.Unmarshal(whole.Content, &blocks))
		back := decode(t, `{"model":"m","messages":[{"role":"assistant","content":`+string(whole.Content)+`}]}`)
		seen := map[string]bool{}
		for i, id := range ids {
			require.Regexp(t, fit, blocks[i].ID)
			require.False(t, seen[blocks[i].ID])
			seen[blocks[i].ID] = true
			if id == "" {
				id = blocks[i].ID // there is nothing to go back to
			}
			require.Equal(t, id, back.Items[0].Calls[i].ID)
		}
	})
}

func TestTheModelsListIsReadByTheOfficialClient(t *testing.T) {
	t.Parallel()
	var list struct {
		Data    []sdk.ModelInfo
		HasMore bool   `json:"has_more"`
		FirstID string `json:"first_id"`
		LastID  string `json:"last_id"`
	}
	raw := anthropic.Models([]anthropic.Model{{ID: "a", Created: codectest.Created, MaxInput: 9, MaxOutput: 4}, {ID: "b"}})
	require.NoError(t, json.Unmarshal(raw, &list))
	require.Len(t, list.Data, 2)
	require.Equal(t, "a", list.FirstID)
	require.Equal(t, "b", list.LastID)
	require.False(t, list.HasMore)
	require.Equal(t, int64(codectest.Created), list.Data[0].CreatedAt.Unix())
	require.Equal(t, int64(9), list.Data[0].MaxInputTokens)
	require.Equal(t, int64(4), list.Data[0].MaxTokens)
	require.JSONEq(t, `{"data":[],"has_more":false,"first_id":null,"last_id":null}`, string(anthropic.Models(nil)))
}

func TestACountIsReadLikeARequest(t *testing.T) {
	t.Parallel()
	c := anthropic.Codec{}
	require.Equal(t, []string{countRoute}, c.CountRoutes())
	req, err := c.Decode(countRoute, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[],"system":"s"}`))
	require.NoError(t, err)
	require.Len(t, req.Items, 2)
	require.Equal(t, `{"input_tokens":5}`, string(c.Counted(5)))
}

func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"m","system":[{"type":"text","text":"s"}],"messages":[{"role":"system","content":"y"},{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}`,
		`{"model":"m","messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"engy_0123456700_eA","name":"f","input":{"a":[1]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"engy_0123456700_eA","is_error":true,"content":[{"type":"x","content":{"type":[]}}]}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":{}},{"type":"bash_1","name":"b"}],"tool_choice":{"type":"tool","name":"b"},"output_config":{"format":{"type":"json_schema","schema":{}}},"stop_sequences":["a"],"provider":{"zdr":true},"k":1}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := anthropic.Codec{}.Decode(route, body)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.Of(err).Code, "%v", err)
			return
		}
		require.NotEmpty(t, req.Spelling)
		names := map[string]bool{}
		for _, f := range req.Extra {
			require.False(t, names[f.Name])
			names[f.Name] = true
			require.True(t, json.Valid(f.Value))
		}
		for _, it := range req.Items {
			for _, p := range it.Parts {
				require.True(t, p.Media != nil || json.Valid(p.Text.Quoted()))
			}
			for _, c := range it.Calls {
				require.True(t, json.Valid([]byte(c.Arguments)), "templates parse the arguments of earlier calls")
			}
			require.Equal(t, it.Role == llm.Tool, it.CallID != "")
		}
	})
}
