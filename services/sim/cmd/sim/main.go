// Command sim runs the simulator with the settings of the environment. Every
// setting is a field of sim.Config with the prefix SIM_.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/caarlos0/env/v11"

	"github.com/engy-ai/engy/services/sim"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, log); err != nil {
		log.Error("simulator ended", "error", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	cfg, err := env.ParseAsWithOptions[sim.Config](env.Options{Prefix: "SIM_"})
	if err != nil {
		return err
	}
	return sim.Run(ctx, cfg, sim.Deps{Log: log})
}
