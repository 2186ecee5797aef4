// Package boot is what the main functions share: configuration from the
// environment, logs, traces, the bus, signals. It knows no service; a program
// hands it the front door to run. Nothing below it reads the environment.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/caarlos0/env/v11"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/telemetry"
)

// Base is what every service is given.
type Base struct {
	Log *slog.Logger
	// Bus is nil for a service that has none.
	Bus *bus.Bus
}

// Common is the configuration that every service has.
type Common struct {
	telemetry.Config
	// NATSURL is where the bus is, one URL or several with commas between.
	NATSURL string `env:"NATS_URL" envDefault:"nats://127.0.0.1:4222"`
	// Replicas is how many servers keep each stream.
	Replicas int `env:"NATS_REPLICAS" envDefault:"1"`
	// QueueMax bounds the tickets of one region, model and class.
	QueueMax int64 `env:"QUEUE_MAX" envDefault:"10000"`
}

// Parse reads a configuration from the environment; names get the prefix.
func Parse[C any](prefix string) (C, error) {
	cfg, err := env.ParseAsWithOptions[C](env.Options{Prefix: prefix})
	if err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	return cfg, nil
}

// Signals gives a context that ends at SIGINT or SIGTERM. A second signal ends
// the process.
func Signals() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Service runs a front door on the bus until a signal comes, with its
// configuration read under prefix.
func Service[C any](ctx context.Context, name, prefix string, run func(context.Context, C, Base) error) error {
	return start(ctx, name, prefix, true, run)
}

// Lone is Service for a front door that needs no bus.
func Lone[C any](ctx context.Context, name, prefix string, run func(context.Context, C, Base) error) error {
	return start(ctx, name, prefix, false, run)
}

func start[C any](ctx context.Context, name, prefix string, onBus bool, run func(context.Context, C, Base) error) (err error) {
	defer Ballast()()
	common, err := Parse[Common]("")
	if err != nil {
		return err
	}
	cfg, err := Parse[C](prefix)
	if err != nil {
		return err
	}
	base := Base{Log: telemetry.Logger(common.Config, name, os.Stderr)}
	stop, err := telemetry.Start(ctx, common.Config, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if onBus {
		base.Bus, err = bus.Connect(ctx, bus.Config{
			URL: common.NATSURL, Name: name, Replicas: common.Replicas, QueueMax: common.QueueMax, Log: base.Log,
		})
		if err != nil {
			return err
		}
		defer base.Bus.Close()
	}
	return run(ctx, cfg, base)
}

// Main is a whole main function: it runs until a signal comes, and ends the
// process with 1 and one line when that goes wrong.
func Main(run func(ctx context.Context) error) {
	ctx, stop := Signals()
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
