package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/httpapi"
)

const (
	messages = "/v1/messages"
	counting = "/v1/messages/count_tokens"
)

// ask sends a request with headers given as name, value, name, value.
func ask(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+url, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client(t).Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// anthropicError reads an error in Anthropic's form.
func anthropicError(t *testing.T, resp *http.Response) (kind, message string) {
	t.Helper()
	var body struct {
		Type      string
		Error     struct{ Type, Message string }
		RequestID string `json:"request_id"`
	}
	raw := read(t, resp.Body)
	require.NoError(t, json.Unmarshal([]byte(raw), &body), raw)
	require.Equal(t, "error", body.Type, raw)
	require.Len(t, body.RequestID, 64)
	require.Equal(t, body.RequestID, resp.Header.Get("X-Engy-Request-Id"))
	require.Equal(t, body.RequestID, resp.Header.Get("Request-Id"))
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	return body.Error.Type, body.Error.Message
}

func TestMessagesComeInBothForms(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	resp := post(t, addr, messages+"?beta=true", goodKey, minimal)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "7", resp.Header.Get("X-Engy-Charged-Micro"))
	require.Equal(t, resp.Header.Get("X-Engy-Request-Id"), resp.Header.Get("Request-Id"))
	require.Contains(t, read(t, resp.Body), `"content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn"`)
	resp = post(t, addr, messages, goodKey, streamed)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Len(t, resp.Header.Get("Request-Id"), 64)
	require.True(t, strings.HasSuffix(read(t, resp.Body), "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"))
}

func TestAKeyMayComeInAHeaderOfItsOwn(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	// Without a key such a body would not even be read.
	large := minimal + strings.Repeat(" ", 100<<10)
	for name, try := range map[string]struct {
		path    string
		headers []string
		status  int
	}{
		"x-api-key":                  {messages, []string{"x-api-key", goodKey}, 200},
		"x-api-key in a query":       {messages + "?beta=true", []string{"x-api-key", goodKey}, 200},
		"both good":                  {messages, []string{"x-api-key", goodKey, "Authorization", "Bearer " + goodKey}, 200},
		"Authorization wins, good":   {messages, []string{"x-api-key", "wrong", "Authorization", "Bearer " + goodKey}, 200},
		"Authorization wins, bad":    {messages, []string{"x-api-key", goodKey, "Authorization", "Bearer wrong"}, 401},
		"Authorization wins, other":  {messages, []string{"x-api-key", goodKey, "Authorization", "Basic x"}, 401},
		"a wrong one":                {messages, []string{"x-api-key", "wrong"}, 401},
		"none":                       {messages, nil, 401},
		"not for other protocols":    {"/v1/chat/completions", []string{"x-api-key", goodKey}, 401},
		"nor for paths that look so": {"/v1/messagesx", []string{"x-api-key", goodKey}, 401},
	} {
		for size, body := range map[string]string{"small": minimal, "large": large} {
			resp := ask(t, "POST", addr+try.path, strings.NewReader(body), try.headers...)
			status := try.status
			if try.path == "/v1/messagesx" && size == "small" {
				status = 404
			}
			require.Equal(t, status, resp.StatusCode, "%s, %s", name, size)
			if status == 401 && strings.HasPrefix(try.path, messages+"?") {
				kind, _ := anthropicError(t, resp)
				require.Equal(t, "authentication_error", kind)
			}
		}
	}
}

func TestErrorsBelowMessagesSpeakItsWords(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	large := func(n int, chunked bool) io.Reader {
		var r io.Reader = strings.NewReader(minimal + strings.Repeat(" ", n-len(minimal)))
		if chunked {
			r = io.MultiReader(r)
		}
		return r
	}
	key := []string{"x-api-key", goodKey}
	for name, try := range map[string]struct {
		method, path string
		body         io.Reader
		headers      []string
		status       int
		kind         string
	}{
		"unknown route":           {"POST", messages + "/batches", nil, key, 404, "not_found_error"},
		"unknown method":          {"GET", messages, nil, key, 404, "not_found_error"},
		"no key":                  {"POST", messages, strings.NewReader(minimal), nil, 401, "authentication_error"},
		"no key, large":           {"POST", messages, large(100<<10, false), nil, 401, "authentication_error"},
		"no key, large, chunked":  {"POST", messages, large(100<<10, true), nil, 401, "authentication_error"},
		"too large":               {"POST", messages, large(bodyMax+1, false), key, 413, "request_too_large"},
		"too large, chunked":      {"POST", messages, large(bodyMax+1, true), key, 413, "request_too_large"},
		"much too large":          {"POST", messages + "?beta=true", large(32*bodyMax, true), key, 413, "request_too_large"},
		"malformed":               {"POST", messages, strings.NewReader("{"), key, 400, "invalid_request_error"},
		"compressed":              {"POST", messages, strings.NewReader(minimal), append([]string{"Content-Encoding", "gzip"}, key...), 400, "invalid_request_error"},
		"count: too large":        {"POST", counting, large(50*bodyMax, false), nil, 413, "request_too_large"},
		"count: over, chunked":    {"POST", counting + "?beta=true", large(bodyMax+1, true), nil, 413, "request_too_large"},
		"count: malformed":        {"POST", counting, strings.NewReader("{"), nil, 400, "invalid_request_error"},
		"count: nothing":          {"POST", counting, nil, nil, 400, "invalid_request_error"},
		"count: compressed":       {"POST", counting, strings.NewReader(minimal), []string{"Content-Encoding", "gzip"}, 400, "invalid_request_error"},
		"count: unknown model":    {"POST", counting, strings.NewReader(strings.Replace(minimal, `"m"`, `"none"`, 1)), nil, 404, "not_found_error"},
		"count: a wrong method":   {"GET", counting, nil, nil, 404, "not_found_error"},
		"count: below it, no key": {"POST", counting + "/x", strings.NewReader(minimal), nil, 404, "not_found_error"},
	} {
		resp := ask(t, try.method, addr+try.path, try.body, try.headers...)
		require.Equal(t, try.status, resp.StatusCode, name)
		kind, _ := anthropicError(t, resp)
		require.Equal(t, try.kind, kind, name)
	}
	resp := ask(t, "POST", addr+messages, strings.NewReader(minimal), append([]string{"X-Pad", strings.Repeat("a", 200<<10)}, key...)...)
	require.Equal(t, 431, resp.StatusCode)
}

func TestARefusedMessageSaysWhenToComeAgain(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		f := fault.New(fault.Busy, "full")
		f.Retry = 3 * time.Second
		return nil, f
	})
	resp := post(t, addr, messages, goodKey, minimal)
	require.Equal(t, 429, resp.StatusCode)
	require.Equal(t, "3", resp.Header.Get("Retry-After"))
	kind, _ := anthropicError(t, resp)
	require.Equal(t, "rate_limit_error", kind)
	resp = post(t, addr, messages, goodKey, streamed)
	require.Equal(t, 429, resp.StatusCode)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}

func TestSilenceIsAPingToMessages(t *testing.T) {
	t.Parallel()
	idles := 0
	addr, _ := start(t, func(context.Context, httpapi.Call) (httpapi.Answer, error) {
		return answer{next: func(context.Context, time.Duration) ([]llm.Event, error) {
			switch idles++; {
			case idles <= 3:
				return nil, httpapi.ErrIdle
			case idles == 4:
				return []llm.Event{{Kind: llm.Text, Text: "late"}}, nil
			}
			return []llm.Event{{Kind: llm.Failed, Fault: &llm.Fault{Code: fault.Engine, Message: "cut"}}}, nil
		}}, nil
	})
	body := read(t, post(t, addr, messages, goodKey, streamed).Body)
	require.True(t, strings.HasPrefix(body, "event: message_start\n"))
	require.Equal(t, 3, strings.Count(body, "event: ping\ndata: {\"type\":\"ping\"}\n\n"))
	require.Contains(t, body, `"text":"late"`)
	require.Contains(t, body, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"cut\"}")
	require.NotContains(t, body, "message_stop")
}

func TestAPromptIsCountedWithoutAKey(t *testing.T) {
	t.Parallel()
	opened := make(chan struct{}, 1)
	addr, _ := start(t, func(ctx context.Context, c httpapi.Call) (httpapi.Answer, error) {
		opened <- struct{}{}
		return good(ctx, c)
	})
	long := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 100_000) + `"}]}`
	for body, want := range map[string]int{minimal: 2, long: 100_000} {
		for _, path := range []string{counting, counting + "?beta=true"} {
			resp := ask(t, "POST", addr+path, strings.NewReader(body), "anthropic-version", "2023-06-01")
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, fmt.Sprintf(`{"input_tokens":%d}`, want), read(t, resp.Body))
			require.Len(t, resp.Header.Get("Request-Id"), 64)
			require.Empty(t, resp.Header.Get("X-Engy-Charged-Micro"))
		}
	}
	require.Empty(t, opened, "a count starts no job")
}

func TestCountsAreBoundedByAddress(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	// One kept connection, as clients use it. That this is no request takes no time to
	// find out, so that even a busy machine soon asks more than it may.
	c := client(t)
	counted := 0
	for limited := 0; limited < 3; {
		resp, err := c.Post("http://"+addr+counting, "application/json", strings.NewReader("["))
		require.NoError(t, err)
		if resp.StatusCode == 429 {
			limited++
			after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.True(t, after >= 1 && after <= 5)
			kind, _ := anthropicError(t, resp)
			require.Equal(t, "rate_limit_error", kind)
		} else {
			require.Equal(t, 400, resp.StatusCode)
			_ = read(t, resp.Body)
			counted++
		}
		_ = resp.Body.Close()
		require.Less(t, counted, 10_000)
	}
	require.GreaterOrEqual(t, counted, 200)
	// Who pays is not touched.
	require.Equal(t, 200, post(t, addr, messages, goodKey, minimal).StatusCode)
}

func TestCountsBehindAProxyAreBoundedByTheClientsAddress(t *testing.T) {
	t.Parallel()
	for _, believed := range []bool{true, false} {
		addr, _ := startWith(t, good, func(int) {}, func(c *httpapi.Config) {
			if believed {
				c.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}
		})
		const first, second = "9.9.9.9, 1.2.3.4", "1.2.3.4, 1.2.3.5"
		half := halfBody(t, addr, "X-Forwarded-For: "+first+"\r\n")
		large := minimal + strings.Repeat(" ", bodyMax/2)
		from := func(client string) int {
			return ask(t, "POST", addr+counting, strings.NewReader(large), "X-Forwarded-For", client).StatusCode
		}
		require.Equal(t, 429, from(first))
		if believed {
			require.Equal(t, 200, from(second), "another client")
		} else {
			require.Equal(t, 429, from(second), "anybody could say that")
		}
		require.NoError(t, half.Close())
	}
}

// halfBody begins a count whose body of full size does not come, and gives its
// connection once it is let in: one that came later than others would be refused.
func halfBody(t *testing.T, addr, headers string) net.Conn {
	t.Helper()
	half, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = half.Close() })
	_, err = fmt.Fprintf(half, "POST %s HTTP/1.1\r\nHost: x\r\n%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", counting, headers, bodyMax)
	require.NoError(t, err)
	admitted, err := bufio.NewReader(half).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, admitted, " 100 ")
	return half
}

func TestCountsUnderWayAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	// A large body that does not come holds its room until its connection ends.
	half := halfBody(t, addr, "")
	large := minimal + strings.Repeat(" ", bodyMax/2)
	status := func() int { return ask(t, "POST", addr+counting, strings.NewReader(large)).StatusCode }
	require.Equal(t, 429, status())
	require.Equal(t, 200, ask(t, "POST", addr+messages, strings.NewReader(large), "x-api-key", goodKey).StatusCode)
	// The body is not waited for when its head is refused.
	for _, more := range []string{"Content-Length: 1000", "Expect: 100-continue\r\nContent-Length: 1000", "Transfer-Encoding: chunked"} {
		got := raw(t, addr, "POST "+counting+"?beta=true HTTP/1.1\r\nHost: x\r\n"+more+"\r\n\r\n1")
		require.Contains(t, got, "HTTP/1.1 429 ")
		require.Contains(t, got, "Connection: close")
		require.Contains(t, got, "Retry-After: 1")
		require.Contains(t, got, "rate_limit_error")
	}
	require.NoError(t, half.Close())
	require.Eventually(t, func() bool { return status() == 200 }, patience, 200*time.Millisecond)
	// Requests that were answered hold nothing, on kept connections too.
	for range 5 {
		require.Equal(t, 200, status())
	}
}

func TestManyCountsAtOnceAreAnswered(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	var all sync.WaitGroup
	begun := time.Now()
	for range 24 {
		all.Go(func() {
			for {
				resp, err := http.Post("http://"+addr+counting, "application/json", strings.NewReader(minimal+strings.Repeat(" ", 30<<10)))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode == 429 && time.Since(begun) < patience {
					// One that waited too long for its turn comes again when it is told to.
					<-time.After(time.Second)
					continue
				}
				if resp.StatusCode != 200 {
					t.Error(resp.Status)
				}
				return
			}
		})
	}
	all.Wait()
	http.DefaultClient.CloseIdleConnections()
}

func TestTheModelsListHasTwoForms(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	version := []string{"anthropic-version", "2026-10-21"}
	resp := ask(t, "GET", addr+"/v1/models?limit=1000", nil, version...)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, `{"data":[{"type":"model","id":"glm-5.2","display_name":"glm-5.2","created_at":"1970-01-01T00:00:00Z","max_input_tokens":0,"max_tokens":0}],"has_more":false,"first_id":"glm-5.2","last_id":"glm-5.2"}`, read(t, resp.Body))
	for _, path := range []string{"/v1/models/glm-5.2", "/v1/models/engy%2Fglm-5.2"} {
		require.Contains(t, read(t, ask(t, "GET", addr+path, nil, version...).Body), `{"type":"model","id":"glm-5.2"`)
	}
	resp = ask(t, "GET", addr+"/v1/models/none", nil, version...)
	require.Equal(t, 404, resp.StatusCode)
	kind, _ := anthropicError(t, resp)
	require.Equal(t, "not_found_error", kind)
	require.Contains(t, read(t, ask(t, "GET", addr+"/v1/models", nil).Body), `"object":"list"`)
}

func TestAProbeGetsAQuickAnswer(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	for path, status := range map[string]int{
		"/": 404, messages: 404, counting: 404, "/v1/chat/completions": 404, "/api/tags": 404, "/v1/props": 404,
		"/props": 404, "/version": 404, "/api/v1/models": 404, "/v1/models": 200, "/v1/models/glm-5.2": 200, "/healthz": 200,
	} {
		for _, method := range []string{"HEAD", "GET"} {
			resp := ask(t, method, addr+path, nil)
			require.Equal(t, status, resp.StatusCode, "%s %s", method, path)
			body := read(t, resp.Body)
			require.Equal(t, method == "HEAD", body == "", "%s %s", method, path)
		}
	}
}

func TestPagesAreLetInByTheirOrigin(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, good)
	preflight := func(path, origin, method string) *http.Response {
		return ask(t, "OPTIONS", addr+path, nil, "Origin", origin, "Access-Control-Request-Method", method,
			"Access-Control-Request-Headers", "content-type,x-api-key")
	}
	for name, try := range map[string]struct {
		path, origin, method string
		status               int
		allowed              string
	}{
		"a page of ours":            {messages, pageOrigin, "POST", 204, pageOrigin},
		"to chat":                   {"/v1/chat/completions", pageOrigin, "POST", 204, pageOrigin},
		"to count":                  {counting, pageOrigin, "POST", 204, pageOrigin},
		"another page":              {messages, "https://evil.example", "POST", 404, ""},
		"our page by another way":   {messages, "http://page.example", "POST", 404, ""},
		"models are for all pages":  {"/v1/models", "https://evil.example", "GET", 204, "*"},
		"one model too":             {"/v1/models/glm-5.2", "null", "GET", 204, "*"},
		"a route that is not there": {"/v1/nothing", pageOrigin, "POST", 404, pageOrigin},
		"a method that is not":      {messages, pageOrigin, "DELETE", 404, pageOrigin},
		"a slash behind":            {messages + "/", pageOrigin, "POST", 404, pageOrigin},
	} {
		resp := preflight(try.path, try.origin, try.method)
		require.Equal(t, try.status, resp.StatusCode, name)
		require.Equal(t, try.allowed, resp.Header.Get("Access-Control-Allow-Origin"), name)
		if try.status == 204 {
			require.Equal(t, try.method, resp.Header.Get("Access-Control-Allow-Methods"), name)
			require.Equal(t, "content-type,x-api-key", resp.Header.Get("Access-Control-Allow-Headers"), name)
		}
	}
	odd := ask(t, "OPTIONS", addr+messages, nil, "Origin", pageOrigin, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "a;b")
	require.Equal(t, 204, odd.StatusCode)
	require.Empty(t, odd.Header.Get("Access-Control-Allow-Headers"))
	// An OPTIONS that asks for nothing is no route of ours.
	require.Equal(t, 404, ask(t, "OPTIONS", addr+messages, nil, "Origin", pageOrigin).StatusCode)
	for origin, allowed := range map[string]string{pageOrigin: pageOrigin, "https://evil.example": "", "": ""} {
		for key, status := range map[string]int{goodKey: 200, "wrong": 401} {
			resp := ask(t, "POST", addr+messages, strings.NewReader(minimal), "Origin", origin, "x-api-key", key)
			require.Equal(t, status, resp.StatusCode)
			require.Equal(t, allowed, resp.Header.Get("Access-Control-Allow-Origin"))
			if allowed != "" {
				require.Contains(t, resp.Header.Get("Access-Control-Expose-Headers"), "X-Engy-Request-Id")
				require.Equal(t, "Origin", resp.Header.Get("Vary"))
			}
		}
	}
}
