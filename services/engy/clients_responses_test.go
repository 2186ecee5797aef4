package main_test

import (
	"encoding/json"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
)

func responseSpent(u responses.ResponseUsage) spent {
	return spent{Model: "glm-5.2", Input: u.InputTokens, Cached: u.InputTokensDetails.CachedTokens, Output: u.OutputTokens}
}

func input(text string) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}
}

// finished reads a stream to its end and gives the last event's response.
func finished(t *testing.T, client openai.Client, params responses.ResponseNewParams) (responses.Response, map[string]int) {
	t.Helper()
	stream := client.Responses.NewStreaming(t.Context(), params)
	kinds := map[string]int{}
	var last responses.ResponseStreamEventUnion
	text := ""
	for n := int64(0); stream.Next(); n++ {
		last = stream.Current()
		require.Equal(t, n, last.SequenceNumber)
		kinds[last.Type]++
		if last.Type == "response.output_text.delta" {
			text += last.Delta
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, last.Response.OutputText(), text, "the deltas are the text")
	return last.Response, kinds
}

func TestOpenAIsGoClientRunsToolsInResponses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client, bill := c.openai(c.key), c.bill()
	weather := responses.ToolParamOfFunction("get_weather", map[string]any{
		"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}},
		"required": []string{"city"}, "additionalProperties": false,
	}, true)
	var texts []string
	for _, stream := range []bool{false, true} {
		ask := func(params responses.ResponseNewParams) responses.Response {
			params.Model, params.Tools = "engy/glm-5.2", []responses.ToolUnionParam{weather}
			var r responses.Response
			if stream {
				var kinds map[string]int
				r, kinds = finished(t, client, params)
				require.Equal(t, 1, kinds["response.created"])
				require.Equal(t, 1, kinds["response.completed"])
				require.Equal(t, kinds["response.output_item.added"], kinds["response.output_item.done"])
			} else {
				whole, err := client.Responses.New(t.Context(), params)
				require.NoError(t, err)
				r = *whole
			}
			require.Equal(t, responses.ResponseStatusCompleted, r.Status)
			require.Equal(t, "engy/glm-5.2", r.Model)
			price := bill.add(responseSpent(r.Usage))
			require.Equal(t, price, charged(t, r.RawJSON()), "the charge is on the finished response")
			return r
		}
		plain := ask(responses.ResponseNewParams{Input: input("say something [[sim tokens=20 think=7]]")})
		require.Equal(t, int64(27), plain.Usage.OutputTokens)
		texts = append(texts, plain.OutputText())

		asked := ask(responses.ResponseNewParams{Input: input(askWeather)})
		require.Len(t, asked.Output, 1)
		call := asked.Output[0].AsFunctionCall()
		require.Equal(t, "get_weather", call.Name)
		require.JSONEq(t, `{"city":"New York"}`, call.Arguments)
		result := responses.ResponseInputItemParamOfFunctionCallOutput(toldWeather)
		result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
		told := ask(responses.ResponseNewParams{Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage(askWeather, responses.EasyInputMessageRoleUser),
			responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name),
			result,
		}}})
		require.Equal(t, toldWeather, told.OutputText())
	}
	require.Equal(t, texts[0], texts[1])
	bill.agrees()
}

func TestOpenAIsGoClientReadsStructureInResponses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	client, bill := c.openai(c.key), c.bill()
	format := responses.ResponseFormatTextConfigParamOfJSONSchema("trip", map[string]any{
		"type": "object", "properties": map[string]any{"days": map[string]any{"type": "integer"}},
		"required": []string{"days"}, "additionalProperties": false,
	})
	r, err := client.Responses.New(t.Context(), responses.ResponseNewParams{
		Model: "glm-5.2", Input: input("how many days"), Text: responses.ResponseTextConfigParam{Format: format},
	})
	require.NoError(t, err)
	var trip struct{ Days *int }
	require.NoError(t, json.Unmarshal([]byte(r.OutputText()), &trip))
	require.NotNil(t, trip.Days)
	bill.add(responseSpent(r.Usage))

	cut, err := client.Responses.New(t.Context(), responses.ResponseNewParams{
		Model: "glm-5.2", Input: input("go on [[sim tokens=50]]"), MaxOutputTokens: openai.Int(5),
	})
	require.NoError(t, err)
	require.Equal(t, responses.ResponseStatusIncomplete, cut.Status)
	require.Equal(t, "max_output_tokens", cut.IncompleteDetails.Reason)
	bill.add(responseSpent(cut.Usage))
	bill.agrees()
}

func TestOpenAIsGoClientKnowsOurErrorsInResponses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	_, poor := c.customer("poor", "0", billing.KeyOptions{})
	bill := c.bill()
	for name, want := range map[string]struct {
		key    string
		params responses.ResponseNewParams
		kind   string
		status int
	}{
		"no such model":   {c.key, responses.ResponseNewParams{Model: "no-such-model", Input: input("hi")}, "not_found_error", 404},
		"no money":        {poor, responses.ResponseNewParams{Model: "glm-5.2", Input: input("hi")}, "insufficient_quota", 402},
		"too long":        {c.key, responses.ResponseNewParams{Model: "glm-5.2", Input: input(tooLong())}, "invalid_request_error", 400},
		"a stored answer": {c.key, responses.ResponseNewParams{Model: "glm-5.2", Input: input("hi"), PreviousResponseID: openai.String("resp_1")}, "invalid_request_error", 400},
	} {
		client := c.openai(want.key)
		_, err := client.Responses.New(t.Context(), want.params)
		var refused *openai.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, want.status, refused.StatusCode, name)
		require.Equal(t, want.kind, refused.Type, name)
	}
	// An answer that breaks after its beginning says so, and is free.
	client := c.openai(c.key)
	stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{Model: "glm-5.2", Input: input("go on [[sim tokens=200 itl=50ms]]")})
	var last responses.ResponseStreamEventUnion
	for stream.Next() {
		last = stream.Current()
		if last.Type == "response.output_text.delta" {
			c.workers[0].kill()
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "response.failed", last.Type)
	require.Equal(t, responses.ResponseStatusFailed, last.Response.Status)
	bill.agrees()
}
