// Package telemetry sets up logs and traces, and is the only importer of the
// OpenTelemetry SDK. Everybody else uses the API, which does nothing until Start
// has run with an exporter. Content is never an attribute.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

const flushWait = 5 * time.Second

// Config says what is told, and where to.
type Config struct {
	// Level is the least level that is logged: debug, info, warn or error.
	Level slog.Level `env:"LOG_LEVEL" envDefault:"info"`
	// Format is text or json.
	Format string `env:"LOG_FORMAT" envDefault:"text"`
	// Endpoint is an OTLP/HTTP collector's URL; without one nothing is traced.
	Endpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// Ratio is the share of requests that are traced when the caller does not
	// say, from 0 to 1.
	Ratio float64 `env:"TRACE_RATIO" envDefault:"0.01"`
}

// Logger gives a logger that writes to w.
func Logger(cfg Config, service string, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.Level}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	return slog.New(h).With("service", service)
}

// Start begins tracing and gives the function that ends it. Without an endpoint
// it only sets how trace contexts travel.
func Start(ctx context.Context, cfg Config, service string) (stop func() error, err error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	if cfg.Endpoint == "" {
		return func() error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(cfg.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("trace exporter: %w", err)
	}
	provider := trace.NewTracerProvider(
		trace.WithBatcher(exporter),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(cfg.Ratio))),
		trace.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
	)
	otel.SetTracerProvider(provider)
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWait)
		defer cancel()
		return provider.Shutdown(ctx)
	}, nil
}
