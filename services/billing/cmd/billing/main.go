// Command billing runs the billing service on a bus and a database that are
// there already.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/services/billing"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, log); err != nil {
		log.Error("billing ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	b, err := bus.Connect(ctx, bus.Config{URL: os.Getenv("NATS_URL"), Name: "billing", Log: log})
	if err != nil {
		return err
	}
	defer b.Close()
	return billing.Run(ctx, billing.Config{DatabaseURL: os.Getenv("DATABASE_URL")}, billing.Deps{Bus: b, Log: log})
}
