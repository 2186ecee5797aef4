package bus

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
)

func TestGarbledMessagesFillNoLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &Bus{log: slog.New(slog.NewTextHandler(&out, nil))}
	begun := time.Now()
	for range 100_000 {
		b.garbled("frames", fault.New(fault.Invalid, "no"))
	}
	b.garbled("hold", nil)
	lines := strings.Count(out.String(), "\n")
	require.Contains(t, out.String(), "kind=frames count=1 ")
	require.Contains(t, out.String(), "kind=hold count=1 ")
	require.LessOrEqual(t, lines, 3+int(time.Since(begun).Seconds()), "a line a second and kind")
	require.EqualValues(t, 100_000, b.unread.kinds["frames"].count)
}
