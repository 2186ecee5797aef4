package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/ledger/dbsqlc"
)

// DieDuring settles a batch in a transaction that ends with an error instead
// of a commit.
func DieDuring(ctx context.Context, pool *pg.Pool, batch []Ended, died error) error {
	return pg.InTx(ctx, pool, func(tx pgx.Tx) error {
		all := make([]int, len(batch))
		for i := range all {
			all[i] = i
		}
		p := newColumns(batch, all)
		for _, e := range batch {
			p.add(e.Source, e.Usage, e.EndedAt, e.Usage.ChargedMicro)
		}
		if _, err := dbsqlc.New(tx).SettleJobs(ctx, p.SettleJobsParams); err != nil {
			return err
		}
		return died
	})
}
