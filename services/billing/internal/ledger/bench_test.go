package ledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/services/billing/internal/ledger"
)

// BenchmarkHold takes holds by groups and releases them outside the clock.
func BenchmarkHold(b *testing.B) {
	for _, size := range []int{1, 13, 64} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			h := newHouse(b, credits(100)...)
			cpu := newCPU(b, h)
			next := 0
			b.ResetTimer()
			for range b.N {
				group := make([]bus.Hold, size)
				for i := range group {
					group[i] = hold(next, next%100, 10)
					next++
				}
				_, err := h.book.Hold(b.Context(), group)
				require.NoError(b, err)
			}
			b.StopTimer()
			report(b, cpu, size)
		})
	}
}

// BenchmarkSettle books ends with an open hold each.
func BenchmarkSettle(b *testing.B) {
	for _, accounts := range []int{1, 100} {
		for _, size := range []int{1, 50, 200} {
			b.Run(fmt.Sprintf("accounts=%d/batch=%d", accounts, size), func(b *testing.B) {
				h := newHouse(b, credits(accounts)...)
				cpu := newCPU(b, h)
				next := 0
				for range b.N {
					b.StopTimer()
					group, batch := make([]bus.Hold, size), make([]ledger.Ended, size)
					for i := range group {
						group[i], batch[i] = hold(next, next%accounts, 10), ended(next, next%accounts, 7)
						next++
					}
					_, err := h.book.Hold(b.Context(), group)
					require.NoError(b, err)
					cpu.start()
					b.StartTimer()
					_, err = h.book.Settle(b.Context(), batch)
					b.StopTimer()
					cpu.stop()
					require.NoError(b, err)
					b.StartTimer()
				}
				b.StopTimer()
				report(b, cpu, size)
				h.adds(b, b)
			})
		}
	}
}

// BenchmarkRequest is what one request costs the database: its hold, taken in
// a group of 13, and its settlement, booked in a batch of 200.
func BenchmarkRequest(b *testing.B) {
	const groupSize, batchSize = 13, 200
	for _, accounts := range []int{1, 100} {
		b.Run(fmt.Sprintf("accounts=%d", accounts), func(b *testing.B) {
			h := newHouse(b, credits(accounts)...)
			cpu := newCPU(b, h)
			var group []bus.Hold
			var batch []ledger.Ended
			b.ResetTimer()
			for n := range b.N {
				group = append(group, hold(n, n%accounts, 10))
				batch = append(batch, ended(n, n%accounts, 7))
				if len(group) == groupSize || len(batch) == batchSize || n == b.N-1 {
					_, err := h.book.Hold(b.Context(), group)
					require.NoError(b, err)
					group = group[:0]
				}
				if len(batch) == batchSize || n == b.N-1 {
					_, err := h.book.Settle(b.Context(), batch)
					require.NoError(b, err)
					batch = batch[:0]
				}
			}
			b.StopTimer()
			report(b, cpu, 1)
			h.adds(b, b)
		})
	}
}

func credits(n int) []money.Micro {
	cs := make([]money.Micro, n)
	for i := range cs {
		cs[i] = 1e15
	}
	return cs
}

// cpuMeter counts the CPU time of the server process behind the books, which
// is where the work of a statement is done.
type cpuMeter struct {
	pids  []int
	began time.Duration
	used  time.Duration
}

// newCPU finds the server's processes; it must be on this machine.
func newCPU(b *testing.B, h *house) *cpuMeter {
	b.Helper()
	// Both pools have one connection open once they were used.
	_, err := h.book.Hold(b.Context(), []bus.Hold{hold(-1, 0, 0)})
	require.NoError(b, err)
	_, err = h.book.Settle(b.Context(), []ledger.Ended{ended(-1, 0, 0)})
	require.NoError(b, err)
	rows, err := h.owner.Query(context.WithoutCancel(b.Context()), "select pid from pg_stat_activity where datname = current_database() and application_name in ('billing holds', 'billing books')")
	require.NoError(b, err)
	c := &cpuMeter{}
	for rows.Next() {
		var pid int
		require.NoError(b, rows.Scan(&pid))
		c.pids = append(c.pids, pid)
	}
	c.start()
	return c
}

func (c *cpuMeter) now() time.Duration {
	var sum time.Duration
	for _, pid := range c.pids {
		// The first number is the time on a CPU in nanoseconds.
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "schedstat"))
		if err != nil {
			return 0
		}
		first, _, _ := strings.Cut(string(raw), " ")
		n, _ := strconv.ParseInt(first, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

func (c *cpuMeter) start() { c.began = c.now() }
func (c *cpuMeter) stop()  { c.used += c.now() - c.began; c.began = 0 }

func report(b *testing.B, c *cpuMeter, size int) {
	if c.began != 0 {
		c.stop()
	}
	n := float64(b.N * size)
	b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(c.used.Microseconds())/n, "pg-us/event")
}
