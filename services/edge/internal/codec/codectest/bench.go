package codectest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// HistoryBytes is the size of the history that decoding is measured with.
const HistoryBytes = 1 << 20

// Repeat joins copies of a turn until a history is long enough. Turns are source
// code and prose with escapes, as agents send them.
func Repeat(turn string) string {
	text := strings.Repeat(`\tif err := f(\"x\"); err != nil {\n\t\treturn err // the quick brown fox\n\t}\n`, 24)
	turn = strings.ReplaceAll(turn, "TEXT", text)
	return strings.TrimSuffix(strings.Repeat(turn+",", HistoryBytes/len(turn)), ",")
}

// BenchDecode measures decoding a body against what encoding/json needs only to
// tell that it is valid.
func BenchDecode(b *testing.B, c Codec, route string, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var decoding, validating time.Duration
	for b.Loop() {
		begun := time.Now()
		if _, err := c.Decode(route, body); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		if !json.Valid(body) {
			b.Fatal("not valid")
		}
		decoding, validating = decoding+between.Sub(begun), validating+time.Since(between)
	}
	b.ReportMetric(float64(decoding)/float64(validating), "x-valid")
}

// hostileMost is how much longer a body made to be dear may take than finding out
// that it is valid. What grows with the square of a body is far beyond it.
const hostileMost = 40

// hostileTries is how often that is measured at most.
const hostileTries = 10

// Hostile tries bodies that repeat what might be dear. In each the word MANY stands
// for copies of the part behind it in the table, joined by commas, which make it
// some megabytes long.
func Hostile(t *testing.T, c Codec, route string, bodies map[string]string) {
	t.Helper()
	const size = 2 << 20
	for body, part := range bodies {
		many := strings.TrimSuffix(strings.Repeat(part+",", size/(len(part)+1)), ",")
		raw := []byte(strings.Replace(body, "MANY", many, 1))
		// A busy machine may stop for longer than either takes, but not every time.
		for tries := 1; ; tries++ {
			begun := time.Now()
			require.True(t, json.Valid(raw), body)
			valid := time.Since(begun)
			begun = time.Now()
			_, _ = c.Decode(route, raw)
			if time.Since(begun) < hostileMost*valid {
				break
			}
			require.Less(t, tries, hostileTries, "%s of %s", body, part)
		}
	}
}
