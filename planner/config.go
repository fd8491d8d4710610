package planner

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderd/leaderd/state"
)

// Config shapes a Planner.
type Config struct {
	// Horizon is how far ahead slots are planned, 5s–5m. It must be longer than
	// an election takes, or a dying leader makes slots late. Default 15s.
	Horizon time.Duration
	// MaxOpen bounds the planned entries that are not known to be claimed,
	// 100–10,000,000. Where it bites, the horizon shortens, and the metric
	// leaderd_planner_horizon_seconds says so; from half of it on no late slot is
	// kept for longer than a horizon if a newer one of its job is due. Default
	// 500,000.
	MaxOpen int
	// HedgeDelay is how long after it was due an unclaimed entry is planned onto
	// one more executor, 50ms–1m. Default 500ms.
	HedgeDelay time.Duration
	// PulseInterval is how often the leader and an executor show each other
	// life, 100ms–1m; after three without a message a session ends. Default 1s.
	PulseInterval time.Duration
	// ClosedBehind is how far the closed part of the timeline stays behind the
	// watermark in quiet times, and for how long a verdict is kept whatever its job's
	// retention says, 1m–1h: requests that come late rely on both. Default 10m.
	ClosedBehind time.Duration
	// Retention is for how long past runs are kept.
	Retention Retention
	// Wall is the wall clock, by which slots are due and records are stamped. It
	// may step in both directions, and differ between nodes. How long something
	// takes is not measured by it. It must not block, and is called from many
	// goroutines. Default: time.Now.
	Wall func() time.Time
	// Logger gets what the planner has to say. Default: none.
	Logger hclog.Logger
	// Registerer gets the planner's metrics. Default: none.
	Registerer prometheus.Registerer
}

// WithDefaults fills every unset field with its default.
func (c Config) WithDefaults() Config {
	if c.Horizon == 0 {
		c.Horizon = 15 * time.Second
	}
	if c.MaxOpen == 0 {
		c.MaxOpen = 500_000
	}
	if c.HedgeDelay == 0 {
		c.HedgeDelay = 500 * time.Millisecond
	}
	if c.PulseInterval == 0 {
		c.PulseInterval = time.Second
	}
	if c.ClosedBehind == 0 {
		c.ClosedBehind = state.RetainedAlways
	}
	c.Retention = c.Retention.withDefaults()
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate answers all violations.
func (c Config) Validate() error {
	var errs []error
	within := func(name string, d, low, high time.Duration) {
		if d < low || d > high {
			errs = append(errs, fmt.Errorf("%s: %s is outside %s–%s", name, d, low, high))
		}
	}
	within("horizon", c.Horizon, 5*time.Second, 5*time.Minute)
	within("hedge_delay", c.HedgeDelay, 50*time.Millisecond, time.Minute)
	within("pulse_interval", c.PulseInterval, 100*time.Millisecond, time.Minute)
	within("closed_behind", c.ClosedBehind, time.Minute, time.Hour)
	within("retention.period", c.Retention.Period, time.Second, 24*time.Hour)
	within("retention.max_age", c.Retention.MaxAge, state.MinRetainedAge, state.MaxRetainedAge)
	if n := c.Retention.MaxRuns; n < 1 || n > state.MaxRetainedRuns {
		errs = append(errs, fmt.Errorf("retention.max_runs: %d is outside 1–%d", n, state.MaxRetainedRuns))
	}
	if c.Retention.Budget < 0 {
		errs = append(errs, fmt.Errorf("retention.budget: %d is negative", c.Retention.Budget))
	}
	if c.MaxOpen < 100 || c.MaxOpen > 10_000_000 {
		errs = append(errs, fmt.Errorf("max_open: %d is outside 100–10000000", c.MaxOpen))
	}
	return errors.Join(errs...)
}
