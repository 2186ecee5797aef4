package responses_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/ssestream"
	sdk "github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
	"github.com/engy-ai/engy/services/edge/internal/codec/responses"
)

// everyTool declares a tool of each kind.
const everyTool = `{"model":"m","input":"go","top_logprobs":2,"include":["reasoning.encrypted_content"],"tools":[
	{"type":"function","name":"f","parameters":{}},
	{"type":"custom","name":"patch"},
	{"type":"namespace","name":"files","description":"d","tools":[{"type":"function","name":"read"},{"type":"custom","name":"write"}]},
	{"type":"local_shell"},{"type":"shell"},{"type":"apply_patch"},{"type":"web_search"}]}`

// written gives an answer in one form.
func written(t require.TestingT, req *llm.Request, streamed bool, events []llm.Event) []byte {
	r := *req
	r.Stream = streamed
	var b bytes.Buffer
	sink := responses.Codec{}.Encode(&b, &r, codectest.ID, codectest.Created)
	for _, e := range events {
		require.NoError(t, sink(e))
	}
	return b.Bytes()
}

func decoded(t require.TestingT, body string) *llm.Request {
	req, err := responses.Codec{}.Decode(route, []byte(body))
	require.NoError(t, err)
	return req
}

func TestTheOfficialClientReadsEveryStream(t *testing.T) {
	t.Parallel()
	req := decoded(t, everyTool)
	names := []string{"undeclared"}
	for _, tool := range req.Tools {
		names = append(names, tool.Name)
	}
	rapid.Check(t, func(t *rapid.T) {
		events := codectest.Events(t, names)
		whole := written(t, req, false, events)
		reader{t: t, whole: whole, items: map[string]*seen{}}.read(written(t, req, true, events))
	})
}

// seen is an item as its events told it.
type seen struct {
	index        int64
	deltas, done string
	closed       bool
}

// reader follows a stream through the official client.
type reader struct {
	t     *rapid.T
	whole []byte
	items map[string]*seen
}

func (r reader) read(stream []byte) {
	t := r.t
	answer := &http.Response{
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body:   io.NopCloser(bytes.NewReader(stream)),
	}
	s := ssestream.NewStream[sdk.ResponseStreamEventUnion](ssestream.NewDecoder(answer), nil)
	var want, closed int64
	var last sdk.ResponseStreamEventUnion
	for s.Next() {
		last = s.Current()
		require.Equal(t, want, last.SequenceNumber)
		want++
		require.Contains(t, string(stream), "event: "+last.Type+"\ndata: {\"type\":\""+last.Type+"\"")
		required(t, last.AsAny(), last.RawJSON())
		switch event := last.AsAny().(type) {
		case sdk.ResponseOutputItemAddedEvent:
			require.Equal(t, int64(len(r.items)), event.OutputIndex)
			require.Equal(t, event.OutputIndex, closed, "one item is open at a time")
			r.items[event.Item.ID] = &seen{index: event.OutputIndex}
			required(t, event.Item.AsAny(), event.Item.RawJSON())
		case sdk.ResponseOutputItemDoneEvent:
			require.Equal(t, closed, event.OutputIndex)
			closed++
			r.closed(event)
		case sdk.ResponseTextDeltaEvent:
			r.item(event.ItemID, event.OutputIndex).deltas += event.Delta
		case sdk.ResponseTextDoneEvent:
			r.item(event.ItemID, event.OutputIndex).done = event.Text
		case sdk.ResponseReasoningSummaryTextDeltaEvent:
			r.item(event.ItemID, event.OutputIndex).deltas += event.Delta
		case sdk.ResponseReasoningSummaryTextDoneEvent:
			r.item(event.ItemID, event.OutputIndex).done = event.Text
		case sdk.ResponseFunctionCallArgumentsDeltaEvent:
			r.item(event.ItemID, event.OutputIndex).deltas += event.Delta
		case sdk.ResponseFunctionCallArgumentsDoneEvent:
			r.item(event.ItemID, event.OutputIndex).done = event.Arguments
		case sdk.ResponseCustomToolCallInputDeltaEvent:
			r.item(event.ItemID, event.OutputIndex).deltas += event.Delta
		case sdk.ResponseCustomToolCallInputDoneEvent:
			r.item(event.ItemID, event.OutputIndex).done = event.Input
		}
	}
	require.NoError(t, s.Err())
	require.Equal(t, closed, int64(len(r.items)), "every item is closed")
	var whole sdk.Response
	require.NoError(t, json.Unmarshal(r.whole, &whole))
	required(t, whole, whole.RawJSON())
	require.Equal(t, "response."+string(whole.Status), last.Type)
	require.Equal(t, string(r.whole), last.Response.RawJSON())
	require.Len(t, whole.Output, len(r.items))
	for i, item := range whole.Output {
		require.Equal(t, int64(i), r.items[item.ID].index)
	}
}

func (r reader) item(id string, index int64) *seen {
	it := r.items[id]
	require.NotNil(r.t, it, "added before its deltas")
	require.Equal(r.t, it.index, index)
	require.False(r.t, it.closed)
	return it
}

// closed checks that the item is what its events said.
func (r reader) closed(event sdk.ResponseOutputItemDoneEvent) {
	t, it := r.t, r.item(event.Item.ID, event.OutputIndex)
	it.closed = true
	required(t, event.Item.AsAny(), event.Item.RawJSON())
	require.Contains(t, string(r.whole), event.Item.RawJSON(), "the whole answer has the same item")
	require.Equal(t, it.done, it.deltas)
	switch item := event.Item.AsAny().(type) {
	case sdk.ResponseOutputMessage:
		require.Equal(t, it.done, item.Content[0].Text)
	case sdk.ResponseReasoningItem:
		require.Equal(t, it.done, item.Summary[0].Text)
	case sdk.ResponseFunctionToolCall:
		require.Equal(t, it.done, item.Arguments)
		require.NotEmpty(t, item.CallID)
		if item.Status == "completed" && item.Name == "read" {
			require.Equal(t, "files", item.Namespace)
		}
	case sdk.ResponseCustomToolCall:
		require.Equal(t, it.done, item.Input)
	case sdk.ResponseOutputItemLocalShellCall, sdk.ResponseFunctionShellToolCall, sdk.ResponseApplyPatchToolCall:
	default:
		require.Fail(t, "an item of an unknown kind", "%T", item)
	}
}

// required checks that every member is there that the client's type calls
// required, but for access_programs, which are a matter of OpenAI's own accounts.
func required(t *rapid.T, v any, raw string) {
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(raw), &members))
	typ := reflect.TypeOf(v)
	require.Equal(t, reflect.Struct, typ.Kind())
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("api") != "required" && name != "type" || name == "access_programs" {
			continue
		}
		_, there := members[name]
		require.True(t, there, "%s of %s", name, typ.Name())
	}
}
