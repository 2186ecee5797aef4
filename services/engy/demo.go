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

const demoName = "demo"

// demo makes sure of an account with credit and a key, and gives the key. What
// is there already stays.
func (p *platform) demo(ctx context.Context, dsn string, credit money.Micro) (string, error) {
	admin, err := billing.OpenAdmin(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer admin.Close()
	account, err := p.demoAccount(ctx, admin)
	if err != nil {
		return "", err
	}
	// The key comes first: nothing is paid in for one that is refused.
	key, err := p.demoKey(ctx, admin, account.ID)
	if err != nil || credit <= 0 {
		return key, err
	}
	_, err = admin.Credit(ctx, billing.Credit{
		Account: account.ID, Micro: credit, Note: "demo credit",
		Cause: fmt.Sprintf("demo-credit/%s/%d", account.ID, int64(credit)),
	})
	return key, err
}

// demoAccount gives the open demo account, or makes one. A closed one stays
// closed and keeps its name: the next is called demo-2, and so on.
func (p *platform) demoAccount(ctx context.Context, admin *billing.Admin) (billing.Account, error) {
	name := demoName
	for n := 2; ; n++ {
		account, err := admin.Account(ctx, name)
		if fault.Is(err, fault.NotFound) {
			if name != demoName {
				p.log.Warn("the demo account was closed: a new one is made", "name", name)
			}
			return admin.CreateAccount(ctx, name)
		}
		if err != nil || account.ClosedAt == nil {
			return account, err
		}
		name = fmt.Sprintf("%s-%d", demoName, n)
	}
}

// demoKey gives the key that the flags fix, or else one that is kept.
func (p *platform) demoKey(ctx context.Context, admin *billing.Admin, account string) (string, error) {
	if p.flags.key == "" {
		return p.keptKey(ctx, admin, account)
	}
	_, err := admin.ImportKey(ctx, account, p.flags.key, billing.KeyOptions{Name: "demo"})
	if errors.Is(err, billing.ErrKeyRevoked) {
		return "", fault.New(fault.Invalid, "the key of --key was revoked, which is for good: choose another, or leave --key out")
	}
	return p.flags.key, err
}

// keptKey gives the key of earlier starts, or makes one and keeps it beside the
// data, readable by its owner only: the ledger itself holds no key. One that was
// revoked meanwhile gives way to a new one.
func (p *platform) keptKey(ctx context.Context, admin *billing.Admin, account string) (string, error) {
	path := filepath.Join(p.flags.data, "demo-key")
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("demo key: %w", err)
	}
	if err == nil {
		key := strings.TrimSpace(string(raw))
		_, err := admin.ImportKey(ctx, account, key, billing.KeyOptions{Name: "demo"})
		if !errors.Is(err, billing.ErrKeyRevoked) {
			return key, err
		}
		p.log.Warn("the demo key was revoked: a new one is made", "file", path)
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
