package main_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
)

func (c *cluster) anthropic(key string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(c.api), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func messageSpent(u anthropic.Usage) spent {
	return spent{Model: "glm-5.2", Input: u.InputTokens + u.CacheReadInputTokens, Cached: u.CacheReadInputTokens, Output: u.OutputTokens}
}

func question(text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "engy/glm-5.2", MaxTokens: 1000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

// accumulated reads a stream to its end, as the client puts it together.
func accumulated(t *testing.T, client anthropic.Client, params anthropic.MessageNewParams) (anthropic.Message, error) {
	t.Helper()
	stream := client.Messages.NewStreaming(t.Context(), params)
	var m anthropic.Message
	for stream.Next() {
		require.NoError(t, m.Accumulate(stream.Current()))
	}
	return m, stream.Err()
}

func TestAnthropicsGoClientRunsTools(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client, bill := c.anthropic(c.key), c.bill()
	var texts []string
	for _, stream := range []bool{false, true} {
		ask := func(params anthropic.MessageNewParams) anthropic.Message {
			params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
				Name: "get_weather", InputSchema: anthropic.ToolInputSchemaParam{
					Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"},
				},
			}}}
			var m anthropic.Message
			if stream {
				var err error
				m, err = accumulated(t, client, params)
				require.NoError(t, err)
				bill.add(messageSpent(m.Usage))
			} else {
				var head *http.Response
				whole, err := client.Messages.New(t.Context(), params, option.WithResponseInto(&head))
				require.NoError(t, err)
				m = *whole
				price := bill.add(messageSpent(m.Usage))
				require.Equal(t, strconv.FormatInt(price, 10), head.Header.Get("X-Engy-Charged-Micro"))
			}
			require.Equal(t, "engy/glm-5.2", string(m.Model))
			return m
		}
		plain := ask(question("say something [[sim tokens=20 think=7]]"))
		require.Equal(t, anthropic.StopReasonEndTurn, plain.StopReason)
		require.Equal(t, int64(27), plain.Usage.OutputTokens)
		if stream {
			require.Len(t, plain.Content, 2)
			thought := plain.Content[0].AsThinking()
			require.NotEmpty(t, thought.Thinking)
			require.NotEmpty(t, thought.Signature)
		} else {
			require.Len(t, plain.Content, 1, "an answer in one piece shows no thought")
		}
		texts = append(texts, plain.Content[len(plain.Content)-1].AsText().Text)

		params := question(askWeather)
		asked := ask(params)
		require.Equal(t, anthropic.StopReasonToolUse, asked.StopReason)
		call := asked.Content[0].AsToolUse()
		require.Equal(t, "get_weather", call.Name)
		require.JSONEq(t, `{"city":"New York"}`, string(call.Input))
		params.Messages = append(params.Messages, asked.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, toldWeather, false)))
		told := ask(params)
		require.Equal(t, toldWeather, told.Content[0].AsText().Text)
	}
	require.Equal(t, texts[0], texts[1])

	// Thought is sent back by clients that keep their history whole.
	params := question("say something [[sim tokens=5 think=5]]")
	thought, err := accumulated(t, client, params)
	require.NoError(t, err)
	bill.add(messageSpent(thought.Usage))
	params.Messages = append(params.Messages, thought.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("go on [[sim tokens=3]]")))
	params.Thinking = anthropic.ThinkingConfigParamUnion{OfDisabled: &anthropic.ThinkingConfigDisabledParam{}}
	again, err := accumulated(t, client, params)
	require.NoError(t, err)
	require.Equal(t, int64(3), again.Usage.OutputTokens)
	bill.add(messageSpent(again.Usage))
	bill.agrees()
}

func TestAnthropicsGoClientCountsAndLists(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	client := c.anthropic(c.key)
	count := func(o ...func(*anthropic.MessageCountTokensParams)) int64 {
		params := anthropic.MessageCountTokensParams{
			Model: "glm-5.2", Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello there, how do you do"))},
		}
		for _, apply := range o {
			apply(&params)
		}
		n, err := client.Messages.CountTokens(t.Context(), params)
		require.NoError(t, err)
		return n.InputTokens
	}
	short := count()
	require.Positive(t, short)
	require.Greater(t, count(func(p *anthropic.MessageCountTokensParams) {
		p.System = anthropic.MessageCountTokensParamsSystemUnion{OfString: anthropic.String("be brief, be kind, be right")}
	}), short)

	models, err := client.Models.List(t.Context(), anthropic.ModelListParams{})
	require.NoError(t, err)
	ids := make([]string, 0, len(models.Data))
	for _, m := range models.Data {
		require.Equal(t, "model", string(m.Type))
		ids = append(ids, m.ID)
	}
	require.Contains(t, ids, "glm-5.2")
	one, err := client.Models.Get(t.Context(), "glm-5.2", anthropic.ModelGetParams{})
	require.NoError(t, err)
	require.Equal(t, "glm-5.2", one.ID)
	require.Zero(t, c.settled(before))
}

func TestAnthropicsGoClientKnowsOurErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	_, poor := c.customer("poor", "0", billing.KeyOptions{})
	bill := c.bill()
	unknown := question("hi")
	unknown.Model = "no-such-model"
	for name, want := range map[string]struct {
		key     string
		params  anthropic.MessageNewParams
		kind    string
		status  int
		message string
	}{
		"no such model":  {c.key, unknown, "not_found_error", 404, "not found"},
		"no money":       {poor, question("hi"), "api_error", 402, "balance"},
		"no such key":    {"sk-engy-wrong-0123456789", question("hi"), "authentication_error", 401, "key"},
		"too long":       {c.key, question(tooLong()), "invalid_request_error", 400, "prompt is too long: "},
		"engine is busy": {c.key, question("hi [[sim status=429]]"), "rate_limit_error", 429, ""},
		"engine fails":   {c.key, question("hi [[sim status=500]]"), "api_error", 502, ""},
	} {
		client := c.anthropic(want.key)
		_, err := client.Messages.New(t.Context(), want.params)
		requireRefused(t, err, name, want.status, want.kind, want.message)
		_, err = accumulated(t, client, want.params)
		requireRefused(t, err, name, want.status, want.kind, want.message)
	}
	bill.agrees()
}

func requireRefused(t *testing.T, err error, name string, status int, kind, message string) {
	t.Helper()
	var refused *anthropic.Error
	require.ErrorAs(t, err, &refused, name)
	require.Equal(t, status, refused.StatusCode, name)
	require.Equal(t, kind, string(refused.Type()), name)
	var body struct{ Error struct{ Message string } }
	require.NoError(t, json.Unmarshal([]byte(refused.RawJSON()), &body), name)
	require.Contains(t, body.Error.Message, message, name)
}

func TestAnthropicsGoClientSeesAWorkerDie(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	bill := c.bill()
	client := c.anthropic(c.key)
	stream := client.Messages.NewStreaming(t.Context(), question("go on [[sim tokens=200 itl=50ms]]"))
	var m anthropic.Message
	for stream.Next() {
		require.NoError(t, m.Accumulate(stream.Current()))
		if stream.Current().Type == "content_block_delta" {
			c.workers[0].kill()
		}
	}
	require.ErrorContains(t, stream.Err(), "api_error")
	require.NotEmpty(t, m.Content)
	require.Empty(t, m.StopReason)
	bill.agrees()
}
