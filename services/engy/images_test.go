package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing"
)

const (
	// seeing is what an engine takes here: kimi-k3 sees, qwen3.8-27b also hears,
	// and glm-5.2 reads.
	seeing = "SIM_MODELS=kimi-k3=2000000+image,qwen3.8-27b=2000000+image+audio,glm-5.2=1048576"
	// mediaTokens is what a picture or a sound adds to a hold, partsMax how many a
	// request may have, and mediaBytes how many bytes they may have together.
	mediaTokens = 1024
	partsMax    = 16
	mediaBytes  = 20 << 20
	// sound stands for one: nobody looks inside.
	sound = "UklGRiQAAABXQVZFZm10IBAAAAA="
)

// newSeeing is a platform whose engine takes pictures and sound.
func newSeeing(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, shape{simEnv: []string{seeing}})
	c.eventually("sound is taken", func() bool { return strings.Contains(c.inputs("qwen3.8-27b"), "audio") })
	return c
}

// inputs gives what a model takes, as the list tells it; empty when nobody
// serves it.
func (c *cluster) inputs(model string) string {
	c.t.Helper()
	var one struct {
		Inputs []string `json:"input_modalities"`
	}
	require.NoError(c.t, json.Unmarshal([]byte(c.body(c.do("GET", "/v1/models/"+model, "", nil))), &one))
	return strings.Join(one.Inputs, " ")
}

// picture gives a small picture as base64.
func picture(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))))
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// heavy gives something that looks like a picture, of a number of bytes.
func heavy(size int) string {
	b := make([]byte, size)
	copy(b, "\x89PNG\r\n\x1a\n")
	return base64.StdEncoding.EncodeToString(b)
}

// dialect is a way to ask about pictures.
type dialect struct{ path, text, picture, turn string }

// dialects gives all of them. The forms take a text, the type and the data of a
// picture, and the model, the stream and the parts of a turn.
func dialects() []dialect {
	return []dialect{
		{
			"/v1/chat/completions", `{"type":"text","text":%q}`, `{"type":"image_url","image_url":{"url":"data:%s;base64,%s","detail":"low"}}`,
			`{"model":%q,"stream":%t,"max_tokens":9,"messages":[{"role":"user","content":[%s]}]}`,
		},
		{
			"/v1/messages", `{"type":"text","text":%q}`, `{"type":"image","source":{"type":"base64","media_type":%q,"data":%q}}`,
			`{"model":%q,"stream":%t,"max_tokens":9,"messages":[{"role":"user","content":[%s]}]}`,
		},
		{
			"/v1/responses", `{"type":"input_text","text":%q}`, `{"type":"input_image","detail":"auto","image_url":"data:%s;base64,%s"}`,
			`{"model":%q,"stream":%t,"max_output_tokens":9,"input":[{"role":"user","content":[%s]}]}`,
		},
	}
}

// ask writes a request of a text and then pictures, each a type and data.
func (d dialect) ask(model string, stream bool, text string, pictures ...[2]string) string {
	parts := []string{fmt.Sprintf(d.text, text)}
	for _, p := range pictures {
		parts = append(parts, fmt.Sprintf(d.picture, p[0], p[1]))
	}
	return fmt.Sprintf(d.turn, model, stream, strings.Join(parts, ","))
}

// send gives the status and the body of an answer.
func (c *cluster) send(path, key, body string) (status int, answer string) {
	c.t.Helper()
	resp := c.do("POST", path, key, strings.NewReader(body))
	return resp.StatusCode, c.body(resp)
}

// untouched proves that what is done gives no work to the engine and costs nothing.
func (c *cluster) untouched(do func()) {
	c.t.Helper()
	c.settled(c.balance()) // what went before is booked
	engine, before := c.counters(), c.balance()
	do()
	require.Equal(c.t, engine, c.counters(), "the engine was asked")
	require.Zero(c.t, c.settled(before))
}

// requireRefusal reads an error in the form of a path's dialect.
func requireRefusal(t *testing.T, path, answer string, code int, kind string, words ...string) {
	t.Helper()
	var e struct {
		Type  string
		Error struct {
			Type, Message string
			Code          int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &e), "%s", answer)
	require.Equal(t, kind, e.Error.Type, answer)
	if path == "/v1/messages" {
		require.Equal(t, "error", e.Type)
	} else {
		require.Equal(t, code, e.Error.Code)
	}
	for _, w := range words {
		require.Contains(t, e.Error.Message, w)
	}
}

// shown is a part as the engine gets it.
func shown(kind, data string) map[string]any {
	return map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:" + kind + ";base64," + data}}
}

func said(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

func TestPicturesReachTheEngineInEveryDialect(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	small := picture(t)
	gif := base64.StdEncoding.EncodeToString([]byte("GIF89a\x01\x00\x01\x00"))
	for i, d := range dialects() {
		for _, stream := range []bool{false, true} {
			name := fmt.Sprintf("pictures-%d-%t", i, stream)
			text := "compare [[sim tokens=3 record=" + name + "]]"
			before := c.balance()
			status, answer := c.send(d.path, c.key, d.ask("kimi-k3", stream, text, [2]string{"image/png", small}, [2]string{"image/gif", gif}))
			require.Equal(t, 200, status, answer)
			require.Positive(t, int64(c.settled(before)))
			sent, _ := c.kept(name)
			require.Len(t, sent.Messages, 1)
			require.Equal(t, "user", sent.Messages[0].Role)
			require.Equal(t, []any{said(text), shown("image/png", small), shown("image/gif", gif)}, sent.Messages[0].Content, "in their order, byte for byte")
		}
	}
}

// Messages of tools hold text only, so what a tool shows is shown by the user.
func TestPicturesOfToolsReachTheEngine(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	small := picture(t)
	call := `{"role":"assistant","content":null,"tool_calls":[{"id":"A","type":"function","function":{"name":"look","arguments":"{}"}}]}`
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"kimi-k3","max_tokens":9,"messages":[{"role":"user","content":"go"},` + call + `,
			{"role":"tool","tool_call_id":"A","content":[{"type":"text","text":"here"},{"type":"image_url","image_url":{"url":"data:image/png;base64,PICTURE"}}]},
			{"role":"user","content":"SAY"}]}`,
		"/v1/messages": `{"model":"kimi-k3","max_tokens":9,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"A","name":"look","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"A","content":[{"type":"text","text":"here"},
				{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PICTURE"}}]},{"type":"text","text":"SAY"}]}]}`,
		"/v1/responses": `{"model":"kimi-k3","max_output_tokens":9,"input":[{"role":"user","content":"go"},
			{"type":"function_call","call_id":"A","name":"look","arguments":"{}"},
			{"type":"function_call_output","call_id":"A","output":[{"type":"input_text","text":"here"},{"type":"input_image","image_url":"data:image/png;base64,PICTURE"}]},
			{"role":"user","content":"SAY"}]}`,
	} {
		text := "what is it? [[sim tokens=2 record=tools]]"
		status, answer := c.send(path, c.key, strings.NewReplacer("PICTURE", small, "SAY", text).Replace(body))
		require.Equal(t, 200, status, "%s: %s", path, answer)
		sent, _ := c.kept("tools")
		require.Len(t, sent.Messages, 4, path)
		require.Equal(t, "tool", sent.Messages[2].Role, path)
		require.Equal(t, "here", sent.Messages[2].Content, path)
		require.Equal(t, "user", sent.Messages[3].Role, path)
		require.Equal(t, []any{shown("image/png", small), said(text)}, sent.Messages[3].Content, path)
	}

	t.Run("without a word of the user", func(t *testing.T) {
		before := c.balance()
		status, answer := c.send("/v1/messages", c.key, strings.ReplaceAll(`{"model":"kimi-k3","max_tokens":9,"messages":[
			{"role":"user","content":"go [[sim tokens=2 record=silent]]"},
			{"role":"assistant","content":[{"type":"tool_use","id":"A","name":"look","input":{}},{"type":"tool_use","id":"B","name":"look","input":{}}]},
			{"role":"user","content":[
				{"type":"tool_result","tool_use_id":"A","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PICTURE"}}]},
				{"type":"tool_result","tool_use_id":"B","is_error":true,"content":[{"type":"text","text":"boom"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PICTURE"}}]}]}]}`,
			"PICTURE", small))
		require.Equal(t, 200, status, answer)
		require.Positive(t, int64(c.settled(before)))
		sent, _ := c.kept("silent")
		roles := make([]string, 0, len(sent.Messages))
		for _, m := range sent.Messages {
			roles = append(roles, m.Role)
		}
		require.Equal(t, []string{"user", "assistant", "tool", "tool", "user"}, roles)
		require.Empty(t, sent.Messages[2].Content)
		require.Equal(t, "Error: boom", sent.Messages[3].Content)
		require.Equal(t, []any{shown("image/png", small), shown("image/png", small)}, sent.Messages[4].Content)
	})
}

func TestPicturesOfTheAssistantAreDropped(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	body := `{"model":%q,"max_tokens":9,"messages":[{"role":"user","content":"draw"},
		{"role":"assistant","content":[{"type":"text","text":"done"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + picture(t) + `"}}]},
		{"role":"user","content":"thanks [[sim tokens=2 record=assistant]]"}]}`
	// The model that only reads gets the conversation, too: nothing is left to see.
	for _, model := range []string{"kimi-k3", "glm-5.2"} {
		status, answer := c.send("/v1/messages", c.key, fmt.Sprintf(body, model))
		require.Equal(t, 200, status, answer)
		sent, raw := c.kept("assistant")
		require.Len(t, sent.Messages, 3)
		require.Equal(t, "done", sent.Messages[1].Content)
		require.NotContains(t, raw, "image")
	}
}

func TestAModelThatOnlyReadsIsGivenNoPictures(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	// An account whose hold would be refused is told of the picture and not of the
	// money, so none was asked for.
	_, poor := c.customer("poor", "0.000001", billing.KeyOptions{})
	one := [2]string{"image/png", picture(t)}
	for _, d := range dialects() {
		for _, stream := range []bool{false, true} {
			// The work may begin while the hold is asked for, so this one is not free.
			status, answer := c.send(d.path, poor, d.ask("glm-5.2", stream, "hi"))
			require.Equal(t, 402, status, answer)
			c.running(0)
			c.untouched(func() {
				for _, key := range []string{c.key, poor} {
					status, answer := c.send(d.path, key, d.ask("glm-5.2", stream, "hi", one))
					require.Equal(t, 400, status, answer)
					requireRefusal(t, d.path, answer, 400, "invalid_request_error", "glm-5.2", "image")
				}
			})
		}
	}
	for _, model := range []string{"glm-5.2", "kimi-k3"} {
		c.untouched(func() {
			status, answer := c.send("/v1/chat/completions", poor, audible(model, "hi"))
			require.Equal(t, 400, status, answer)
			requireRefusal(t, "", answer, 400, "invalid_request_error", model, "audio")
		})
	}
}

// audible asks about a sound.
func audible(model, text string) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":%q},
		{"type":"input_audio","input_audio":{"data":%q,"format":"wav"}}]}]}`, model, text, sound)
}

func TestSoundReachesTheEngine(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	want := map[string]any{"type": "input_audio", "input_audio": map[string]any{"data": sound, "format": "wav"}}
	for path, body := range map[string]string{
		"/v1/chat/completions": audible("qwen3.8-27b", "listen [[sim tokens=2 record=sound]]"),
		"/v1/responses": fmt.Sprintf(`{"model":"qwen3.8-27b","max_output_tokens":9,"input":[{"role":"user","content":[
			{"type":"input_text","text":"listen [[sim tokens=2 record=sound]]"},{"type":"input_audio","input_audio":{"data":%q,"format":"wav"}}]}]}`, sound),
	} {
		before := c.balance()
		status, answer := c.send(path, c.key, body)
		require.Equal(t, 200, status, answer)
		require.Positive(t, int64(c.settled(before)))
		sent, _ := c.kept("sound")
		require.Equal(t, []any{said("listen [[sim tokens=2 record=sound]]"), want}, sent.Messages[0].Content, path)
	}
}

func TestNoAddressIsEverFetched(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	visited, host := trap(t)
	_, port, err := net.SplitHostPort(host)
	require.NoError(t, err)
	small := picture(t)
	urls := []string{
		"http://" + host + "/a.png", "HTTP://" + host + "/a.png", "https://" + host + "/a.png", "http://localhost:" + port + "/a.png",
		"//" + host + "/a.png", host + "/a.png", "ftp://" + host + "/a.png", "file:///etc/hostname", "/etc/hostname",
		"http://169.254.169.254/latest/meta-data/", " data:image/png;base64," + small, "",
		"data:text/html;base64," + small, "data:application/octet-stream;base64," + small, "data:;base64," + small,
		"data:image/png," + small, "data:image/png;base64,@@@", "data:image/png;base64,", "data:image/png;base64",
	}
	forms := map[string]string{
		"/v1/chat/completions": `{"model":"kimi-k3","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]}]}`,
		"/v1/messages":         `{"model":"kimi-k3","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":%q}}]}]}`,
		"/v1/responses":        `{"model":"kimi-k3","input":[{"role":"user","content":[{"type":"input_image","image_url":%q}]}]}`,
	}
	inside := map[string]string{
		"/v1/messages": `{"model":"kimi-k3","max_tokens":9,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"A","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"A","content":[{"type":"image","source":{"type":"url","url":%q}}]}]}]}`,
		"/v1/responses": `{"model":"kimi-k3","input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"A","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"A","output":[{"type":"input_image","image_url":%q}]}]}`,
		"/v1/chat/completions": `{"model":"qwen3.8-27b","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":%q,"format":"http"}}]}]}`,
	}
	c.untouched(func() {
		for _, group := range []map[string]string{forms, inside} {
			for path, form := range group {
				for _, url := range urls {
					if strings.Contains(form, "input_audio") && !strings.Contains(url, host) {
						continue
					}
					status, answer := c.send(path, c.key, fmt.Sprintf(form, url))
					require.Equal(t, 400, status, "%s %q: %s", path, url, answer)
					requireRefusal(t, path, answer, 400, "invalid_request_error")
					require.NotContains(t, answer, host)
				}
			}
		}
	})
	// What is inline is taken, however its scheme is spelt and its lines broken.
	for _, url := range []string{
		"DATA:Image/PNG;BASE64," + small, "data:image/png;base64," + small[:20] + "\r\n" + small[20:], "data:image/x-unheard-of;base64,AAAA",
	} {
		quoted, err := json.Marshal(url)
		require.NoError(t, err)
		for path, form := range forms {
			if path == "/v1/messages" {
				continue // its pictures have no address
			}
			status, answer := c.send(path, c.key, strings.ReplaceAll(form, "%q", string(quoted)))
			require.Equal(t, 200, status, "%s %q: %s", path, url, answer)
		}
	}
	require.Zero(t, visited())
	resp, err := http.Get("http://" + host)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, int64(1), visited(), "it would have seen a visitor")
}

// trap is a web server that counts its visitors, at an address of this machine.
func trap(t *testing.T) (visited func() int64, host string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var n atomic.Int64
	s := &http.Server{ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return n.Load, l.Addr().String()
}

func TestAPictureIsWhatItSaysItIs(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	heads := map[string]string{
		"image/png": "\x89PNG\r\n\x1a\n", "image/jpeg": "\xff\xd8\xff\xe0", "image/gif": "GIF89a", "image/webp": "RIFF\x04\x00\x00\x00WEBP",
	}
	for _, d := range dialects() {
		for declared := range heads {
			for actual, head := range heads {
				data := base64.StdEncoding.EncodeToString([]byte(head + "rest"))
				status, answer := c.send(d.path, c.key, d.ask("kimi-k3", false, "[[sim tokens=1]]", [2]string{declared, data}))
				if declared == actual {
					require.Equal(t, 200, status, "%s %s: %s", d.path, declared, answer)
					continue
				}
				require.Equal(t, 400, status, "%s, %s as %s", d.path, actual, declared)
				requireRefusal(t, d.path, answer, 400, "invalid_request_error")
			}
		}
		data := base64.StdEncoding.EncodeToString([]byte("<html><script>"))
		status, _ := c.send(d.path, c.key, d.ask("kimi-k3", false, "hi", [2]string{"image/png", data}))
		require.Equal(t, 400, status)
	}
}

func TestPicturesHaveBounds(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	small := [2]string{"image/png", picture(t)}
	many := make([][2]string, partsMax)
	for i := range many {
		many[i] = small
	}
	half := [2]string{"image/png", heavy(mediaBytes / 2)}
	whole := [][2]string{half, half}
	over := [][2]string{half, {"image/png", heavy(mediaBytes/2 + 1)}}
	for _, d := range dialects() {
		for _, pictures := range [][][2]string{many, whole} {
			status, answer := c.send(d.path, c.key, d.ask("kimi-k3", false, "[[sim tokens=1]]", pictures...))
			require.Equal(t, 200, status, "%s: %s", d.path, answer)
		}
		c.untouched(func() {
			for words, pictures := range map[string][][2]string{"17": append(many, small), "20971521": over} {
				status, answer := c.send(d.path, c.key, d.ask("kimi-k3", true, "hi", pictures...))
				require.Equal(t, 413, status, answer)
				requireRefusal(t, d.path, answer, 413, "request_too_large", words)
			}
		})
	}
	// A sound counts like a picture.
	d := dialects()[0]
	hearing := func(pictures int) string {
		body := d.ask("qwen3.8-27b", false, "[[sim tokens=1]]", many[:pictures]...)
		return strings.Replace(body, `{"type":"text"`, `{"type":"input_audio","input_audio":{"format":"wav","data":"`+sound+`"}},{"type":"text"`, 1)
	}
	status, answer := c.send(d.path, c.key, hearing(partsMax-1))
	require.Equal(t, 200, status, answer)
	status, answer = c.send(d.path, c.key, hearing(partsMax))
	require.Equal(t, 413, status, answer)
}

func TestPicturesAreHeldForAndChargedAsCounted(t *testing.T) {
	t.Parallel()
	c := newSeeing(t)
	list, err := pricing.Default()
	require.NoError(t, err)
	small := [2]string{"image/png", picture(t)}
	d := dialects()[0]
	for i, one := range []struct {
		model, body string
		parts       int64
	}{
		{"kimi-k3", d.ask("kimi-k3", false, "[[sim tokens=2]]", small), 1},
		{"kimi-k3", d.ask("kimi-k3", true, "[[sim tokens=2]]", small, small, small), 3},
		{"qwen3.8-27b", audible("qwen3.8-27b", "[[sim tokens=2]]"), 1},
	} {
		rates, ok := list.Of(one.model)
		require.True(t, ok)
		held, err := pricing.Ceiling(rates, int64(len("[[sim tokens=2]]"))/4+16+mediaTokens*one.parts, 9)
		require.NoError(t, err)
		// Enough to the last millionth of a dollar, and one too few.
		_, exact := c.customer(fmt.Sprintf("exact-%d", i), held.USD(), billing.KeyOptions{})
		_, short := c.customer(fmt.Sprintf("short-%d", i), (held - 1).USD(), billing.KeyOptions{})
		status, answer := c.send(d.path, short, one.body)
		require.Equal(t, 402, status, answer)
		r := c.fold(c.do("POST", d.path, exact, strings.NewReader(one.body)))
		require.Nil(t, r.Error)
		require.Equal(t, "stop", r.Finish)
		// The engine counts 256 tokens for each, whatever was held.
		require.Less(t, r.Usage.Prompt, mediaTokens*one.parts)
		require.Greater(t, r.Usage.Prompt, 256*one.parts)
		paid := spent{Model: one.model, Input: r.Usage.Prompt, Cached: r.Usage.Details.Cached, Output: r.Usage.Completion}.price(t)
		require.Equal(t, paid, money.Micro(r.Engy.ChargedMicro))
		require.Less(t, paid, held)
	}
	c.settled(c.balance())
}
