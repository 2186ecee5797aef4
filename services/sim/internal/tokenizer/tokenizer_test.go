package tokenizer_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

const english = "When the river had fallen, the people of the town came down to look at the bridge, " +
	"and nobody said a word until the old miller asked whether it would hold. "

func TestEncode(t *testing.T) {
	t.Parallel()
	t.Run("any bytes come back as they were", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
			ids := tokenizer.Encode(nil, s)
			got, bad := tokenizer.Decode(ids)
			require.Equal(t, -1, bad)
			require.Equal(t, s, got)
			require.Equal(t, len(ids), tokenizer.Count(s))
		})
	})
	t.Run("any text comes back and no token parts a character", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			s := rapid.String().Draw(t, "text")
			var got string
			for _, id := range tokenizer.Encode(nil, s) {
				piece, ok := tokenizer.Append(nil, id)
				require.True(t, ok)
				require.True(t, utf8.Valid(piece))
				require.LessOrEqual(t, id, tokenizer.ID(math.MaxInt32))
				got += string(piece)
			}
			require.Equal(t, s, got)
		})
	})
	t.Run("pieces end at word borders", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string][]string{
			"the cat sat":      {"the", " cat", " sat"},
			"The engineering":  {"The", " engine", "ering"},
			"a 12345, b":       {"a", " 123", "45", ",", " b"},
			"x\n    return 1":  {"x", "\n   ", " return", " 1"},
			`{"city":"Oslo"}`:  {`{"`, "city", `":"`, "Oslo", `"}`},
			"北🙂é":              {"北", "🙂", "é"},
			"HTTPServer  end":  {"HTTP", "Serv", "er", " ", " end"},
			"\x00\x01 \t\r\n ": {"\x00\x01", " \t\r\n", " "},
		} {
			var got []string
			for _, id := range tokenizer.Encode(nil, text) {
				piece, _ := tokenizer.Append(nil, id)
				got = append(got, string(piece))
			}
			require.Equal(t, want, got, text)
		}
	})
	t.Run("English takes about four bytes a token", func(t *testing.T) {
		t.Parallel()
		perToken := float64(len(english)) / float64(tokenizer.Count(english))
		require.InDelta(t, 4.2, perToken, 0.4)
	})
	t.Run("four megabytes take well under a second", func(t *testing.T) {
		t.Parallel()
		s := strings.Repeat(english, 4<<20/len(english))
		var ids []tokenizer.ID
		// The benchmark has the true figure; this bound only catches a change of
		// order, under the race detector. A busy machine gets more than one chance.
		for tries := 20; ; tries-- {
			begun := time.Now()
			ids = tokenizer.Encode(nil, s)
			took := time.Since(begun)
			if took < time.Second {
				break
			}
			require.Positive(t, tries, took)
		}
		require.InDelta(t, 1_000_000, len(ids), 100_000)
	})
}

func TestAppend(t *testing.T) {
	t.Parallel()
	t.Run("ids outside every range are refused", func(t *testing.T) {
		t.Parallel()
		for _, id := range []tokenizer.ID{0, 11, 0xffff, 0x110000, 1 << 26, 0x4000_0000 - 1, 0x5300_0000, 0x6200_0100, math.MaxUint32} {
			_, ok := tokenizer.Append(nil, id)
			require.False(t, ok, "%#x", id)
		}
	})
	t.Run("no id makes it panic", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			id := tokenizer.ID(rapid.Uint32().Draw(t, "id"))
			piece, ok := tokenizer.Append(nil, id)
			require.True(t, ok || len(piece) == 0)
		})
	})
	t.Run("decoding says where the bad id is", func(t *testing.T) {
		t.Parallel()
		_, bad := tokenizer.Decode(append(tokenizer.Encode(nil, "a b"), 0))
		require.Equal(t, 2, bad)
	})
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	short := tokenizer.Chat{Messages: []tokenizer.Message{
		{Opens: tokenizer.System, Texts: []string{"be kind"}},
		{Opens: tokenizer.User, Texts: []string{"hello"}, MediaParts: 1},
	}}
	t.Run("a message costs its text, its media and two tokens", func(t *testing.T) {
		t.Parallel()
		require.Len(t, short.Prompt(), 2+2+2+1+tokenizer.MediaTokens+1)
	})
	t.Run("a longer chat begins with the shorter one", func(t *testing.T) {
		t.Parallel()
		bare := short
		bare.Bare = true
		long := short
		long.Messages = append(long.Messages[:2:2], tokenizer.Message{Opens: tokenizer.Assistant, Texts: []string{"hi"}})
		require.Equal(t, bare.Prompt(), long.Prompt()[:len(bare.Prompt())])
	})
}

func BenchmarkEncode4MiB(b *testing.B) {
	s := strings.Repeat(english, 4<<20/len(english))
	b.SetBytes(int64(len(s)))
	b.ReportAllocs()
	for b.Loop() {
		tokenizer.Encode(nil, s)
	}
}
