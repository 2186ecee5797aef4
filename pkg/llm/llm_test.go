package llm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
)

// secret stands for what a caller wrote; every field that can hold content
// holds it below.
const secret = "the-prompt"

func fields() []llm.Field {
	return []llm.Field{{Name: "x", Value: json.RawMessage(`"` + secret + `"`)}}
}

func fullItem() llm.Item {
	return llm.Item{
		Role: llm.Assistant, Reasoning: secret, Name: secret, CallID: secret,
		Parts: []llm.Part{{Text: llm.NewVerbatim(secret)}, {Media: &llm.Media{Kind: "image", Type: "image/png", Data: llm.Base64(secret)}}},
		Calls: []llm.Call{{ID: secret, Name: secret, Arguments: secret}}, Extra: fields(),
	}
}

func fullRequest() *llm.Request {
	return &llm.Request{
		Model: "m", Items: []llm.Item{fullItem()}, Choice: "tool", ChoiceName: secret, Extra: fields(),
		Tools: []llm.ToolSpec{{
			Name: secret, Description: secret,
			Schema: json.RawMessage(`"` + secret + `"`), Extra: fields(),
		}},
	}
}

func TestContentIsNeverPrinted(t *testing.T) {
	t.Parallel()
	item := fullItem()
	for name, v := range map[string]any{
		"request":  fullRequest(),
		"item":     item,
		"text":     item.Parts[0],
		"media":    item.Parts[1],
		"event":    llm.Event{Kind: llm.Text, Text: secret, Logprobs: json.RawMessage(`"` + secret + `"`)},
		"call":     llm.Event{Kind: llm.ToolCall, Text: secret, Call: &llm.CallDelta{ID: secret, Name: secret}},
		"response": &llm.Response{Text: secret, Reasoning: secret, Calls: item.Calls, Logprobs: []json.RawMessage{[]byte(`"` + secret + `"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []string{"%v", "%+v", "%s"} {
				require.NotContains(t, fmt.Sprintf(verb, v), secret, verb)
			}
			var out bytes.Buffer
			slog.New(slog.NewTextHandler(&out, nil)).Info("line", "v", v)
			slog.New(slog.NewJSONHandler(&out, nil)).Info("line", "v", v)
			require.NotContains(t, out.String(), secret)
			require.NotContains(t, out.String(), "dGhlLXByb21wd", "nor in base64, which is how raw bytes print")
		})
	}
}

func TestListsOfItemsAndEventsPrintSizes(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		[]llm.Item{fullItem()}, []llm.Part{{Text: llm.NewVerbatim(secret)}}, []llm.Event{{Kind: llm.Text, Text: secret}},
	} {
		require.NotContains(t, fmt.Sprintf("%v %+v", v, v), secret)
	}
}

func TestCharsCountsWhatTheModelReads(t *testing.T) {
	t.Parallel()
	r := &llm.Request{
		Items: []llm.Item{
			{Role: llm.User, Name: "ann", Parts: []llm.Part{{Text: llm.NewVerbatim("naïve ☃")}, {Media: &llm.Media{Data: llm.Base64("AAAA")}}}},
			{Role: llm.Assistant, Reasoning: "hm", Calls: []llm.Call{{ID: "ignored", Name: "f", Arguments: "{}"}}},
		},
		Tools: []llm.ToolSpec{{Name: "f", Description: "does", Schema: json.RawMessage(`{"a":1}`)}},
	}
	chars, media := r.Chars()
	require.Equal(t, 3+7+2+1+2+1+4+7, chars)
	require.Equal(t, 1, media)

	chars, media = (&llm.Request{}).Chars()
	require.Zero(t, chars+media)
}

// A worker must not learn who may serve a request, and the edge must not
// forget how the caller wants the answer.
func TestPolicyAndWritingStayAtTheEdge(t *testing.T) {
	t.Parallel()
	r := llm.Request{
		Model: "m", Policy: llm.Policy{ZDR: true, Collect: "deny"},
		Stream: true, IncludeUsage: true, Spelling: "vendor/m",
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"m","items":null,"stream":true}`, string(data), "that the caller streams is for the worker to know")
}
