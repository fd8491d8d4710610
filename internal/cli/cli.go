package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/leaderd/leaderd/internal/config"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitUnchecked is verify's where it cannot find out whether all is well.
	exitUnchecked = 2
	// exitFenced and exitConflict are those of the commands that work uses inside a
	// run.
	exitFenced   = 3
	exitConflict = 4
)

// Deps is what the command line is given.
type Deps struct {
	// Serve runs a node until ctx is done, or fails. Required for serve and dev.
	Serve func(ctx context.Context, cfg config.Config, log hclog.Logger) error
	// Version of the program. Default: dev.
	Version string
	// Environ is the environment. Default: the process's.
	Environ []string
	// Stdin, Stdout and Stderr. Default: the process's.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

func (d Deps) withDefaults() Deps {
	if d.Version == "" {
		d.Version = "dev"
	}
	if d.Environ == nil {
		d.Environ = os.Environ()
	}
	if d.Stdin == nil {
		d.Stdin = os.Stdin
	}
	if d.Stdout == nil {
		d.Stdout = os.Stdout
	}
	if d.Stderr == nil {
		d.Stderr = os.Stderr
	}
	return d
}

// getenv is the value of a variable, or empty.
func (d Deps) getenv(name string) string {
	for _, entry := range d.Environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// Main runs the command line args, without the program's name, and answers the
// exit status. It blocks until the command is done; when ctx is done the command
// ends in good order.
func Main(ctx context.Context, d Deps, args []string) int {
	d = d.withDefaults()
	root := New(d)
	root.SetArgs(args)

	// Whatever is wrong before a command's own code runs is a mistake in the
	// command line.
	started := false
	onStart(root, func() { started = true })
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !started {
		err = usageError{ownWords(err)}
	}
	for _, line := range explain(err) {
		fmt.Fprintln(d.Stderr, "error: "+line)
	}
	return exitStatus(err)
}

// onStart has f called before the code of c, and of each command below it, runs.
func onStart(c *cobra.Command, f func()) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			f()
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		onStart(sub, f)
	}
}

// New makes the command line. Its commands return errors for Main to print.
func New(d Deps) *cobra.Command {
	d = d.withDefaults()
	root := &cobra.Command{
		Use:           "leaderd",
		Short:         "Cron and job runs for a fleet, with no single point of failure",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          help,
		Version:       d.Version,
	}
	root.InitDefaultVersionFlag()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetIn(d.Stdin)
	root.SetOut(d.Stdout)
	root.SetErr(d.Stderr)
	root.AddCommand(
		serveCommand(d),
		devCommand(d),
		jobCommand(d),
		runCommand(d),
		backfillCommand(d),
		deadCommand(d),
		queueCommand(d),
		clusterCommand(d),
		calendarCommand(d),
		cronCommand(d),
		checkpointCommand(d),
		progressCommand(d),
		permanentCommand(d),
		snoozeCommand(d),
		retryAfterCommand(d),
		snapshotCommand(d),
		verifyCommand(d),
		versionCommand(d),
	)
	ownBuiltins(root)
	return root
}

// group makes a command that only has commands below it.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: help}
	c.AddCommand(commands...)
	return c
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func versionCommand(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(d.Stdout, d.Version)
			return err
		},
	}
}

// usageError is a mistake in the command line, a file or a value.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// silentError only sets the exit status: what it stands for was printed before.
type silentError struct{ code int }

func (e silentError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// codedError has an exit status of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

func exitStatus(err error) int {
	if coded, ok := errors.AsType[codedError](err); ok {
		return coded.code
	}
	if silent, ok := errors.AsType[silentError](err); ok {
		return silent.code
	}
	if _, ok := errors.AsType[usageError](err); ok || isBadRequest(err) {
		return exitUsage
	}
	if _, ok := errors.AsType[uncheckedError](err); ok {
		return exitUnchecked
	}
	return exitFailure
}
