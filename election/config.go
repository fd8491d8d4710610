package election

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults and limits of Config.
const (
	DefaultPrefix    = "/leaderd/leader"
	DefaultTTL       = 5 * time.Second
	MinTTL           = 2 * time.Second
	MaxTTL           = 60 * time.Second
	DefaultStopLimit = 5 * time.Second
	DefaultRetryMin  = 100 * time.Millisecond
	DefaultRetryMax  = 2 * time.Second
)

// candidates is the path segment between a prefix and its candidates' keys. No
// prefix may contain it, so no election's range covers another's.
const candidates = "candidates"

// Config sets up an Elector.
type Config struct {
	// Prefix is where the election's keys lie; all candidates of one election have
	// the same. It begins with a slash, does not end in one, and has no segment
	// named "candidates". Default: DefaultPrefix.
	Prefix string

	// Name is this node's. Required.
	Name string

	// Address is the host:port of this node's gRPC listener, which observers learn
	// while it leads. Required.
	Address string

	// TTL is the life of the lease at etcd, in whole seconds from MinTTL to MaxTTL.
	// A dead leader is followed after about that time. etcd may grant a longer one
	// (its least is one and a half of its election timeouts); the trust in a term
	// follows this value all the same. Default: DefaultTTL.
	TTL time.Duration

	// TrustMargin is how long before its lease could expire a term ends. From a
	// tenth to a half of TTL. Default: a fifth of TTL.
	TrustMargin time.Duration

	// StopLimit is how long the work of a term may take to return once its context
	// is cancelled. Default: DefaultStopLimit.
	StopLimit time.Duration

	// RetryMin and RetryMax bound the pause before the next campaign. It doubles
	// with each campaign that came to nothing and is drawn at random from half to
	// one and a half of its value. After a term whose work failed the pause is
	// longer: see Run. Defaults: DefaultRetryMin, DefaultRetryMax.
	RetryMin, RetryMax time.Duration

	// Logger takes the elector's log. Default: none.
	Logger hclog.Logger

	// Metrics is where the metrics are registered; one elector a registerer.
	// Default: nowhere.
	Metrics prometheus.Registerer
}

// WithDefaults returns a copy in which every zero field with a default has it.
func (c Config) WithDefaults() Config {
	setDefault(&c.Prefix, DefaultPrefix)
	setDefault(&c.TTL, DefaultTTL)
	setDefault(&c.TrustMargin, c.TTL/5)
	setDefault(&c.StopLimit, DefaultStopLimit)
	setDefault(&c.RetryMin, DefaultRetryMin)
	setDefault(&c.RetryMax, max(DefaultRetryMax, c.RetryMin))
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every violation, each with its field's name, or nil. Call it
// on the result of WithDefaults.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if err := validatePrefix(c.Prefix); err != nil {
		bad("Prefix", "%v", err)
	}
	if c.Name == "" {
		bad("Name", "required")
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		bad("Address", "%q is not host:port: %v", c.Address, err)
	}
	if c.TTL < MinTTL || c.TTL > MaxTTL || c.TTL%time.Second != 0 {
		bad("TTL", "%s is not a whole number of seconds from %s to %s", c.TTL, MinTTL, MaxTTL)
	}
	if c.TrustMargin < c.TTL/10 || c.TrustMargin > c.TTL/2 {
		bad("TrustMargin", "%s is not from a tenth to a half of TTL (%s)", c.TrustMargin, c.TTL)
	}
	if c.StopLimit <= 0 {
		bad("StopLimit", "%s is not positive", c.StopLimit)
	}
	if c.RetryMin <= 0 {
		bad("RetryMin", "%s is not positive", c.RetryMin)
	}
	if c.RetryMax < c.RetryMin {
		bad("RetryMax", "%s is less than RetryMin (%s)", c.RetryMax, c.RetryMin)
	}
	return errors.Join(errs...)
}

func validatePrefix(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return fmt.Errorf("%q does not begin with a slash", p)
	case strings.HasSuffix(p, "/"):
		return fmt.Errorf("%q ends in a slash", p)
	case slices.Contains(strings.Split(p, "/"), candidates):
		return fmt.Errorf("%q has the segment %q, which is reserved", p, candidates)
	}
	return nil
}

// root is the prefix that concurrency.Election gets; it adds the last slash.
func root(prefix string) string { return prefix + "/" + candidates }
