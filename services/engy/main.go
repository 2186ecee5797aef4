// Command engy is the whole platform in one program: `engy up` runs all of it in
// one process, the other verbs run one service each or work on accounts, keys
// and the ledger.
package main

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/pkg/bus/natsembed"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/services/edge"
	"github.com/engy-ai/engy/services/engy/internal/ops"
	"github.com/engy-ai/engy/services/sim"
	"github.com/engy-ai/engy/services/worker"
)

func main() {
	boot.Main(func(ctx context.Context) error { return command().ExecuteContext(ctx) })
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "engy", Short: "A distributed inference platform",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(upCommand(), natsCommand(), benchCommand())
	root.AddCommand(bareCommands()...)
	root.AddCommand(serviceCommands()...)
	root.AddCommand(ops.Commands()...)
	return root
}

// serviceCommands run one service each over NATS_URL and DATABASE_URL, exactly
// like the programs under services/*/cmd.
func serviceCommands() []*cobra.Command {
	service := func(use, short string, run func(ctx context.Context) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return run(c.Context()) },
		}
	}
	return []*cobra.Command{
		service("edge", "Run an edge (EDGE_*, NATS_URL)", func(ctx context.Context) error {
			models, rates, err := lists()
			if err != nil {
				return err
			}
			return boot.Service(ctx, "edge", "EDGE_", func(ctx context.Context, cfg edge.Config, b boot.Base) error {
				return edge.Run(ctx, cfg, edge.Deps{
					Bus: b.Bus, Log: b.Log, Catalog: models, Rates: rates,
					Ready: func(a net.Addr) { fmt.Println("ready http://" + a.String()) },
				})
			})
		}),
		service("worker", "Run a worker (WORKER_*, NATS_URL)", func(ctx context.Context) error {
			return boot.Service(ctx, "worker", "WORKER_", func(ctx context.Context, cfg worker.Config, b boot.Base) error {
				return worker.Run(ctx, cfg, worker.Deps{Bus: b.Bus, Log: b.Log})
			})
		}),
		service("billing", "Run billing (BILLING_*, NATS_URL, DATABASE_URL)", func(ctx context.Context) error {
			return boot.Service(ctx, "billing", "", func(ctx context.Context, cfg billing.Config, b boot.Base) error {
				return billing.Run(ctx, cfg, billing.Deps{Bus: b.Bus, Log: b.Log})
			})
		}),
		service("sim", "Run the simulator, an engine without a model (SIM_*)", func(ctx context.Context) error {
			return boot.Lone(ctx, "sim", "SIM_", func(ctx context.Context, cfg sim.Config, b boot.Base) error {
				return sim.Run(ctx, cfg, sim.Deps{Log: b.Log, Ready: func(addr string) { fmt.Println("ready http://" + addr) }})
			})
		}),
	}
}

func lists() (catalog.Catalog, pricing.List, error) {
	models, err := catalog.Default()
	if err != nil {
		return models, pricing.List{}, err
	}
	rates, err := pricing.Default()
	return models, rates, err
}

func natsCommand() *cobra.Command {
	var listen, dir string
	c := &cobra.Command{
		Use: "nats", Short: "Run a message bus of one server", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			defer boot.Ballast()()
			s, err := natsembed.Start(natsembed.Config{Dir: dir, Listen: listen})
			if err != nil {
				return err
			}
			defer s.Close()
			fmt.Println("ready " + s.URL())
			<-c.Context().Done()
			return nil
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:4222", "host and port to listen on")
	c.Flags().StringVar(&dir, "data", ".engy/nats", "directory of the file streams")
	return c
}
