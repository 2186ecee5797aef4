package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/services/billing"
	"github.com/engy-ai/engy/services/edge"
	"github.com/engy-ai/engy/services/engy/internal/ops"
)

const demoAccount = "demo"

// demo makes sure of an account with credit and a key, and gives the key. What
// is there already stays.
func (p *platform) demo(ctx context.Context, dsn string, credit money.Micro) (string, error) {
	admin, err := billing.OpenAdmin(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer admin.Close()
	account, err := admin.Account(ctx, demoAccount)
	if fault.Is(err, fault.NotFound) {
		account, err = admin.CreateAccount(ctx, demoAccount)
	}
	if err != nil {
		return "", err
	}
	if credit > 0 {
		_, err = admin.Credit(ctx, billing.Credit{
			Account: account.ID, Micro: credit, Note: "demo credit",
			Cause: fmt.Sprintf("demo-credit/%s/%d", account.ID, int64(credit)),
		})
		if err != nil {
			return "", err
		}
	}
	if p.flags.key != "" {
		_, err := admin.ImportKey(ctx, account.ID, p.flags.key, billing.KeyOptions{Name: "demo"})
		return p.flags.key, err
	}
	return p.keptKey(ctx, admin, account.ID)
}

// keptKey gives the key of earlier starts, or makes one and keeps it beside the
// data, readable by its owner only: the ledger itself holds no key.
func (p *platform) keptKey(ctx context.Context, admin *billing.Admin, account string) (string, error) {
	path := filepath.Join(p.flags.data, "demo-key")
	raw, err := os.ReadFile(path)
	if err == nil {
		key := strings.TrimSpace(string(raw))
		_, err := admin.ImportKey(ctx, account, key, billing.KeyOptions{Name: "demo"})
		return key, err
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("demo key: %w", err)
	}
	_, key, err := admin.CreateKey(ctx, account, billing.KeyOptions{Name: "demo"})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("demo key: %w", err)
	}
	return key, nil
}

// retention keeps what customers allow to keep beside the data, unless the
// environment names another place: sealed, with the key that opens it in a file
// that its owner only may read.
func (p *platform) retention(cfg *edge.Retention) (err error) {
	if cfg.URL != "" {
		return nil
	}
	if cfg.URL, err = ops.RetainedURL(p.flags.data); err != nil {
		return err
	}
	_, cfg.Recipient, err = ops.Identity(filepath.Join(p.flags.data, ops.IdentityFile))
	return err
}
