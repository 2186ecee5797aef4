package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/engy-ai/engy/services/sim"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a simulator under test and a client for it.
type engine struct {
	url    string
	client *http.Client
	cancel context.CancelFunc
	ended  chan error
}

// start runs a simulator until the test ends.
func start(t testing.TB, change ...func(*sim.Config)) *engine {
	t.Helper()
	cfg := sim.Config{Listen: "127.0.0.1:0", Models: sim.Models{{ID: "m"}, {ID: "small", Window: 256}}}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan string, 1)
	e := &engine{client: &http.Client{Transport: &http.Transport{}}, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		e.ended <- sim.Run(ctx, cfg, sim.Deps{Ready: func(addr string) { ready <- addr }})
		close(e.ended)
	}()
	select {
	case addr := <-ready:
		e.url = "http://" + addr
	case err := <-e.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		e.client.CloseIdleConnections()
		if err, ok := <-e.ended; ok && err != nil && !errors.Is(err, sim.ErrDied) {
			t.Error(err)
		}
	})
	return e
}

type object = map[string]any

// user is a chat body with one user message.
func user(text string, more ...object) object {
	body := object{"model": "m", "messages": []object{{"role": "user", "content": text}}}
	for _, m := range more {
		for k, v := range m {
			body[k] = v
		}
	}
	return body
}

// post sends a body, as it is or as JSON.
func (e *engine) post(t *testing.T, path string, body any) *http.Response {
	t.Helper()
	raw, ok := body.([]byte)
	if !ok {
		var err error
		// In fixed order, so that a body has the same prompt every time.
		raw, err = json.Marshal(body, json.Deterministic(true))
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(raw))
	require.NoError(t, err)
	res, err := e.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func (e *engine) get(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+path, nil)
	require.NoError(t, err)
	res, err := e.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

type logprob struct {
	Token       string    `json:"token"`
	Logprob     float64   `json:"logprob"`
	Bytes       []int     `json:"bytes"`
	TopLogprobs []logprob `json:"top_logprobs"`
}

type toolCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type message struct {
	Role             string     `json:"role"`
	Content          string     `json:"content"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"`
	ToolCalls        []toolCall `json:"tool_calls"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Reasoning  int `json:"reasoning_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Completed struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type choice struct {
	Index    int     `json:"index"`
	Message  message `json:"message"`
	Delta    message `json:"delta"`
	Text     string  `json:"text"`
	Finish   string  `json:"finish_reason"`
	Logprobs *struct {
		Content []logprob `json:"content"`
	} `json:"logprobs"`
}

type reply struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
	System  string   `json:"system_fingerprint"`
}

// chat asks for one JSON answer.
func (e *engine) chat(t *testing.T, body object) reply {
	t.Helper()
	res := e.post(t, "/v1/chat/completions", body)
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, string(raw))
	var r reply
	require.NoError(t, json.Unmarshal(raw, &r), string(raw))
	for i := range r.Choices {
		// An empty list and none mean the same.
		if m := &r.Choices[i].Message; len(m.ToolCalls) == 0 {
			m.ToolCalls = nil
		}
	}
	return r
}

// refused sends a body that must fail and gives the status and the message.
func (e *engine) refused(t *testing.T, path string, body any) (int, string) {
	t.Helper()
	res := e.post(t, path, body)
	var f struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    int     `json:"code"`
		} `json:"error"`
	}
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	require.NoError(t, json.UnmarshalRead(res.Body, &f))
	require.Equal(t, res.StatusCode, f.Error.Code)
	require.NotEmpty(t, f.Error.Type)
	return res.StatusCode, f.Error.Message
}

// lines opens a stream and gives its data lines one by one, without the prefix.
type lines struct {
	res  *http.Response
	scan *bufio.Scanner
}

func (e *engine) open(t *testing.T, path string, body object) *lines {
	t.Helper()
	body["stream"] = true
	if body["stream_options"] == nil {
		body["stream_options"] = object{"include_usage": true}
	}
	res := e.post(t, path, body)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, res.Header.Get("Content-Type"), "text/event-stream")
	scan := bufio.NewScanner(res.Body)
	scan.Buffer(nil, 64<<20)
	return &lines{res, scan}
}

// next gives the next data line, or what ended the stream.
func (l *lines) next() (string, error) {
	for l.scan.Scan() {
		if data, ok := strings.CutPrefix(l.scan.Text(), "data: "); ok {
			return data, nil
		}
	}
	if l.scan.Err() != nil {
		return "", l.scan.Err()
	}
	return "", io.EOF
}

// rest reads all data lines that are left.
func (l *lines) rest(t *testing.T) (data []string, err error) {
	t.Helper()
	for {
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return data, err
		}
		data = append(data, line)
	}
}

// chunks decodes the lines of a whole stream.
func chunks(t *testing.T, data []string) []reply {
	t.Helper()
	require.NotEmpty(t, data)
	require.Equal(t, "[DONE]", data[len(data)-1])
	list := make([]reply, 0, len(data))
	for _, line := range data[:len(data)-1] {
		var r reply
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		list = append(list, r)
	}
	return list
}

// fold joins a stream into the answer that it stands for.
func fold(t *testing.T, list []reply) reply {
	t.Helper()
	out := reply{ID: list[0].ID, Object: list[0].Object, Model: list[0].Model, System: list[0].System}
	for _, r := range list {
		require.Equal(t, out.ID, r.ID)
		if r.Usage != nil {
			out.Usage = r.Usage
		}
		for _, c := range r.Choices {
			for len(out.Choices) <= c.Index {
				out.Choices = append(out.Choices, choice{Index: len(out.Choices)})
			}
			foldChoice(&out.Choices[c.Index], c)
		}
	}
	return out
}

func foldChoice(to *choice, c choice) {
	to.Text += c.Text
	to.Finish += c.Finish
	m, d := &to.Message, c.Delta
	m.Role += d.Role
	m.Content += d.Content
	m.ReasoningContent += d.ReasoningContent
	m.Reasoning += d.Reasoning
	for _, call := range d.ToolCalls {
		for len(m.ToolCalls) <= call.Index {
			m.ToolCalls = append(m.ToolCalls, toolCall{Index: len(m.ToolCalls)})
		}
		have := &m.ToolCalls[call.Index]
		have.ID += call.ID
		have.Type += call.Type
		have.Function.Name += call.Function.Name
		have.Function.Arguments += call.Function.Arguments
	}
	if c.Logprobs != nil {
		if to.Logprobs == nil {
			to.Logprobs = c.Logprobs
			return
		}
		to.Logprobs.Content = append(to.Logprobs.Content, c.Logprobs.Content...)
	}
}

type counts struct {
	Running, Total, Finished, Aborted, Refused int
	Completion                                 int `json:"completion_tokens"`
}

func (e *engine) counts(t *testing.T) counts {
	t.Helper()
	_, body := e.get(t, "/sim/requests")
	var c struct {
		Running    int `json:"running"`
		Total      int `json:"total"`
		Finished   int `json:"finished"`
		Aborted    int `json:"aborted"`
		Refused    int `json:"refused"`
		Completion int `json:"completion_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &c))
	return counts(c)
}

// until polls the counters for a state that must come.
func (e *engine) until(t *testing.T, ok func(counts) bool) counts {
	t.Helper()
	var c counts
	require.Eventually(t, func() bool { c = e.counts(t); return ok(c) }, patience, 2*time.Millisecond)
	return c
}

func TestRun(t *testing.T) {
	t.Parallel()
	t.Run("a bad configuration reports every problem", func(t *testing.T) {
		t.Parallel()
		err := sim.Run(t.Context(), sim.Config{Models: sim.Models{{ID: "a"}, {ID: "a", Window: -1}}, Slots: -1, ITL: -1, ReasoningField: "x"}, sim.Deps{})
		for _, part := range []string{"listen", "twice", "window", "slots", "itl", "reasoning field"} {
			require.ErrorContains(t, err, part)
		}
	})
	t.Run("an address in use is an error", func(t *testing.T) {
		t.Parallel()
		e := start(t)
		err := sim.Run(t.Context(), sim.Config{Listen: strings.TrimPrefix(e.url, "http://"), Models: sim.Models{{ID: "m"}}}, sim.Deps{})
		require.ErrorContains(t, err, "listen")
	})
	t.Run("a running answer is finished before the end", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.Drain = patience })
		s := e.open(t, "/v1/chat/completions", user("x [[sim tokens=20 itl=5ms]]"))
		_, err := s.next()
		require.NoError(t, err)
		e.cancel()
		data, err := s.rest(t)
		require.NoError(t, err)
		require.Equal(t, "[DONE]", data[len(data)-1])
		require.NoError(t, <-e.ended)
	})
	t.Run("an answer that outlives the drain is cut", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.Drain = time.Millisecond })
		s := e.open(t, "/v1/chat/completions", user("x [[sim tokens=100 itl=1h]]"))
		_, err := s.next()
		require.NoError(t, err)
		e.cancel()
		_, err = s.rest(t)
		require.Error(t, err)
		require.NoError(t, <-e.ended)
	})
	t.Run("a silence without end does not hold up the drain", func(t *testing.T) {
		t.Parallel()
		e := start(t, func(c *sim.Config) { c.Drain = time.Hour })
		s := e.open(t, "/v1/chat/completions", user("x [[sim stall=1]]"))
		_, err := s.next()
		require.NoError(t, err)
		e.cancel()
		_, err = s.rest(t)
		require.Error(t, err)
		require.NoError(t, <-e.ended)
	})
	t.Run("models are read from one line", func(t *testing.T) {
		t.Parallel()
		var m sim.Models
		require.NoError(t, m.UnmarshalText([]byte("a=8192, b")))
		require.Equal(t, sim.Models{{ID: "a", Window: 8192}, {ID: "b"}}, m)
		require.Equal(t, "a=8192,b", m.String())
		require.Error(t, m.UnmarshalText([]byte("a=many")))
	})
}
