package main_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Cursor calls from servers of its own and Hermes is not to be had here, so
// these tests send what they are documented to send. They prove the shapes, not
// the programs.

func (c *cluster) post(body string) *http.Response {
	c.t.Helper()
	return c.do("POST", "/v1/chat/completions", c.key, strings.NewReader(body))
}

// kept reads what the simulator was sent by a request with record=name.
func (c *cluster) kept(name string) (body struct {
	Messages []struct {
		Role      string          `json:"role"`
		Content   any             `json:"content"`
		ToolCalls json.RawMessage `json:"tool_calls"`
	} `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
	Template map[string]any    `json:"chat_template_kwargs"`
}, raw string,
) {
	c.t.Helper()
	resp, err := http.Get(c.sim + "/sim/kept/" + name)
	require.NoError(c.t, err)
	raw = c.body(resp)
	require.NoError(c.t, json.Unmarshal([]byte(raw), &body), "%s", raw)
	return body, raw
}

func TestWhatCursorSends(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	t.Run("its check of a key", func(t *testing.T) {
		r := c.fold(c.post(`{"model":"engy/glm-5.2","messages":[{"role":"user","content":"Test prompt using glm"}],"max_tokens":1,"temperature":0}`))
		require.Equal(t, "length", r.Finish)
	})
	t.Run("a turn of its agent", func(t *testing.T) {
		resp := c.post(`{"model":"engy/glm-5.2","user":"google-oauth2|1","stream":true,"stream_options":{"include_usage":true},
			"messages":[
				{"role":"system","content":"You are an editor."},
				{"role":"user","content":"<user_info>linux</user_info>"},
				{"role":"user","content":[{"type":"text","text":"<open_files>a.go</open_files>"}]},
				{"role":"user","content":"Read a.go [[sim tool=read_file args={\"path\":\"a.go\"} record=cursor]]"}],
			"tools":[{"type":"function","function":{"name":"read_file","description":"Reads.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}],
			"tool_choice":"auto"}`)
		body := c.body(resp)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Contains(t, body, `"model":"engy/glm-5.2"`, "the spelling is echoed")
		require.Contains(t, body, `"name":"read_file"`)
		require.Contains(t, body, `"finish_reason":"tool_calls"`)
		require.Equal(t, 1, strings.Count(body, `"choices":[]`), "one chunk of usage alone")
		require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"))
		sent, _ := c.kept("cursor")
		require.Len(t, sent.Messages, 4, "user messages in a row stay apart")
		require.Len(t, sent.Tools, 1)
	})
	t.Run("the result of a tool", func(t *testing.T) {
		r := c.fold(c.post(`{"model":"engy/glm-5.2","stream":true,"messages":[
			{"role":"user","content":"Read a.go [[sim echo_result]]"},
			{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a.go\"}"}}]},
			{"role":"tool","tool_call_id":"call_1","content":"package a"}]}`))
		require.Equal(t, "package a", r.Text)
	})
	t.Run("the form of another route", func(t *testing.T) {
		resp := c.post(`{"model":"engy/glm-5.2","stream":true,"input":[{"role":"user","content":"hi"}],
			"tools":[{"type":"function","name":"read_file","parameters":{}}],"reasoning":{"effort":"medium"},"text":{"verbosity":"low"}}`)
		body := c.body(resp)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Contains(t, body, `"object":"chat.completion.chunk"`, "its answer is read as a chat")
		require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"))
		resp = c.post(`{"model":"engy/glm-5.2","stream":true,"input":5}`)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, c.body(resp))
	})
	t.Run("a model that is not here", func(t *testing.T) {
		resp := c.post(`{"model":"engy/no-such-model","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		body := c.body(resp)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, body)
		require.Contains(t, body, `"type":"not_found_error"`)
	})
	require.Positive(t, int64(c.settled(before)))
}

func TestWhatHermesSends(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shape{})
	before := c.balance()
	t.Run("its search for other servers finds none", func(t *testing.T) {
		// A busy machine gets more than one chance.
		c.eventually("no look is given up, as each is after two seconds", func() bool {
			begun := time.Now()
			for _, path := range []string{"/api/v1/models", "/api/tags", "/v1/props", "/props", "/version"} {
				resp := c.do("GET", path, c.key, nil)
				body := c.body(resp)
				require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
				require.True(t, json.Valid([]byte(body)), path)
			}
			return time.Since(begun) < 2*time.Second
		})
	})
	t.Run("the window of a model", func(t *testing.T) {
		var list struct {
			Data []struct {
				ID     string `json:"id"`
				Window int64  `json:"context_length"`
			} `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(c.body(c.do("GET", "/v1/models", "", nil))), &list))
		windows := map[string]int64{}
		for _, m := range list.Data {
			windows[m.ID] = m.Window
		}
		require.Equal(t, int64(262_144), windows["glm-5.2"])
		require.Equal(t, int64(1_048_576), windows["kimi-k3"])
	})
	for name, effort := range map[string]string{
		"the wish for thought as an object": `"reasoning":{"enabled":true,"effort":"xhigh"}`,
		"the wish for thought as a word":    `"reasoning_effort":"xhigh"`,
		"the wish for no thought at all":    `"reasoning":{"enabled":false}`,
	} {
		t.Run(name, func(t *testing.T) {
			mark := strings.ReplaceAll(name[13:], " ", "_")
			r := c.fold(c.post(`{"model":"glm-5.2","stream":true,` + effort + `,"messages":[
				{"role":"system","content":"You are Hermes."},
				{"role":"user","content":"look"},
				{"role":"assistant","content":"I look.","reasoning":"hm","reasoning_content":"hm","finish_reason":"tool_calls",
					"tool_calls":[{"id":"call_1","call_id":"call_1","response_item_id":"fc_1","type":"function","function":{"name":"look","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"call_1","name":"look","content":"a lamp"},
				{"role":"user","content":"go on [[sim tokens=3 record=` + mark + `]]"}]}`))
			require.Nil(t, r.Error)
			require.Equal(t, "stop", r.Finish)
			sent, raw := c.kept(mark)
			require.Len(t, sent.Messages, 5)
			require.NotContains(t, raw, "response_item_id")
			if strings.Contains(effort, "false") {
				require.Equal(t, false, sent.Template["enable_thinking"])
			} else {
				require.Equal(t, "max", sent.Template["reasoning_effort"], "the model's own word")
			}
		})
	}
	t.Run("more than fits", func(t *testing.T) {
		resp := c.chat(c.key, hello(tooLong(), true))
		body := c.body(resp)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
		require.Contains(t, body, "context window of 262144", "the message names the window")
	})
	require.Positive(t, int64(c.settled(before)))
}
