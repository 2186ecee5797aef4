package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

func TestANumberIsWholeHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "-0.00e5": "0", "0e999999999999999999999": "0", "0e-9": "0",
		"7": "7", "-7": "-7", "10": "10", "1.0": "1", "-1.0": "-1", "1e1": "10", "1E+1": "10", "1e0": "1", "1e-0": "1",
		"10e-1": "1", "1.5e1": "15", "0.02e2": "2", "1.230e2": "123", "12300e-2": "123", "1000.0": "1000",
		"9007199254740993.0": "9007199254740993", "900719925474099.3e1": "9007199254740993",
		"9223372036854775807": "9223372036854775807", "1e308": "1" + strings.Repeat("0", 308), "1e00000000000000000001": "10",
	} {
		plain, ok := wire.Whole(jsontext.Value(written))
		require.True(t, ok, written)
		require.Equal(t, want, string(plain), written)
	}
	for _, written := range []string{
		"1.5", "1e-1", "0.1", "15e-1", "-1.5", "1e309", "1e400", "-1e400", "1e999999999999999999999", "1e-999999999999999999999",
		"1" + strings.Repeat("0", 400), "0.1e0", `"1"`, "true", "[1]", "{}", "null", "",
	} {
		_, ok := wire.Whole(jsontext.Value(written))
		require.False(t, ok, written)
	}
}

func TestACountHasTheSameBoundsInEveryWriting(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]int64{
		"": 0, "null": 0, "1": 1, "1.0": 1, "1e1": 10, "3.2e4": 32_000,
		"9223372036854775807": 1<<63 - 1, "9223372036854775808": 1<<63 - 1, "1e19": 1<<63 - 1, "1e300": 1<<63 - 1,
	} {
		n, err := wire.Count("f", jsontext.Value(written), 1)
		require.NoError(t, err, written)
		require.Equal(t, want, n, written)
	}
	for _, written := range []string{"0", "-0", "0.0", "0e9", "-1", "-1.0", "-1e300", "1.5", "1e-1", "1e400", `"1"`} {
		_, err := wire.Count("f", jsontext.Value(written), 1)
		require.True(t, fault.Is(err, fault.Invalid), written)
		require.Equal(t, "f", fault.Of(err).Field)
	}
}

func TestALongNumberIsNotDear(t *testing.T) {
	t.Parallel()
	const many = 4 << 20
	begun := time.Now()
	for _, written := range []string{
		"1" + strings.Repeat("0", many), "1." + strings.Repeat("0", many), "1e" + strings.Repeat("9", many),
		"1" + strings.Repeat("0", many) + "e-" + strings.Repeat("9", many), "0." + strings.Repeat("0", many) + "1e4194305",
	} {
		plain, _ := wire.Whole(jsontext.Value(written))
		require.LessOrEqual(t, len(plain), 309)
	}
	require.Less(t, time.Since(begun), 10*time.Second)
}
