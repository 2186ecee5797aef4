package main_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/services/billing"
)

// The directives make the simulator call a tool and repeat what it said.
const (
	askWeather  = `How is the weather? [[sim tool=get_weather args={"city":"New%20York"} echo_result]]`
	toldWeather = "rain in New York"
)

// tooLong is more tokens than glm-5.2 takes, by any count.
func tooLong() string { return strings.Repeat("word ", 1_048_576) }

func (c *cluster) openai(key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(c.api+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// bill sums up what answers should have cost, by what the client was told.
type bill struct {
	t     *testing.T
	c     *cluster
	start billing.Balance
	sum   money.Micro
}

func (c *cluster) bill() *bill { return &bill{t: c.t, c: c, start: c.balance()} }

// add books a usage and gives its price.
func (b *bill) add(s spent) int64 {
	b.t.Helper()
	micro := s.price(b.t)
	b.sum += micro
	return int64(micro)
}

// agrees holds the sum against the ledger.
func (b *bill) agrees() {
	b.t.Helper()
	require.Equal(b.t, b.sum, b.c.settled(b.start), "what the client saw and what the ledger booked")
}

func chatSpent(u openai.CompletionUsage) spent {
	return spent{Model: "glm-5.2", Input: u.PromptTokens, Cached: u.PromptTokensDetails.CachedTokens, Output: u.CompletionTokens}
}

// charged reads the product's own member of an answer.
func charged(t *testing.T, raw string) int64 {
	t.Helper()
	var w wire
	require.NoError(t, json.Unmarshal([]byte(raw), &w))
	require.NotNil(t, w.Engy)
	return w.Engy.ChargedMicro
}

func weatherTool() openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "get_weather",
		Parameters: openai.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		},
	})
}

func TestOpenAIsGoClientRunsToolsInChat(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client, bill := c.openai(c.key), c.bill()
	params := openai.ChatCompletionNewParams{
		Model:    "engy/glm-5.2",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(askWeather)},
		Tools:    []openai.ChatCompletionToolUnionParam{weatherTool()},
	}
	// This accumulator adds up the usage of all chunks, so none is asked for
	// beyond the one that comes with the finish.
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	acc := openai.ChatCompletionAccumulator{}
	finished := 0
	var shown int64
	for stream.Next() {
		chunk := stream.Current()
		require.True(t, acc.AddChunk(chunk))
		if call, ok := acc.JustFinishedToolCall(); ok {
			require.JSONEq(t, `{"city":"New York"}`, call.Arguments)
			finished++
		}
		if chunk.JSON.ExtraFields["x_engy"].Raw() != "" {
			shown = charged(t, chunk.RawJSON())
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, 1, finished)
	require.Equal(t, shown, bill.add(chatSpent(acc.Usage)))
	asked := acc.Choices[0].Message
	require.Equal(t, "tool_calls", acc.Choices[0].FinishReason)

	params.Messages = append(params.Messages, asked.ToParam(), openai.ToolMessage(toldWeather, asked.ToolCalls[0].ID))
	var head *http.Response
	told, err := client.Chat.Completions.New(t.Context(), params, option.WithResponseInto(&head))
	require.NoError(t, err)
	require.Equal(t, toldWeather, told.Choices[0].Message.Content)
	require.Equal(t, "engy/glm-5.2", told.Model)
	price := bill.add(chatSpent(told.Usage))
	require.Equal(t, price, charged(t, told.RawJSON()))
	require.Equal(t, money.Micro(price).USD(), microOf(t, head.Header.Get("X-Engy-Charged-Micro")).USD())
	bill.agrees()
}

// microOf reads a header that holds micro-USD.
func microOf(t *testing.T, text string) (m money.Micro) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &m))
	return m
}

func TestOpenAIsGoClientReadsStructureAndLogprobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client, bill := c.openai(c.key), c.bill()
	params := openai.ChatCompletionNewParams{
		Model:    "glm-5.2",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("a city and some days")},
	}
	params.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{
		JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "trip", Strict: openai.Bool(true), Schema: map[string]any{
				"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
				"properties": map[string]any{"city": map[string]any{"type": "string"}, "days": map[string]any{"type": "integer"}},
			},
		},
	}
	answer, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	var trip struct {
		City *string
		Days *int
	}
	require.NoError(t, json.Unmarshal([]byte(answer.Choices[0].Message.Content), &trip))
	require.NotNil(t, trip.City)
	require.NotNil(t, trip.Days)
	bill.add(chatSpent(answer.Usage))

	params = openai.ChatCompletionNewParams{
		Model:    "glm-5.2",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi [[sim tokens=3]]")},
		Logprobs: openai.Bool(true), TopLogprobs: param.NewOpt(int64(4)),
	}
	answer, err = client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, answer.Choices[0].Logprobs.Content, 3)
	for _, entry := range answer.Choices[0].Logprobs.Content {
		require.Len(t, entry.TopLogprobs, 4)
	}
	bill.add(chatSpent(answer.Usage))
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		require.True(t, acc.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Len(t, acc.Choices[0].Logprobs.Content, 3)
	require.Equal(t, answer.Choices[0].Logprobs.Content[0].Logprob, acc.Choices[0].Logprobs.Content[0].Logprob)
	bill.add(chatSpent(acc.Usage))
	bill.agrees()
}

func TestOpenAIsGoClientKnowsOurErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	_, poor := c.customer("poor", "0", billing.KeyOptions{})
	bill := c.bill()
	for name, want := range map[string]struct {
		key, model, text, kind string
		status                 int
	}{
		"no such model":  {c.key, "no-such-model", "hi", "not_found_error", 404},
		"no money":       {poor, "glm-5.2", "hi", "insufficient_quota", 402},
		"no such key":    {"sk-engy-wrong-0123456789", "glm-5.2", "hi", "authentication_error", 401},
		"too long":       {c.key, "glm-5.2", tooLong(), "invalid_request_error", 400},
		"engine is busy": {c.key, "glm-5.2", "hi [[sim status=429]]", "rate_limit_error", 429},
		"engine fails":   {c.key, "glm-5.2", "hi [[sim status=500]]", "api_error", 502},
	} {
		params := openai.ChatCompletionNewParams{
			Model:    want.model,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(want.text)},
		}
		client := c.openai(want.key)
		_, err := client.Chat.Completions.New(t.Context(), params)
		var refused *openai.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, want.status, refused.StatusCode, name)
		require.Equal(t, want.kind, refused.Type, name)
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		require.False(t, stream.Next(), name)
		require.ErrorAs(t, stream.Err(), &refused, name)
		require.Equal(t, want.status, refused.StatusCode, name)
	}
	bill.agrees()
}

func TestOpenAIsGoClientSeesAWorkerDie(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	bill := c.bill()
	client := c.openai(c.key)
	stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
		Model:    "glm-5.2",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("go on [[sim tokens=200 itl=50ms]]")},
	})
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		require.True(t, acc.AddChunk(stream.Current()))
		if len(acc.Choices) > 0 && acc.Choices[0].Message.Content != "" {
			c.workers[0].kill()
		}
	}
	require.Error(t, stream.Err())
	require.NotEmpty(t, acc.Choices[0].Message.Content)
	require.Empty(t, acc.Choices[0].FinishReason)
	var refused *openai.Error
	if errors.As(stream.Err(), &refused) {
		require.Equal(t, "api_error", refused.Type)
	}
	bill.agrees()
}
