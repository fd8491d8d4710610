package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Limits of a message, which control nodes enforce.
const (
	// MaxEntries is how many entries a message has at most.
	MaxEntries = 512
	// MaxMessageBytes is where a message is cut. A greater entry is refused.
	MaxMessageBytes = 1 << 20
)

// Config shapes a Client.
type Config struct {
	// Patience is for how long a stream may owe answers without giving any before
	// the next control node is asked, 100ms–1m. A single entry may take five times
	// as long while others are answered. Default 2s.
	Patience time.Duration
	// TryTimeout bounds one try of a unary call but for keep-alives, whose bounds
	// follow from the TTL, 100ms–1m. Default 3s.
	TryTimeout time.Duration
	// MaxRetryWait bounds the wait between tries, 10ms–1m. Default 1s.
	MaxRetryWait time.Duration
	// Logger gets what the client has to say. Default: none.
	Logger hclog.Logger
	// Registerer gets the client's metrics. Default: none.
	Registerer prometheus.Registerer
}

// WithDefaults fills every unset field with its default.
func (c Config) WithDefaults() Config {
	if c.Patience == 0 {
		c.Patience = 2 * time.Second
	}
	if c.TryTimeout == 0 {
		c.TryTimeout = 3 * time.Second
	}
	if c.MaxRetryWait == 0 {
		c.MaxRetryWait = time.Second
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate answers all violations.
func (c Config) Validate() error {
	var errs []error
	within := func(name string, d, low time.Duration) {
		if d < low || d > time.Minute {
			errs = append(errs, fmt.Errorf("%s: %s is outside %s–1m", name, d, low))
		}
	}
	within("patience", c.Patience, 100*time.Millisecond)
	within("try_timeout", c.TryTimeout, 100*time.Millisecond)
	within("max_retry_wait", c.MaxRetryWait, minRetryWait)
	return errors.Join(errs...)
}
