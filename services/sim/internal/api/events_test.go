package api

import (
	"log/slog"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

func TestAppendString(t *testing.T) {
	t.Parallel()
	t.Run("a JSON reader gets the same text back", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			want := rapid.String().Draw(t, "text")
			var got string
			require.NoError(t, json.Unmarshal(appendString(nil, []byte(want)), &got))
			require.Equal(t, want, got)
		})
	})
	t.Run("broken UTF-8 becomes the replacement character", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "\"a\uFFFDb\"", string(appendString(nil, []byte("a\xffb"))))
	})
}

// BenchmarkEvent is the cost of one token before it reaches the socket.
func BenchmarkEvent(b *testing.B) {
	s := New(Options{Models: []Model{{ID: "m", Window: 1 << 20}}, Slots: 1, Log: slog.New(slog.DiscardHandler)})
	j := &job{id: "chatcmpl-0123456789abcdef0123456789abcdef", chat: true, model: s.opt.Models[0], common: &wire.Common{}}
	j.plans = []script.Plan{s.words.Plan(script.Ask{TokensMax: 100, Natural: 64, Settings: script.Usual()})}
	e := newEvents(s, j)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.step(0, i%64)
	}
}
