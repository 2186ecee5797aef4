package billing

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/engy-ai/engy/pkg/bus"
)

// Config is what an operator sets.
type Config struct {
	// DatabaseURL is where the ledger is. Required. The login must be able to
	// take on the role engy_billing, and to change the schema unless
	// SkipMigrations is set.
	DatabaseURL string `env:"DATABASE_URL"`
	// SkipMigrations leaves the schema alone at the start: somebody else brings
	// it up to date. Default: migrations are applied.
	SkipMigrations bool `env:"BILLING_SKIP_MIGRATIONS"`
	// SweepEvery is how often expired holds are looked for. Default, and zero:
	// 5s.
	SweepEvery time.Duration `env:"BILLING_SWEEP_EVERY"`
	// SweepAfter is how long after the start expired holds are let be, so that
	// edges can renew theirs. Default, and zero: 45s.
	SweepAfter time.Duration `env:"BILLING_SWEEP_AFTER"`
	// UsageBatch is how many requests one transaction books at most. Default, and
	// zero: 1000.
	UsageBatch int `env:"BILLING_USAGE_BATCH"`
}

// Validate reports everything that is wrong at once.
func (c Config) Validate() error {
	var errs []error
	if c.DatabaseURL == "" {
		errs = append(errs, errors.New("DATABASE_URL: is not set"))
	}
	if c.SweepAfter < 0 {
		errs = append(errs, errors.New("BILLING_SWEEP_AFTER: is negative"))
	}
	if c.SweepEvery < 0 {
		errs = append(errs, errors.New("BILLING_SWEEP_EVERY: is negative"))
	}
	if c.UsageBatch < 0 || c.UsageBatch > usageBatchMax {
		errs = append(errs, fmt.Errorf("BILLING_USAGE_BATCH: is not within 0 and %d", usageBatchMax))
	}
	return errors.Join(errs...)
}

// Deps are shared and alive.
type Deps struct {
	Bus *bus.Bus
	Log *slog.Logger
	// Clock tells the time that holds expire by; nil means the system's.
	Clock func() time.Time
	// Meter counts; nil counts nothing.
	Meter metric.Meter
}
