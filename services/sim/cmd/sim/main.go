// Command sim runs the simulator with the settings of the environment. Every
// setting is a field of sim.Config with the prefix SIM_.
package main

import (
	"context"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/services/sim"
)

func main() { boot.Main(run) }

func run(ctx context.Context) error {
	return boot.Lone(ctx, "sim", "SIM_", func(ctx context.Context, cfg sim.Config, b boot.Base) error {
		return sim.Run(ctx, cfg, sim.Deps{Log: b.Log})
	})
}
