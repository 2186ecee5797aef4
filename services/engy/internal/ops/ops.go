// Package ops holds the operators' verbs: accounts, keys, migrations, the proof
// of the ledger. They work on the ledger's database, named by DATABASE_URL or
// found beside a running `engy up`; services hear of changes from the database.
// What is refused is refused in our own words, not in the database's.
// To add a verb, add its command and a line in Commands.
package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/pkg/pg/pglocal"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/sql"
)

// Commands lists the verbs.
func Commands() []*cobra.Command {
	all := []*cobra.Command{accountCommand(), keyCommand(), migrateCommand(), reconcileCommand(), retainedCommand()}
	rim(all)
	return all
}

// rim makes verbs and those below them fail in plain words.
func rim(verbs []*cobra.Command) {
	for _, c := range verbs {
		if run := c.RunE; run != nil {
			c.RunE = func(c *cobra.Command, args []string) error { return plain(run(c, args)) }
		}
		rim(c.Commands())
	}
}

// plain leaves out the cause of a refusal: it repeats in the driver's words what
// the message says. Of what is broken or out of reach the cause is all that
// there is to go by, and verbs have no log to keep it: there it stays.
func plain(err error) error {
	if pg.Unmigrated(err) {
		return fault.New(fault.Unavailable, "the database's schema is not there, or older than this program: run `engy migrate`")
	}
	f := fault.Of(err)
	if f == nil || f.Unwrap() == nil {
		return err
	}
	switch f.Code {
	case fault.Unavailable, fault.Timeout, fault.Internal:
		return err
	}
	return errors.New(strings.TrimSuffix(err.Error(), ": "+f.Unwrap().Error()))
}

// BusFile is where, in its data directory, `engy up` keeps the URL of its bus.
const BusFile = "bus"

type where struct {
	DatabaseURL string `env:"DATABASE_URL"`
	NATSURL     string `env:"NATS_URL"`
}

// dsn finds the ledger's database.
func dsn(data string) (string, error) {
	env, err := boot.Parse[where]("")
	if err != nil {
		return "", err
	}
	if env.DatabaseURL != "" {
		return env.DatabaseURL, nil
	}
	found, err := pglocal.Find(filepath.Join(data, "pg"))
	if err != nil {
		return "", fmt.Errorf("no database: set DATABASE_URL, or run `engy up` and name its --data: %w", err)
	}
	return found, nil
}

// verb makes a command that works on the ledger.
func verb(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, a *billing.Admin, out *printer, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args}
	c.Flags().String("data", ".engy", "data directory of a running `engy up`; unused with DATABASE_URL")
	c.RunE = ledger(c, run)
	return c
}

// ledger runs a verb on the ledger that c's flags and the environment name.
func ledger(c *cobra.Command, run func(ctx context.Context, a *billing.Admin, out *printer, args []string) error) func(*cobra.Command, []string) error {
	data := c.Flags().Lookup("data").Value
	return func(c *cobra.Command, args []string) error {
		url, err := dsn(data.String())
		if err != nil {
			return err
		}
		admin, err := billing.OpenAdmin(c.Context(), url)
		if err != nil {
			return err
		}
		defer admin.Close()
		out := &printer{w: c.OutOrStdout(), warnings: c.ErrOrStderr()}
		return errors.Join(run(c.Context(), admin, out, args), out.err)
	}
}

var errConcurrent = fault.At("concurrent", "--concurrent must not be negative; 0 means no limit")

func accountCommand() *cobra.Command {
	c := &cobra.Command{Use: "account", Short: "Create, credit and list accounts"}
	var concurrent int64
	create := verb("create NAME", "Create an account without money", cobra.ExactArgs(1),
		func(ctx context.Context, a *billing.Admin, out *printer, args []string) (err error) {
			var made billing.Account
			if concurrent < 0 {
				return errConcurrent
			}
			if concurrent > 0 {
				made, err = a.CreateLimitedAccount(ctx, args[0], concurrent)
			} else {
				made, err = a.CreateAccount(ctx, args[0])
			}
			if err != nil {
				return err
			}
			out.printf("account %s  %s\n", made.ID, made.Name)
			return nil
		})
	create.Flags().Int64Var(&concurrent, "concurrent", 0, "jobs that may be under way at once; 0 means no limit")

	var cause, note string
	credit := verb("credit ACCOUNT USD", "Pay US dollars into an account", cobra.ExactArgs(2),
		func(ctx context.Context, a *billing.Admin, out *printer, args []string) error {
			amount, err := money.ParseUSD(args[1])
			if err != nil {
				return err
			}
			account, err := a.Account(ctx, args[0])
			if err != nil {
				return err
			}
			if cause == "" {
				cause = "cli/" + bus.NewID()
			}
			booked, err := a.Credit(ctx, billing.Credit{Account: account.ID, Micro: amount, Cause: cause, Note: note})
			if err != nil {
				return err
			}
			balance, err := a.Balance(ctx, account.ID)
			if err != nil {
				return err
			}
			word := "credited"
			if !booked {
				word = "already credited"
			}
			out.printf("%s %s USD, balance %s USD\n", word, amount.USD(), balance.Micro.USD())
			return nil
		})
	credit.Flags().StringVar(&cause, "cause", "", "names the payment for good: the same cause is booked once")
	credit.Flags().StringVar(&note, "note", "", "what people should read beside the payment")

	list := verb("list", "List accounts with their money", cobra.NoArgs,
		func(ctx context.Context, a *billing.Admin, out *printer, _ []string) error {
			accounts, err := a.ListAccounts(ctx)
			if err != nil {
				return err
			}
			return table(out, "ID\tNAME\tBALANCE USD\tHELD USD\tOPEN HOLDS\tRETENTION\tSTATE", func(w *printer) {
				for _, x := range accounts {
					retention := "off"
					if x.Retain {
						retention = "on"
					}
					w.printf("%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
						x.ID, x.Name, x.Micro.USD(), x.Held.USD(), x.OpenHolds, retention, state("open", "closed", x.ClosedAt))
				}
			})
		})
	c.AddCommand(create, credit, closeVerb(), retainVerb(), list)
	return c
}

// state says what something is, and when it ended.
func state(alive, ended string, at *time.Time) string {
	if at == nil {
		return alive
	}
	return ended + " " + at.UTC().Format(time.RFC3339)
}

func table(out *printer, head string, rows func(w *printer)) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	p := &printer{w: w}
	p.printf("%s\n", head)
	rows(p)
	return errors.Join(p.err, w.Flush())
}

// printer writes for people, and keeps the first error.
type printer struct {
	w   io.Writer
	err error
	// warnings are told beside what scripts read; nil where there are none.
	warnings io.Writer
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) warn(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.warnings, format, args...)
	}
}

// Write writes on.
func (p *printer) Write(b []byte) (int, error) { return p.w.Write(b) }

func closeVerb() *cobra.Command {
	return verb("close ACCOUNT", "Close an account for good: its keys are revoked, its money stays on the ledger", cobra.ExactArgs(1),
		func(ctx context.Context, a *billing.Admin, out *printer, args []string) error {
			account, err := a.Account(ctx, args[0])
			if err != nil {
				return err
			}
			if err := a.CloseAccount(ctx, account.ID); err != nil {
				return err
			}
			out.printf("account %s  closed\n", account.ID)
			return nil
		})
}

func retainVerb() *cobra.Command {
	return verb("retain ACCOUNT on|off", "Say whether prompts and answers of an account may be kept", cobra.ExactArgs(2),
		func(ctx context.Context, a *billing.Admin, out *printer, args []string) error {
			if args[1] != "on" && args[1] != "off" {
				return fault.At("retain", "say on or off")
			}
			account, err := a.Account(ctx, args[0])
			if err != nil {
				return err
			}
			if err := a.SetRetain(ctx, account.ID, args[1] == "on"); err != nil {
				return err
			}
			out.printf("account %s  retention %s\n", account.ID, args[1])
			return nil
		})
}

func keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Create, list and revoke keys"}
	var name, limit string
	var models []string
	var concurrent int64
	create := verb("create ACCOUNT", "Create a key and show it once", cobra.ExactArgs(1),
		func(ctx context.Context, a *billing.Admin, out *printer, args []string) error {
			account, err := a.Account(ctx, args[0])
			if err != nil {
				return err
			}
			o := billing.KeyOptions{Name: name, Models: models}
			if limit != "" {
				micro, err := money.ParseUSD(limit)
				if err != nil {
					return err
				}
				o.SpendMax = &micro
			}
			if concurrent < 0 {
				return errConcurrent
			}
			if concurrent > 0 {
				o.ConcurrentMax = &concurrent
			}
			id, secret, err := a.CreateKey(ctx, account.ID, o)
			if err != nil {
				return err
			}
			out.printf("key %s\n%s\n", id, secret)
			return unknown(out, models)
		})
	create.Flags().StringVar(&name, "name", "", "what people call the key")
	create.Flags().StringVar(&limit, "spend-usd", "", "US dollars that the key may spend in all")
	create.Flags().StringSliceVar(&models, "model", nil, "model that the key may use; may be repeated; none means all")
	create.Flags().Int64Var(&concurrent, "concurrent", 0, "jobs that may be under way at once; 0 means no limit")

	list := verb("list ACCOUNT", "List the keys of an account with what they spent and may do", cobra.ExactArgs(1), listKeys)
	revoke := verb("revoke KEY-ID", "End a key at every edge", cobra.ExactArgs(1),
		func(ctx context.Context, a *billing.Admin, out *printer, args []string) error {
			if err := a.RevokeKey(ctx, args[0]); err != nil {
				return err
			}
			out.printf("revoked %s\n", args[0])
			return nil
		})
	c.AddCommand(create, list, revoke)
	return c
}

func listKeys(ctx context.Context, a *billing.Admin, out *printer, args []string) error {
	account, err := a.Account(ctx, args[0])
	if err != nil {
		return err
	}
	keys, err := a.ListKeys(ctx, account.ID)
	if err != nil {
		return err
	}
	return table(out, "ID\tKEY\tNAME\tSPENT USD\tLIMIT USD\tCONCURRENT\tMODELS\tSTATE", func(w *printer) {
		for _, k := range keys {
			limit, concurrent, models := "none", "any", "all"
			if k.SpendMax != nil {
				limit = k.SpendMax.USD()
			}
			if k.ConcurrentMax != nil {
				concurrent = strconv.FormatInt(*k.ConcurrentMax, 10)
			}
			if len(k.Models) > 0 {
				models = strings.Join(k.Models, ",")
			}
			w.printf("%s\t%s…\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Shown, k.Name, k.Spent.USD(),
				limit, concurrent, models, state("active", "revoked", k.RevokedAt))
		}
	})
}

// unknown warns of models that a key may use and the catalogue does not have. It
// may be no mistake: those of local engines are not in it.
func unknown(out *printer, models []string) error {
	known, err := catalog.Default()
	if err != nil {
		return err
	}
	for _, name := range models {
		if row, ok := known.Find(name); !ok || row.ID != name {
			out.warn("warning: the catalogue has no model %q: the key works only where a local engine serves it under this name\n", name)
		}
	}
	return nil
}

func migrateCommand() *cobra.Command {
	c := &cobra.Command{Use: "migrate", Short: "Bring the database's schema up to date", Args: cobra.NoArgs}
	data := c.Flags().String("data", ".engy", "data directory of a running `engy up`; unused with DATABASE_URL")
	c.RunE = func(c *cobra.Command, _ []string) error {
		url, err := dsn(*data)
		if err != nil {
			return err
		}
		if err := pg.Migrate(c.Context(), url, sql.Billing()); err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), "the schema is up to date")
		return err
	}
	return c
}

func reconcileCommand() *cobra.Command {
	c := verb("reconcile", "Prove that the ledger adds up, and that usage events and charges match", cobra.NoArgs, nil)
	data := c.Flags().Lookup("data").Value
	c.RunE = ledger(c, func(ctx context.Context, a *billing.Admin, out *printer, _ []string) error {
		r, err := a.Reconcile(ctx)
		if err != nil {
			return err
		}
		out.printf("%d entries, %d settlements, %d open holds\n", r.Entries, r.Settlements, r.OpenHolds)
		findings := r.Findings
		url, err := busURL(data.String())
		if err != nil {
			return err
		}
		if url == "" {
			out.printf("usage events are not compared: set NATS_URL, or name the --data of a running `engy up`\n")
		} else {
			compared, found, err := match(ctx, a, url)
			if err != nil {
				return err
			}
			out.printf("%d usage events compared\n", compared)
			findings = append(findings, found...)
		}
		for _, f := range findings {
			out.printf("FINDING: %s\n", f)
		}
		if len(findings) > 0 {
			return fault.New(fault.Internal, fmt.Sprintf("%d findings", len(findings)))
		}
		out.printf("the ledger adds up\n")
		return nil
	})
	return c
}

// busURL finds the bus, empty when there is none.
func busURL(data string) (string, error) {
	env, err := boot.Parse[where]("")
	if err != nil || env.NATSURL != "" {
		return env.NATSURL, err
	}
	raw, err := os.ReadFile(filepath.Join(data, BusFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("bus address: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

func match(ctx context.Context, a *billing.Admin, url string) (int64, []string, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "reconcile"})
	if err != nil {
		return 0, nil, err
	}
	defer b.Close()
	return a.MatchUsage(ctx, b)
}
