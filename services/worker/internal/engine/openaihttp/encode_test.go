package openaihttp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

func field(name, value string) llm.Field {
	return llm.Field{Name: name, Value: json.RawMessage(value)}
}

func whole() *llm.Request {
	schema := `{"type":"object","properties":{"zeta":{"type":"string"},"alpha":{"type":"integer"}},"required":["zeta"]}`
	return &llm.Request{
		Model: "catalogue/id",
		Items: []llm.Item{
			{Role: llm.Developer, Parts: []llm.Part{{Text: llm.Verbatim("\"Be <brief> & \\\"kind\\\".\u2028\\n\\u0001\"")}}},
			{Role: llm.User, Name: "ann", Parts: []llm.Part{
				{Text: llm.NewVerbatim("look")},
				{Media: &llm.Media{Kind: "image", Type: "image/png", Data: llm.Base64("iVBORw0KGgo=")}},
				{Media: &llm.Media{Kind: "audio", Type: "audio/mpeg", Data: llm.Base64("SUQz")}},
				{Media: &llm.Media{Kind: "audio", Type: "audio/x-wav", Data: llm.Base64("UklG")}},
			}},
			{
				Role: llm.Assistant, Reasoning: "hm",
				Calls: []llm.Call{{ID: "c1", Name: "find", Arguments: `{"q": 1}`}, {ID: "c2", Name: "list"}},
				Extra: []llm.Field{field("prefix", "true"), field("content", `"twin"`)},
			},
			{Role: llm.Tool, CallID: "c1", Parts: []llm.Part{{Text: llm.NewVerbatim("")}}},
			{Role: llm.Tool, CallID: "c2", Parts: []llm.Part{{Text: llm.NewVerbatim("none")}}},
		},
		Tools: []llm.ToolSpec{
			{Name: "find", Description: "finds <it>", Schema: json.RawMessage(schema), Extra: []llm.Field{field("strict", "true")}},
			{Name: "list"},
		},
		Choice: "tool", ChoiceName: "find", MaxTokens: 64, Logprobs: true, TopLogprobs: 5,
		Extra: []llm.Field{
			field("seed", "9007199254740993"), field("temperature", "0"), field("top_p", "0"),
			field("frequency_penalty", "-0.0"), field("stop", `["<|end|>"]`), field("unknown", `{"b":1,"a":[1E2]}`),
			// What is written from fields cannot be written twice.
			field("model", `"other"`), field("messages", "[]"), field("stream", "false"), field("stream_options", "{}"),
			field("max_tokens", "9"), field("max_completion_tokens", "9"), field("tools", "[]"),
			field("tool_choice", `"none"`), field("logprobs", "false"), field("top_logprobs", "0"), field("rid", `"theirs"`),
			field("empty", ""),
		},
		Policy: llm.Policy{ZDR: true}, Stream: false, Spelling: "spelled",
	}
}

const golden = `{"model":"at/engine","messages":[` +
	`{"role":"system","content":"Be <brief> & \"kind\".` + "\u2028" + `\n\u0001"},` +
	`{"role":"user","name":"ann","content":[{"type":"text","text":"look"},` +
	`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},` +
	`{"type":"input_audio","input_audio":{"data":"SUQz","format":"mp3"}},` +
	`{"type":"input_audio","input_audio":{"data":"UklG","format":"wav"}}]},` +
	`{"role":"assistant","reasoning_content":"hm","content":"","tool_calls":[` +
	`{"id":"c1","type":"function","function":{"name":"find","arguments":"{\"q\": 1}"}},` +
	`{"id":"c2","type":"function","function":{"name":"list","arguments":"{}"}}],"prefix":true},` +
	`{"role":"tool","tool_call_id":"c1","content":""},{"role":"tool","tool_call_id":"c2","content":"none"}],` +
	`"tools":[{"type":"function","function":{"name":"find","description":"finds <it>","parameters":` +
	`{"type":"object","properties":{"zeta":{"type":"string"},"alpha":{"type":"integer"}},"required":["zeta"]},"strict":true}},` +
	`{"type":"function","function":{"name":"list"}}],` +
	`"tool_choice":{"type":"function","function":{"name":"find"}},` +
	`"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},` +
	`"max_tokens":64,"logprobs":true,"top_logprobs":5,` +
	`"seed":9007199254740993,"temperature":0,"top_p":0,"frequency_penalty":-0.0,"stop":["<|end|>"],"unknown":{"b":1,"a":[1E2]}}`

func TestTheEngineSeesWhatTheCallerSent(t *testing.T) {
	t.Parallel()
	for range 100 {
		require.Equal(t, golden, string(openaihttp.Encode(openaihttp.Simulator, "at/engine", whole(), "")))
	}
}

func TestKindsDifferInFewBytes(t *testing.T) {
	t.Parallel()
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(golden) }
	plain := []string{`,"continuous_usage_stats":true`, ""}
	for kind, want := range map[string]string{
		openaihttp.VLLM:   replace(`"reasoning_content":`, `"reasoning":`),
		openaihttp.SGLang: strings.TrimSuffix(golden, "}") + `,"rid":"r1"}`,
		openaihttp.OpenAI: replace(plain...),
		openaihttp.LlamaCpp: replace(`"include_usage":true,"continuous_usage_stats":true}`,
			`"include_usage":true},"timings_per_token":true`),
		openaihttp.Ollama: replace(append(plain, `"reasoning_content":`, `"reasoning":`,
			`"tool_choice":{"type":"function","function":{"name":"find"}},`, "")...),
	} {
		rid := ""
		if kind == openaihttp.SGLang {
			rid = "r1"
		}
		got := openaihttp.Encode(kind, "at/engine", whole(), rid)
		require.Equal(t, want, string(got), kind)
		require.True(t, json.Valid(got), kind)
	}
}

func TestAChoiceIsWrittenAsEnginesReadIt(t *testing.T) {
	t.Parallel()
	req := &llm.Request{Tools: []llm.ToolSpec{{Name: "f"}}, MaxTokens: 1}
	for choice, want := range map[string]string{
		"": `}}],"stream"`, "auto": `"tool_choice":"auto"`, "none": `"tool_choice":"none"`, "required": `"tool_choice":"required"`,
	} {
		req.Choice = choice
		require.Contains(t, string(openaihttp.Encode(openaihttp.VLLM, "m", req, "")), want)
	}
	req.Choice = "none"
	require.NotContains(t, string(openaihttp.Encode(openaihttp.Ollama, "m", req, "")), "tool",
		"an engine that does not read the choice cannot call what it does not know")
	req.Choice, req.Tools = "auto", nil
	require.NotContains(t, string(openaihttp.Encode(openaihttp.VLLM, "m", req, "")), "tool",
		"a choice without tools is refused by engines")
}

func TestAnOutputLimitIsAlwaysSent(t *testing.T) {
	t.Parallel()
	require.Contains(t, string(openaihttp.Encode(openaihttp.OpenAI, "m", &llm.Request{}, "")), `"max_tokens":4096`)
}

func TestTextIsTheSameAfterDecoding(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for r := rune(0); r < 0x3000; r++ {
		text.WriteRune(r)
	}
	text.WriteString("🙂\U0010FFFF")
	req := &llm.Request{Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(text.String())}}}}}
	var got struct {
		Messages []struct{ Content string }
	}
	require.NoError(t, json.Unmarshal(openaihttp.Encode(openaihttp.VLLM, "m", req, ""), &got))
	require.Equal(t, text.String(), got.Messages[0].Content)
}

func long() *llm.Request {
	text := strings.Repeat("func main() {\n\tprintln(\"hello\")\n}\n", (4<<20)/36)
	return &llm.Request{Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(text)}}}}, MaxTokens: 1}
}

func TestALongPromptIsCopiedOnce(t *testing.T) {
	t.Parallel()
	for name, req := range map[string]*llm.Request{
		"code": long(),
		"text": {Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(strings.Repeat("All of this is prose, more or less.\n", 1<<16))}}}}},
		"image": {Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{
			{Text: llm.NewVerbatim("x")}, {Media: &llm.Media{Kind: "image", Type: "image/png", Data: llm.Base64(strings.Repeat("AAAA", 1<<20))}},
		}}}},
	} {
		body := openaihttp.Encode(openaihttp.VLLM, "m", req, "")
		require.LessOrEqual(t, len(body), openaihttp.Size(req), "%s: the body outgrew its guess, which is a copy more", name)
		require.Equal(t, openaihttp.Size(req), cap(body), name)
	}
}

func BenchmarkEncodeLongPrompt(b *testing.B) {
	req := long()
	b.SetBytes(4 << 20)
	b.ReportAllocs()
	for b.Loop() {
		openaihttp.Encode(openaihttp.VLLM, "m", req, "")
	}
}
