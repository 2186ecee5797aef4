package openaihttp_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// chunks lists the chunks of a recorded stream.
func chunks(t testing.TB, name string) (list [][]byte) {
	t.Helper()
	for line := range bytes.Lines(fixture(t, name)) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if ok && !bytes.Equal(data, []byte("[DONE]")) {
			list = append(list, data)
		}
	}
	return list
}

// alike holds the reading of a chunk after another one against its reading alone.
func alike(t testing.TB, first, second []byte) {
	t.Helper()
	read := openaihttp.QuickReader()
	// The third is read by what the second left behind.
	for _, data := range [][]byte{first, second, first} {
		got, ok := read(data)
		want, wanted := openaihttp.DecodeQuick(data)
		require.Equal(t, wanted, ok, "%s\nin\n%s\n%s", data, first, second)
		if ok {
			require.Equal(t, want, got, "%s\nin\n%s\n%s", data, first, second)
		}
	}
}

func TestAChunkReadsTheSameAfterAnyOther(t *testing.T) {
	t.Parallel()
	var all [][]byte
	for name := range conformance() {
		all = append(all, chunks(t, name)...)
	}
	for _, text := range odd {
		all = append(all, []byte(text))
	}
	for _, first := range all {
		agree(t, first)
		for _, second := range all {
			alike(t, first, second)
		}
	}
}

// odd are chunks that are nearly like each other.
var odd = []string{
	`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
	`{"choices":[{"index":0,"delta":{"content":"\u00e9\ud800"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
	`{"choices":[{"index":0,"delta":{"content":"bb\"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":3}}`,
	`{"choices":[{"index":0,"delta":{"content":"bb"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":03}}`,
	`{"choices":[{"index":0,"delta":{"content":"bb"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":3.5}}`,
	`{"choices":[{"index":0,"delta":{"content":"bb"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":-3}}`,
	`{"choices":[{"index":0,"delta":{"content":"bb"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":99999999999999999999}}`,
	`{"choices":[{"index":0,"delta":{"content": null},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens": 3}}`,
	`{"choices":[{"index":0,"delta":{"content":"bb"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":3}} `,
	`{"choices":[{"index":0,"delta":{"content":"bb"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":3}`,
	`{"choices":[{"index":0,"delta":{"content":"bb","content":"c"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":3}}`,
	`{"choices":[{"index":0,"delta":{"reasoning":"a","reasoning_content":""},"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning":"b","reasoning_content":"c"},"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":null}}]}}]}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":{}}}]}}]}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"a"}},{"index":1,"function":{"arguments":"b"}}]}}]}`,
	`{"choices":[],"timings":{"cache_n":1,"prompt_n":2,"predicted_n":3,"predicted_ms":4.5}}`,
	`{"choices":[],"timings":{"cache_n":1,"prompt_n":2,"predicted_n":4,"predicted_ms":5.5e3}}`,
	`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5,"completion_tokens_details":{"reasoning_tokens":null}}}`,
	`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5,"completion_tokens_details":{"reasoning_tokens":7}}}`,
	`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5,"completion_tokens_details":{"reasoning_tokens":8}}}`,
	`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":"5"}}`,
	`{"object":"chat.completi\on.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}`,
	`{"object":"err\u006fr","choices":[{"index":0,"delta":{"content":"a"}}]}`,
	`not JSON`,
	``,
}

// FuzzAlike: what stood before a chunk does not change what it says.
func FuzzAlike(f *testing.F) {
	for name := range conformance() {
		list := chunks(f, name)
		for i := range list {
			f.Add(list[i], list[min(i+1, len(list)-1)])
		}
	}
	for i := range odd[1:] {
		f.Add([]byte(odd[i]), []byte(odd[i+1]))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		agree(t, first)
		alike(t, slices.Clone(first), slices.Clone(second))
	})
}
