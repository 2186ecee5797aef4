package edge

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
)

// Config is an edge's configuration, read from the environment under EDGE_.
type Config struct {
	// Listen is the HTTP address; port 0 picks a free one.
	Listen string `env:"LISTEN" envDefault:":8080"`
	// Region is where this edge stands: eu, us, cn, apac or other.
	Region string `env:"REGION" envDefault:"us"`
	// Deadline is how long one request may take in all.
	Deadline time.Duration `env:"DEADLINE" envDefault:"30m"`
	// LargeBytes bounds the bodies of a megabyte and more that are under way, in
	// bytes. Each takes about twice its size of memory. Default, and zero: 2 GiB.
	LargeBytes int64 `env:"LARGE_BYTES"`
	// HoldLease is how long a hold lives unless this edge renews it.
	HoldLease time.Duration `env:"HOLD_LEASE" envDefault:"2m"`
	// KeepAlive is after how much silence a stream is written to.
	KeepAlive time.Duration `env:"KEEP_ALIVE" envDefault:"12s"`
	// Dispatch sends a job straight to a worker that has a free slot, so that only
	// those that must wait are in the queue. Without it every job is, until it is
	// done: for whoever scales workers by the queue alone.
	Dispatch bool `env:"DISPATCH" envDefault:"true"`
	// ClaimWait is how long a request waits for a worker before it gets 429.
	ClaimWait time.Duration `env:"CLAIM_WAIT" envDefault:"2s"`
	// Retain says where exchanges are kept whose owners allow it.
	Retain Retention `envPrefix:"RETAIN_"`
	// Grace is how long open streams may go on after a stop signal.
	Grace time.Duration `env:"GRACE" envDefault:"30s"`
	// Origins are the origins (https://host, or a star for all) whose pages may
	// call the API from a browser; none by default. The list of models is open to
	// all pages.
	Origins []string `env:"ORIGINS"`
	// Proxies are the networks (10.0.0.0/8) of the proxies in front of the edge, none
	// by default. What they say in X-Forwarded-For is believed, for the limits of
	// requests without a key.
	Proxies []netip.Prefix `env:"PROXIES"`
}

// Validate reports all problems at once.
func (c Config) Validate() error {
	var problems []error
	if c.Listen == "" {
		problems = append(problems, fault.New(fault.Invalid, "EDGE_LISTEN is empty"))
	}
	if !bus.KnownRegion(c.Region) {
		problems = append(problems, fault.New(fault.Invalid, "EDGE_REGION must be eu, us, cn, apac or other"))
	}
	if c.LargeBytes != 0 && c.LargeBytes < BodyBytesMax {
		problems = append(problems, fault.New(fault.Invalid, "EDGE_LARGE_BYTES must be at least "+strconv.Itoa(BodyBytesMax)+", the limit of one body"))
	}
	for name, d := range map[string]time.Duration{
		"EDGE_DEADLINE": c.Deadline, "EDGE_HOLD_LEASE": c.HoldLease,
		"EDGE_KEEP_ALIVE": c.KeepAlive, "EDGE_CLAIM_WAIT": c.ClaimWait, "EDGE_GRACE": c.Grace,
	} {
		if d <= 0 {
			problems = append(problems, fault.New(fault.Invalid, name+" must be positive"))
		}
	}
	if c.Retain.URL != "" && c.Retain.For <= 0 {
		problems = append(problems, fault.New(fault.Invalid, "EDGE_RETAIN_FOR must be positive"))
	}
	if c.KeepAlive > 15*time.Second {
		problems = append(problems, fault.New(fault.Invalid, "EDGE_KEEP_ALIVE must be at most 15s"))
	}
	for _, o := range c.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme+"://"+u.Host != o || u.Scheme == "" || u.Host == "") {
			problems = append(problems, fault.New(fault.Invalid, "EDGE_ORIGINS must list origins such as https://example.com"))
		}
	}
	return errors.Join(problems...)
}
