package codectest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
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
