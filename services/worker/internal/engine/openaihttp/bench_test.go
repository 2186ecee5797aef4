package openaihttp_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// tokens makes a stream of n tokens; each takes the part of a chunk that
// differs.
func tokens(n int, delta, tail string) []byte {
	var b bytes.Buffer
	for range n {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-9f2cb7d0a1","object":"chat.completion.chunk","created":1764400000,"model":"org/some-model",`+
			`"choices":[{"index":0,"delta":{%s},"logprobs":null,"finish_reason":null}]%s}`+"\n\n", delta, tail)
	}
	b.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

const tokensOfStream = 1000

func streams() map[string][]byte {
	usage := `,"usage":{"prompt_tokens":2454,"total_tokens":2477,"completion_tokens":23,"prompt_tokens_details":null}`
	return map[string][]byte{
		"text":      tokens(tokensOfStream, `"content":" token"`, ""),
		"escaped":   tokens(tokensOfStream, `"content":"\n\"é\""`, ""),
		"usage":     tokens(tokensOfStream, `"content":" token"`, usage),
		"reasoning": tokens(tokensOfStream, `"role":null,"content":null,"reasoning_content":" token","tool_calls":null`, usage),
		"call":      tokens(tokensOfStream, `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":" \"x"}}]`, usage),
	}
}

// BenchmarkToken says what a token costs from the bytes of the stream to the
// event, without the socket.
func BenchmarkToken(b *testing.B) {
	for name, data := range streams() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				_, err := openaihttp.Decode(bytes.NewReader(data), func(llm.Event) error { n++; return nil })
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokensOfStream, "ns/token")
			require.GreaterOrEqual(b, n, tokensOfStream)
		})
	}
}

// BenchmarkTokenOverHTTP is the same with net/http on both sides, a flush for
// each token.
func BenchmarkTokenOverHTTP(b *testing.B) {
	data := bytes.SplitAfter(streams()["usage"], []byte("\n\n"))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for _, event := range data {
			_, _ = w.Write(event)
			_ = rc.Flush()
		}
	}))
	defer srv.Close()
	e, err := openaihttp.New(openaihttp.Config{URL: srv.URL, Kind: openaihttp.VLLM})
	require.NoError(b, err)
	defer e.Close()
	req := &llm.Request{MaxTokens: tokensOfStream}
	b.ReportAllocs()
	for b.Loop() {
		_, err := e.Generate(b.Context(), "m", req, func(llm.Event) error { return nil })
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokensOfStream, "ns/token")
}
