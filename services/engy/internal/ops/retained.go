package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/engy-ai/engy/pkg/boot"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/retain"
)

// RetainedDir and IdentityFile are where, in its data directory, `engy up` keeps
// records and the key that opens them.
const (
	RetainedDir  = "retained"
	IdentityFile = "retain-identity"
)

// archive says where records are, in the words of the edges that write them.
type archive struct {
	URL string `env:"URL"`
}

// RetainedURL names the store of a data directory.
func RetainedURL(data string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(data, RetainedDir))
	if err != nil {
		return "", fmt.Errorf("retention store: %w", err)
	}
	return "file://" + filepath.ToSlash(dir), nil
}

// Identity gives the operator's key pair in a file, which it makes, readable by
// its owner only, when there is none.
func Identity(path string) (identity, recipient string, err error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		recipient, err = retain.Recipient(string(raw))
		return string(raw), recipient, err
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("identity: %w", err)
	}
	if identity, recipient, err = retain.NewIdentity(); err != nil {
		return "", "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", "", fmt.Errorf("identity: %w", err)
	}
	_, err = f.WriteString(identity + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", "", fmt.Errorf("identity: %w", err)
	}
	return identity, recipient, nil
}

func retainedCommand() *cobra.Command {
	c := &cobra.Command{Use: "retained", Short: "List, show and erase what customers allowed to keep"}
	var data, url, identity string
	c.PersistentFlags().StringVar(&data, "data", ".engy", "data directory of a running `engy up`")
	c.PersistentFlags().StringVar(&url, "store", "", "URL of the store; else EDGE_RETAIN_URL, else the store of --data")
	verb := func(use, short string, args int, run func(ctx context.Context, s *retain.Store, out *printer, args []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args), RunE: func(c *cobra.Command, args []string) error {
			at, err := archiveAt(url, data)
			if err != nil {
				return err
			}
			s, err := retain.Open(c.Context(), at, "")
			if err != nil {
				return err
			}
			out := &printer{w: c.OutOrStdout()}
			return errors.Join(run(c.Context(), s, out, args), out.err, s.Close())
		}}
	}
	list := verb("list", "List what is kept, oldest first", 0,
		func(ctx context.Context, s *retain.Store, out *printer, _ []string) error {
			var listed error
			err := table(out, "REQUEST\tTIME\tBYTES", func(w *printer) {
				listed = s.List(ctx, func(e retain.Entry) error {
					w.printf("%s\t%s\t%d\n", e.Request, e.Time.Format("2006-01-02 15:04:05"), e.Bytes)
					return w.err
				})
			})
			return errors.Join(listed, err)
		})
	show := verb("show REQUEST", "Open a record with the operator's key, as JSON", 1,
		func(ctx context.Context, s *retain.Store, out *printer, args []string) error {
			path := identity
			if path == "" {
				path = filepath.Join(data, IdentityFile)
			}
			secret, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("identity: %w", err)
			}
			r, err := s.Show(ctx, args[0], string(secret))
			if err != nil {
				return err
			}
			raw, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				return fault.New(fault.Internal, "record cannot be written")
			}
			out.printf("%s\n", raw)
			return nil
		})
	show.Flags().StringVar(&identity, "identity", "", "file with the operator's age secret key; else that of --data")
	erase := verb("erase REQUEST", "Erase a record for good", 1,
		func(ctx context.Context, s *retain.Store, out *printer, args []string) error {
			if err := s.Erase(ctx, args[0]); err != nil {
				return err
			}
			out.printf("erased %s\n", args[0])
			return nil
		})
	key := &cobra.Command{
		Use: "key FILE", Short: "Make the operator's key in FILE, and print what edges seal with", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, recipient, err := Identity(args[0])
			if err != nil {
				return err
			}
			out := &printer{w: c.OutOrStdout()}
			out.printf("EDGE_RETAIN_RECIPIENT=%s\n", recipient)
			return out.err
		},
	}
	c.AddCommand(list, show, erase, key)
	return c
}

// archiveAt finds the store.
func archiveAt(url, data string) (string, error) {
	if url != "" {
		return url, nil
	}
	env, err := boot.Parse[archive]("EDGE_RETAIN_")
	if err != nil {
		return "", err
	}
	if env.URL != "" {
		return env.URL, nil
	}
	return RetainedURL(data)
}
