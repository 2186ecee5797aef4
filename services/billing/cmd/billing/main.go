// Command billing runs the service that owns money on a bus and a database
// that are there already.
package main

import (
	"context"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/services/billing"
)

func main() { boot.Main(run) }

func run(ctx context.Context) error {
	return boot.Service(ctx, "billing", "", func(ctx context.Context, cfg billing.Config, b boot.Base) error {
		return billing.Run(ctx, cfg, billing.Deps{Bus: b.Bus, Log: b.Log})
	})
}
