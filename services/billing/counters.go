package billing

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// counters are what the service counts. Labels are words of ours, never an
// account or a key.
type counters struct {
	holds       metric.Int64Counter
	settlements metric.Int64Counter
	alarms      metric.Int64Counter
}

func newCounters(m metric.Meter) (counters, error) {
	if m == nil {
		m = noop.NewMeterProvider().Meter("")
	}
	holds, errH := m.Int64Counter("billing_holds", metric.WithDescription("holds decided, by the code of the answer"))
	settlements, errS := m.Int64Counter("billing_settlements", metric.WithDescription("ends of jobs, by source and verdict"))
	alarms, errA := m.Int64Counter("billing_alarms", metric.WithDescription("things that must not happen, by kind"))
	if err := errors.Join(errH, errS, errA); err != nil {
		return counters{}, fmt.Errorf("counters: %w", err)
	}
	return counters{holds: holds, settlements: settlements, alarms: alarms}, nil
}

func (c counters) hold(ctx context.Context, code string) {
	if code == "" {
		code = "ok"
	}
	c.holds.Add(ctx, 1, metric.WithAttributes(attribute.String("code", code)))
}

func (c counters) settlement(ctx context.Context, source, verdict string) {
	c.settlements.Add(ctx, 1, metric.WithAttributes(attribute.String("source", source), attribute.String("verdict", verdict)))
}

func (c counters) alarm(ctx context.Context, kind string, n int64) {
	c.alarms.Add(ctx, n, metric.WithAttributes(attribute.String("kind", kind)))
}
