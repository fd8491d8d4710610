package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/unclaimed"
	"github.com/leaderd/leaderd/state"
)

// Defaults and limits of the configurations.
const (
	DefaultTTL        = 5 * time.Second
	MinTTL            = 2 * time.Second
	MaxTTL            = 60 * time.Second
	DefaultCapacity   = 256
	DefaultDrainGrace = 30 * time.Second
	DefaultKillGrace  = 10 * time.Second
)

// RegistrarConfig sets up a Registrar.
type RegistrarConfig struct {
	// Node is what the node's key says. Its Name is required; Revision is not
	// read.
	Node state.Node
	// TTL is how long the registration outlives its last renewal, from MinTTL to
	// MaxTTL. What a dead node ran starts elsewhere after about that time.
	// Default: DefaultTTL.
	TTL time.Duration
	// Logger takes the log. Default: none.
	Logger hclog.Logger
	// Metrics is where the metrics are registered. Default: nowhere.
	Metrics prometheus.Registerer
}

// WithDefaults returns a copy in which every zero field with a default has it.
func (c RegistrarConfig) WithDefaults() RegistrarConfig {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate reports every violation, each with its field's name, or nil. Call it
// on the result of WithDefaults.
func (c RegistrarConfig) Validate() error {
	var errs []error
	if c.Node.Name == "" {
		errs = append(errs, errors.New("Node.Name: is required"))
	}
	if c.TTL < MinTTL || c.TTL > MaxTTL {
		errs = append(errs, fmt.Errorf("TTL: %s is outside %s–%s", c.TTL, MinTTL, MaxTTL))
	}
	return errors.Join(errs...)
}

// Config sets up an Executor.
type Config struct {
	// Node is what the node's key says. Node.Capacity is how many runs may be
	// claimed and unfinished at a time, 1 to state.MaxCapacity; default
	// DefaultCapacity.
	Node state.Node
	// TTL: see RegistrarConfig.
	TTL time.Duration
	// DrainGrace is how long running work may go on once Run's context has ended.
	// Default: DefaultDrainGrace.
	DrainGrace time.Duration
	// KillGrace is how long cancelled work may take to stop before it is killed;
	// a job's own grace applies where it is shorter. Default: DefaultKillGrace.
	KillGrace time.Duration
	// Wall is the wall clock: slots are due by it, and records are stamped with
	// it. It may step in both directions. What ends a registration's trust does not
	// depend on it. It must not block, and is called from many goroutines.
	// Default: time.Now.
	Wall func() time.Time
	// Unclaimed runs what jobs allow to begin without a claim while the store cannot be
	// reached. The executor closes it. Default: nil, and nothing begins without one.
	Unclaimed *unclaimed.Runs
	// Output keeps what the runs print. Default: nil, and it is dropped.
	Output *output.Ring
	// Logger takes the log. Default: none.
	Logger hclog.Logger
	// Metrics is where the metrics are registered; one executor a registerer.
	// Default: nowhere.
	Metrics prometheus.Registerer
}

// WithDefaults returns a copy in which every zero field with a default has it.
func (c Config) WithDefaults() Config {
	if c.Node.Capacity == 0 {
		c.Node.Capacity = DefaultCapacity
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.DrainGrace == 0 {
		c.DrainGrace = DefaultDrainGrace
	}
	if c.KillGrace == 0 {
		c.KillGrace = DefaultKillGrace
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate reports every violation, each with its field's name, or nil. Call it
// on the result of WithDefaults.
func (c Config) Validate() error {
	errs := []error{c.registrar().Validate()}
	if c.Node.Capacity < 1 || c.Node.Capacity > state.MaxCapacity {
		errs = append(errs, fmt.Errorf("Node.Capacity: %d is outside 1–%d", c.Node.Capacity, state.MaxCapacity))
	}
	if c.DrainGrace < 0 {
		errs = append(errs, fmt.Errorf("DrainGrace: %s is negative", c.DrainGrace))
	}
	if c.KillGrace < 0 {
		errs = append(errs, fmt.Errorf("KillGrace: %s is negative", c.KillGrace))
	}
	return errors.Join(errs...)
}

func (c Config) registrar() RegistrarConfig {
	return RegistrarConfig{Node: c.Node, TTL: c.TTL, Logger: c.Logger, Metrics: c.Metrics}
}
