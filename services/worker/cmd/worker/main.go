// Command worker drives one inference engine for the platform.
package main

import (
	"context"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/services/worker"
)

func main() { boot.Main(run) }

func run(ctx context.Context) error {
	return boot.Service(ctx, "worker", "WORKER_", func(ctx context.Context, cfg worker.Config, b boot.Base) error {
		return worker.Run(ctx, cfg, worker.Deps{Bus: b.Bus, Log: b.Log})
	})
}
