package openai_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
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

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"provider":{"zdr":true},"tools":[{"function":{"name":"f","parameters":{"a":1}}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := openai.Codec{}.Decode(route, body)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.Of(err).Code, "%v", err)
			return
		}
		require.NotEmpty(t, req.Items)
	})
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("the quick brown fox\\n ", 1<<20/22) + `"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := (openai.Codec{}).Decode(route, body); err != nil {
			b.Fatal(err)
		}
	}
}
