package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leaderd/leaderd/internal/suggest"
)

// What is wrong with a command line, in the words of the rest of this program.

// noArgs is for commands without arguments, and for those that only have
// commands below them.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasAvailableSubCommands():
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(append(names, c.Name()), c.Aliases...)
			}
		}
		return fmt.Errorf("%s has no command %q%s", cmd.CommandPath(), args[0], suggest.Nearest(args[0], names))
	}
	return fmt.Errorf("%s takes no argument, but got %s", cmd.CommandPath(), quoted(args))
}

// wantArgs is for commands with just the arguments named.
func wantArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s: %s is missing", cmd.CommandPath(), strings.Join(names[len(args):], " and "))
		}
		if len(args) > len(names) {
			return fmt.Errorf("%s takes %s, but got %s besides", cmd.CommandPath(), strings.Join(names, " and "), quoted(args[len(names):]))
		}
		return nil
	}
}

// someArgs is for commands with one or more of the same kind.
func someArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s: %s is missing", cmd.CommandPath(), name)
		}
		return nil
	}
}

// ownBuiltins makes the library's own commands refuse what they do not know, as
// ours do.
func ownBuiltins(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = noArgs, help
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = noArgs(found, rest)
				}
				return err
			}
		}
	}
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = fmt.Sprintf("%q", clip(a))
	}
	return strings.Join(out, " ")
}

// flagError is what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, unknown)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("%s needs a value", dashed(missing.GetSpecifiedName()))
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := bad.GetFlag()
		why := oneLine(bad.Unwrap().Error())
		switch f.Value.Type() {
		case "int", "int64", "int32", "uint", "count":
			why = "must be a whole number"
		case "duration":
			why = "must be a duration such as 500ms, 90s, 10m or 24h"
		case "bool":
			why = "must be true or false"
		}
		return fmt.Errorf("--%s: %q: %s", f.Name, clip(bad.GetValue()), why)
	}
	if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("%q is no flag; they are written --name=value or --name value", clip(bad.GetSpecifiedFlag()))
	}
	return err
}

func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	name := err.GetSpecifiedName()
	if short := err.GetSpecifiedShortnames(); short != "" {
		return fmt.Errorf("%s has no flag -%s (in -%s)", cmd.CommandPath(), name, short)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return fmt.Errorf("%s has no flag --%s%s", cmd.CommandPath(), name, suggest.Nearest("--"+name, names))
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// exclusive is what cobra says of flags that exclude each other; it has no error
// of its own for that.
var exclusive = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)

// stranger is what the library's own commands, such as completion, say of an
// argument that they do not take.
var stranger = regexp.MustCompile(`^unknown command (".*") for "(.*)"$`)

// ownWords is an error of the library's, before any command's code ran.
func ownWords(err error) error {
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		flags := strings.Fields(m[1])
		slices.Sort(flags)
		for i := range flags {
			flags[i] = dashed(flags[i])
		}
		return fmt.Errorf("%s exclude each other: give one of them", strings.Join(flags, " and "))
	}
	if m := stranger.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s takes no argument, but got %s", m[2], m[1])
	}
	return err
}
