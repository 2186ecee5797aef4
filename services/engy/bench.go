package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/engy-ai/engy/services/engy/internal/bench"
	"github.com/engy-ai/engy/services/engy/internal/bench/bare"
)

// bareCommands run the two halves of the bare prototype that the bench holds the
// product against.
func bareCommands() []*cobra.Command {
	var engine string
	var slots int
	edge := &cobra.Command{
		Use: "bare-edge NATS", Short: "For the bench: the edge of a bare prototype", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			return bare.Edge(c.Context(), args[0], "127.0.0.1:0", func(a net.Addr) { fmt.Println("ready http://" + a.String()) })
		},
	}
	worker := &cobra.Command{
		Use: "bare-worker NATS", Short: "For the bench: the worker of a bare prototype", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error { return bare.Worker(c.Context(), args[0], engine, slots) },
	}
	worker.Flags().StringVar(&engine, "engine", "", "host and port of the engine")
	worker.Flags().IntVar(&slots, "slots", 1, "how many requests at once")
	return []*cobra.Command{edge, worker}
}

// benchCommand measures this very binary: it starts each service from it in a
// process of its own.
func benchCommand() *cobra.Command {
	o := bench.Options{Command: os.Args, Environ: os.Environ(), Out: os.Stdout, Progress: os.Stderr}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the platform against an engine alone",
		Long: "Measure the platform: the same load goes to the simulator directly and through\n" +
			"the whole product, in turn, all as separate processes on loopback. Prints tables\n" +
			"in Markdown. Fails when a token is lost or the ledger does not add up.\n\n" +
			"Scenarios: " + strings.Join(bench.Names(), ", "),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Program, err = os.Executable(); err != nil {
				return fmt.Errorf("own program: %w", err)
			}
			if o.Quick && !c.Flags().Changed("rounds") {
				o.Rounds = 1
			}
			return bench.Run(c.Context(), o)
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 3, "how often each scenario runs on each target")
	c.Flags().StringArrayVar(&o.Scenarios, "scenario", nil, "run only this scenario; may be repeated")
	c.Flags().BoolVar(&o.Quick, "quick", false, "one short round of everything: shows that it works")
	c.Flags().StringVar(&o.JSON, "json", "", "file that gets all numbers of all rounds")
	c.Flags().StringVar(&o.LogLevel, "log-level", "info", "what the services log at: debug, info, warn or error")
	return c
}
