package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Config is what all attempts share.
type Config struct {
	// Environment names the variables of leaderd's own environment that commands
	// get. Nil means DefaultEnvironment; empty means none. PATH is always set.
	Environment []string
	// Version is told to HTTP servers in User-Agent. Empty means "dev".
	Version string
	// Linger is how long what a command left behind may take to end by itself, and
	// how long its output is waited for. Zero means 250 ms.
	Linger time.Duration
	// FenceGrace bounds the grace of a fenced command: its owner must end the
	// context that much before others may start the work. Zero means 1 s.
	FenceGrace time.Duration
	// SocketDir is where commands' sockets lie: see PrepareSocketDir. Empty: they get
	// none, and a command that relies on one does not start, for the reason NoSocket.
	SocketDir string
	NoSocket  error
	// MaxResponseBytes is how much of an HTTP response is read; the rest is left.
	// Zero means 16 MiB.
	MaxResponseBytes int64
	// ExchangeDir is where submitted commands have directories for payload and
	// result. Empty: where temporary files go.
	ExchangeDir string
}

// DefaultEnvironment is what commands get of leaderd's own environment by default.
var DefaultEnvironment = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

func (c Config) withDefaults() Config {
	if c.Environment == nil {
		c.Environment = DefaultEnvironment
	}
	c.Version = cmp.Or(c.Version, "dev")
	c.Linger = cmp.Or(c.Linger, 250*time.Millisecond)
	c.FenceGrace = cmp.Or(c.FenceGrace, time.Second)
	c.MaxResponseBytes = cmp.Or(c.MaxResponseBytes, 16<<20)
	return c
}

// Validate answers every violation, named by field.
func (c Config) Validate() error {
	var errs []error
	if c.Linger < 0 {
		errs = append(errs, fmt.Errorf("Linger: %s is negative", c.Linger))
	}
	if c.FenceGrace < 0 {
		errs = append(errs, fmt.Errorf("FenceGrace: %s is negative", c.FenceGrace))
	}
	if c.MaxResponseBytes < 0 {
		errs = append(errs, fmt.Errorf("MaxResponseBytes: %d is negative", c.MaxResponseBytes))
	}
	for i, name := range c.Environment {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			errs = append(errs, fmt.Errorf("Environment[%d]: %q is no name of a variable", i, name))
		}
	}
	return errors.Join(errs...)
}

// Runner runs attempts. It is safe for concurrent use.
type Runner struct {
	cfg    Config
	base   environment
	client *http.Client
}

// New makes a Runner from a valid Config. It takes the environment as it is now.
func New(cfg Config) *Runner {
	cfg = cfg.withDefaults()
	return &Runner{cfg: cfg, base: baseEnvironment(cfg.Environment, os.LookupEnv), client: newClient()}
}

// Close frees idle connections. Attempts must have ended before.
func (r *Runner) Close() { r.client.CloseIdleConnections() }

// Run does the work of t, writes what it prints to out and blocks until it is
// over. The end of ctx stops it; context.Cause decides the outcome (see the package
// comment). out gets one Write at a time and none after Run returned; Run waits
// for it. A nil out drops the output. Whatever the work does, Run does not panic.
func (r *Runner) Run(ctx context.Context, t Task, out io.Writer) Outcome {
	started := time.Now()
	var o Outcome
	switch {
	case !t.NoOp || t.Command != nil || t.HTTP != nil:
		o = r.guarded(ctx, t, out)
	case ctx.Err() != nil:
		o.stopped(&t, context.Cause(ctx))
	default:
		o.State = state.StateSucceeded // nobody's code runs, so there is nothing to guard against
	}
	if o.Started.IsZero() {
		o.Started = started
	}
	if o.Ended.IsZero() {
		o.Ended = time.Now()
	}
	o.Error = cut(strings.ToValidUTF8(o.Error, "?"), state.MaxErrorBytes)
	return o
}

// guarded is Run of somebody's code.
func (r *Runner) guarded(ctx context.Context, t Task, out io.Writer) (o Outcome) {
	started := time.Now()
	c := guard(func() { o = r.run(ctx, &t, out) })
	if c == nil {
		return o
	}
	o = Outcome{State: state.StateFailed, Error: c.Error(), Crashed: true, Started: started}
	if out != nil {
		// The stack is for the reader of the output; the writer may be what
		// crashed, and then there is none.
		_ = guard(func() { _, o.OutputErr = io.WriteString(out, c.report()) })
	}
	return o
}

func (r *Runner) run(ctx context.Context, t *Task, out io.Writer) (o Outcome) {
	if ctx.Err() != nil {
		o.stopped(t, context.Cause(ctx))
		return o
	}
	switch {
	case t.Command != nil:
		return r.command(ctx, t, out)
	case t.HTTP != nil:
		return r.request(ctx, t, out)
	default:
		o.fail(errors.New("the task has nothing to run"))
	}
	return o
}
