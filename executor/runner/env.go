//go:build unix

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

// defaultPath stands in where leaderd itself has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is a set of variables in the form of os.Environ, with the values
// that are needed here.
type environment struct {
	vars []string
	path string
	// identity are the variables that tell this attempt from all others.
	identity string
}

// baseEnvironment is what every command gets of leaderd's own environment.
func baseEnvironment(names []string, lookup func(string) (string, bool)) environment {
	env := environment{path: defaultPath}
	for _, name := range names {
		value, ok := lookup(name)
		switch {
		case name == "PATH" && value != "":
			env.path = value
		case name != "PATH" && ok:
			env.vars = append(env.vars, name+"="+value)
		}
	}
	return env
}

// identityNames are the variables that make environment.identity, in order.
var identityNames = [...]string{
	"LEADERD_NAMESPACE", "LEADERD_JOB", "LEADERD_RUN", "LEADERD_SHARD", "LEADERD_ATTEMPT", "LEADERD_TOKEN",
}

// environment is what the command of t gets: the base, over it what the job sets,
// over that who the attempt is.
func (base environment) of(t *Task) (environment, error) {
	env := environment{path: base.path}
	env.vars = make([]string, 0, len(base.vars)+len(t.Command.Env)+10)
	for _, v := range base.vars {
		name, _, _ := strings.Cut(v, "=")
		if _, set := t.Command.Env[name]; !set {
			env.vars = append(env.vars, v)
		}
	}
	for name, value := range t.Command.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return env, fmt.Errorf("environment variable %q: not a valid name or value", name)
		}
		switch {
		case name == "PATH":
			env.path = value
		case !reserved(name):
			env.vars = append(env.vars, name+"="+value)
		}
	}
	id := [len(identityNames)]string{
		t.Job.Namespace, t.Job.Name, string(t.Run), strconv.Itoa(t.Shard),
		strconv.Itoa(t.Attempt), strconv.FormatInt(t.Token, 10),
	}
	var identity strings.Builder
	for i, name := range identityNames {
		env.vars = append(env.vars, name+"="+id[i])
		identity.WriteString(id[i])
		identity.WriteByte(0)
	}
	env.identity = identity.String()
	if t.socket != "" {
		env.vars = append(env.vars, "LEADERD_SOCKET="+t.socket)
	}
	env.vars = append(env.vars, "PATH="+env.path, "LEADERD_SLOT="+slotText(t.Slot),
		"LEADERD_SHARDS="+strconv.Itoa(t.Shards))
	if t.Part != nil {
		env.vars = appendPart(env.vars, t.Part)
	}
	if t.Step != "" {
		env.vars = append(env.vars, "LEADERD_STEP="+t.Step)
	}
	env.vars = append(env.vars, "LEADERD_CORRELATION="+t.Chain.Correlate(t.Job.Name, t.Run))
	if len(t.Chain.Upstream) > 0 {
		env.vars = append(env.vars, "LEADERD_UPSTREAM="+t.upstream())
	}
	if h := t.After; h != nil {
		env.vars = append(env.vars, "LEADERD_HOOK="+h.Hook.String(), "LEADERD_OUTCOME="+h.State.String(),
			"LEADERD_REASON="+h.Reason, "LEADERD_ERROR="+strings.ReplaceAll(h.Error, "\x00", " "), "LEADERD_EXIT_CODE="+h.exitCode())
	}
	return env, nil
}

// appendPart adds what a shard is given.
func appendPart(vars []string, part *state.Part) []string {
	if part.HasRange {
		vars = append(vars, "LEADERD_SHARD_FROM="+strconv.FormatInt(part.Range.From, 10),
			"LEADERD_SHARD_TO="+strconv.FormatInt(part.Range.To, 10))
	}
	for _, name := range slices.Sorted(maps.Keys(part.Params)) {
		vars = append(vars, "LEADERD_SHARD_PARAM_"+strings.ToUpper(name)+"="+part.Params[name])
	}
	return vars
}

// reserved tells whether the variable says who the attempt is; a job cannot set it.
func reserved(name string) bool {
	switch name {
	case "LEADERD_SLOT", "LEADERD_SHARDS", "LEADERD_SOCKET", "LEADERD_SHARD_FROM", "LEADERD_SHARD_TO", "LEADERD_STEP", "LEADERD_CORRELATION",
		"LEADERD_UPSTREAM", "LEADERD_HOOK", "LEADERD_OUTCOME", "LEADERD_REASON", "LEADERD_ERROR", "LEADERD_EXIT_CODE":
		return true
	}
	if strings.HasPrefix(name, "LEADERD_SHARD_PARAM_") {
		return true
	}
	for _, n := range identityNames {
		if n == name {
			return true
		}
	}
	return false
}

// identityIn reads an identity out of an environment as /proc shows it, empty when
// there is none.
func identityIn(environ []byte) string {
	var id [len(identityNames)]string
	found := false
	for v := range strings.SplitSeq(string(environ), "\x00") {
		if !strings.HasPrefix(v, "LEADERD_") {
			continue
		}
		name, value, _ := strings.Cut(v, "=")
		for i, n := range identityNames {
			if n == name {
				id[i], found = value, true
			}
		}
	}
	if !found {
		return ""
	}
	return strings.Join(id[:], "\x00") + "\x00"
}

// slotText is the slot as commands and servers are told it.
func slotText(slot time.Time) string {
	if slot.IsZero() {
		return ""
	}
	return slot.UTC().Format(time.RFC3339Nano)
}

// program is the argv of the command and the file that it starts. A name without
// a slash is looked up in the command's own PATH, of which only absolute
// directories count; one with a slash is relative to the command's directory.
func program(c *state.Command, path string) (file string, argv []string, err error) {
	if c.Shell != "" {
		return "/bin/sh", []string{"/bin/sh", "-c", c.Shell}, nil
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return "", nil, errors.New("the command is empty")
	}
	name := c.Argv[0]
	if strings.Contains(name, "/") {
		return name, c.Argv, nil
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		switch {
		case err != nil:
			if errors.Is(err, fs.ErrPermission) {
				denied = err
			}
		case info.Mode().IsRegular() && info.Mode()&0o111 != 0:
			return file, c.Argv, nil
		case info.Mode().IsRegular():
			denied = fmt.Errorf("%s is not executable", file)
		}
	}
	if denied != nil {
		return "", nil, fmt.Errorf("command %q: %w", name, denied)
	}
	return "", nil, fmt.Errorf("command %q not found in PATH (%s)", name, path)
}

// startError says which of the things that a start needs was missing.
func startError(file, dir string, err error) error {
	if dir != "" {
		switch info, dirErr := os.Stat(dir); {
		case dirErr != nil:
			return fmt.Errorf("working directory: %w", dirErr)
		case !info.IsDir():
			return fmt.Errorf("working directory: %s is not a directory", dir)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		at := file
		if dir != "" && !filepath.IsAbs(file) {
			at = filepath.Join(dir, file)
		}
		if _, statErr := os.Stat(at); statErr == nil {
			return fmt.Errorf("start %s: its interpreter (#! or loader) does not exist", file)
		}
	}
	return fmt.Errorf("start %s: %w", file, err)
}
