package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/engy-ai/engy/services/engy/internal/bench"
)

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
