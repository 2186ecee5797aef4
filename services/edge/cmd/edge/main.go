// Command edge runs the HTTP side of the platform on a bus.
package main

import (
	"context"
	"net"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge"
)

func main() { boot.Main(run) }

func run(ctx context.Context) error {
	models, err := catalog.Default()
	if err != nil {
		return err
	}
	rates, err := pricing.Default()
	if err != nil {
		return err
	}
	return boot.Service(ctx, "edge", "EDGE_", func(ctx context.Context, cfg edge.Config, b boot.Base) error {
		return edge.Run(ctx, cfg, edge.Deps{
			Bus: b.Bus, Log: b.Log, Catalog: models, Rates: rates,
			Ready: func(a net.Addr) { b.Log.Info("serving", "address", a.String()) },
		})
	})
}
