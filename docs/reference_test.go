package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leaderd/leaderd/internal/cli"
	"github.com/leaderd/leaderd/internal/config"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// settings are the paths of all settings.
func settings(t reflect.Type, prefix string) []string {
	var out []string
	for f := range t.Fields() {
		path := prefix + f.Tag.Get("koanf")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, settings(f.Type, path+".")...)
		} else {
			out = append(out, path)
		}
	}
	return out
}

func TestEverySettingIsDocumented(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Register(flags)
	table := map[string][]string{}
	for _, row := range rows(readPage(t, "docs/configuration.md").section(t, "## Settings")) {
		if len(row) == 3 {
			table[unquoted(row[0])] = row
		}
	}
	paths := settings(reflect.TypeFor[config.Config](), "")
	for _, path := range paths {
		row, ok := table[path]
		require.True(t, ok, "docs/configuration.md says nothing about %s", path)
		f := flags.Lookup(strings.NewReplacer(".", "-", "_", "-").Replace(path))
		require.NotNil(t, f, path)
		if f.DefValue != "" {
			require.Equal(t, plain(f.DefValue), plain(unquoted(row[1])), "default of %s", path)
		}
		delete(table, path)
	}
	require.Empty(t, table, "docs/configuration.md has settings that do not exist")
}

// plain spells a duration in one way.
func plain(value string) string {
	if d, err := time.ParseDuration(value); err == nil {
		return d.String()
	}
	return value
}

// commands are all that do something, by their paths.
func commands(c *cobra.Command) map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	for _, sub := range c.Commands() {
		if sub.HasSubCommands() && sub.Name() != "completion" {
			maps.Copy(out, commands(sub))
		} else if sub.Name() != "help" {
			out[sub.CommandPath()] = sub
		}
	}
	return out
}

func commandLine() *cobra.Command {
	c := cli.New(cli.Deps{})
	c.InitDefaultCompletionCmd()
	return c
}

func TestEveryCommandIsDocumented(t *testing.T) {
	p := readPage(t, "docs/cli.md")
	for path, c := range commands(commandLine()) {
		p.section(t, "## "+path)
		if c.Name() == "serve" {
			continue // its flags are the settings
		}
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				require.True(t, f.Name == "help" || strings.Contains(p.text, "`--"+f.Name+"`"), "docs/cli.md says nothing about --%s of %s", f.Name, path)
			})
		}
	}
}

var (
	called   = regexp.MustCompile(`^(?:\$ )?(?:bin/)?leaderd ((?:[a-z]+(?:-[a-z]+)* ?)+)`)
	longFlag = regexp.MustCompile(`(?:^|[ ([])--([a-z][a-z-]*)`)
	foreign  = regexp.MustCompile(`^(?:helm|kubectl|skopeo|docker|curl) |apt-get|etcdctl|etcdutl|--auto-compaction|--bump-revision|--mark-compacted`)
	variable = regexp.MustCompile(`\bLEADERD_[A-Z_]*[A-Z]`)
)

// TestWhatPagesNameExists finds commands, flags and variables in code.
func TestWhatPagesNameExists(t *testing.T) {
	line := commandLine()
	flags := map[string]bool{"help": true, "version": true}
	variables := map[string]bool{config.ConfigEnv: true, "LEADERD_ADDRESS": true}
	for _, c := range commands(line) {
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		}
	}
	for _, path := range settings(reflect.TypeFor[config.Config](), "") {
		variables[config.EnvPrefix+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))] = true
	}
	for name := range workVariables(t, hook) {
		variables[name] = true
	}
	for _, p := range pages(t) {
		for _, code := range p.code {
			if m := called.FindStringSubmatch(code); m != nil {
				found, _, err := line.Find(strings.Fields(m[1]))
				require.NoError(t, err, "%s: %s", p.name, code)
				require.NotEqual(t, line, found, "%s: %s", p.name, code)
			}
			if foreign.MatchString(code) {
				continue
			}
			for _, m := range longFlag.FindAllStringSubmatch(code, -1) {
				require.True(t, flags[m[1]], "%s: no command has --%s", p.name, m[1])
			}
		}
		for _, name := range variable.FindAllString(p.text, -1) {
			require.True(t, variables[name] || strings.HasPrefix(name, "LEADERD_SHARD_PARAM_"), "%s: there is no variable %s", p.name, name)
		}
	}
}

// fields are the paths of all fields of a message, in its JSON form.
func fields(md protoreflect.MessageDescriptor, prefix string) []string {
	var out []string
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		path := prefix + f.JSONName()
		out = append(out, path)
		if f.Message() != nil && f.Message().Name() == "Hook" {
			for _, of := range fields(f.Message(), "") {
				if !strings.Contains(of, ".") { // else as those of the job's own target
					out = append(out, prefix+"*."+of)
				}
			}
			continue
		}
		if md.Name() == "DynamicShards" && f.Message() != nil {
			continue // as the job's own target
		}
		if f.Message() != nil && !f.IsMap() && f.Message().ParentFile().Package() == md.ParentFile().Package() {
			out = append(out, fields(f.Message(), path+".")...)
		}
	}
	return out
}

func TestEveryFieldOfAJobIsDocumented(t *testing.T) {
	table := map[string]bool{}
	for _, row := range rows(readPage(t, "docs/jobs.md").section(t, "## Fields")) {
		require.Len(t, row, 4)
		table[unquoted(row[0])] = true
	}
	for _, path := range fields((&leaderdv1.JobSpec{}).ProtoReflect().Descriptor(), "spec.") {
		_, there := table[path]
		require.True(t, there, "docs/jobs.md says nothing about %s", path)
		table[path] = false
	}
	maps.DeleteFunc(table, func(_ string, left bool) bool { return !left })
	require.Empty(t, table, "docs/jobs.md has fields that do not exist")
}

func TestEveryStateIsDocumented(t *testing.T) {
	states := readPage(t, "docs/jobs.md").section(t, "## Runs and verdicts")
	for s := state.StatePending; s <= state.StateMissed; s++ {
		require.Contains(t, states, "| `"+s.String()+"` |")
	}
}

var metricSource = regexp.MustCompile(`(?:Name:\s*|NewDesc\()"(leaderd_[a-z0-9_]+)",\s*(?:Help:\s*)?"([^"]+)"`)

// metrics are the names and help texts of all metrics in the sources.
func metrics(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "test") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		for _, m := range metricSource.FindAllStringSubmatch(string(content), -1) {
			out[m[1]] = m[2]
		}
		return err
	}))
	require.Greater(t, len(out), 40, "the sources were not found")
	return out
}

func TestEveryMetricIsDocumented(t *testing.T) {
	p := readPage(t, "docs/operations.md")
	known := metrics(t)
	table := map[string]string{}
	for _, row := range rows(p.section(t, "## Metrics")) {
		if len(row) == 4 {
			table[unquoted(row[0])] = row[3]
		}
	}
	require.Equal(t, known, table)
	for _, name := range regexp.MustCompile(`\bleaderd_[a-z_]*[a-z]\b`).FindAllString(p.text, -1) {
		_, ok := known[strings.TrimSuffix(name, "_bucket")]
		require.True(t, ok, "docs/operations.md: there is no metric %s", name)
	}
}

// limits are the rows of the table of limits, and what stands in them.
var limits = map[string]struct {
	row   string
	value any
}{
	"MaxNameBytes":       {"a part of a name (namespace, job, node)", inBytes(state.MaxNameBytes)},
	"MaxLabels":          {"labels of a job or node, entries of a selector", state.MaxLabels},
	"MaxLabelBytes":      {"a label's key, a label's value", inBytes(state.MaxLabelBytes)},
	"MaxSchedules":       {"schedules of a job", state.MaxSchedules},
	"MaxScheduleBytes":   {"a schedule", inBytes(state.MaxScheduleBytes)},
	"MaxDescription":     {"a description", inBytes(state.MaxDescription)},
	"MaxReasonBytes":     {"a reason given with a change", inBytes(state.MaxReasonBytes)},
	"MaxDetailBytes":     {"a verdict's detail", inBytes(state.MaxDetailBytes)},
	"MaxConcurrent":      {"runs of a job or a concurrency key that are live at a time, where that is limited", state.MaxConcurrent},
	"MaxQueue":           {"runs of a job that wait for others", state.MaxQueue},
	"MaxConcurrencyKey":  {"a concurrency key", inBytes(state.MaxConcurrencyKey)},
	"MaxArgs":            {"arguments of a command", state.MaxArgs},
	"MaxCommandBytes":    {"arguments together, a script, environment together, headers together", inKiB(state.MaxCommandBytes)},
	"MaxEnv":             {"environment variables of a job", state.MaxEnv},
	"MaxHTTPHeaders":     {"headers of a request", state.MaxHTTPHeaders},
	"MaxURLBytes":        {"a URL, a working directory", inBytes(state.MaxURLBytes)},
	"MaxBodyBytes":       {"body of a request", inKiB(state.MaxBodyBytes)},
	"MaxSpecBytes":       {"a whole spec", inKiB(state.MaxSpecBytes)},
	"MaxTailBytes":       {"end of the output kept in a record", inKiB(state.MaxTailBytes)},
	"MaxErrorBytes":      {"error kept in a record", inKiB(state.MaxErrorBytes)},
	"MaxCheckpoint":      {"a checkpoint", inKiB(state.MaxCheckpoint)},
	"MaxCheckpointsKept": {"checkpoints kept of a shard", state.MaxCheckpointsKept},
	"MaxProgressMessage": {"message of a progress report", inBytes(state.MaxProgressMessage)},
	"MaxTimeout":         {"timeout", state.MaxTimeout},
	"MaxKillGrace":       {"kill grace", state.MaxKillGrace},
	"MaxStartDeadline":   {"start deadline", state.MaxStartDeadline},
	"MaxVersionsKept":    {"versions kept of a job", state.MaxVersionsKept},
	"MaxCapacity":        {"capacity of an executor", state.MaxCapacity},
	"MaxAttemptRecords":  {"attempts kept in a record", state.MaxAttemptRecords},
	"MaxSlotWindow":      {"window of a ledger or a simulation", state.MaxSlotWindow},
	"MaxSimulatedSlots":  {"slots that a simulation lists", state.MaxSimulatedSlots},
	"MaxBackfillSlots":   {"slots of a backfill", state.MaxBackfillSlots},
	"MaxBackfillWindow":  {"window of a backfill", state.MaxBackfillWindow},

	"MaxShards":          {"shards of a run", state.MaxShards},
	"MaxShardParams":     {"parameters of a shard", state.MaxShardParams},
	"MaxShardParamName":  {"name of a shard's parameter", inBytes(state.MaxShardParamName)},
	"MaxShardParamBytes": {"parameters of a job's shards together", inKiB(state.MaxShardParamBytes)},
	"MaxShardTail":       {"end of a shard's output kept until its run is over", inKiB(state.MaxShardTail)},

	"MaxBackfillConcurrency": {"runs of a backfill at a time", state.MaxBackfillConcurrency},
	"MaxBackfillsActive":     {"backfills of a job that are under way", state.MaxBackfillsActive},
	"MaxBackfillsKept":       {"ended backfills kept of a job", state.MaxBackfillsKept},

	"MaxAdhocJobs":      {"jobs that submissions made, in the cluster", state.MaxAdhocJobs},
	"MaxAdhocSpecBytes": {"the spec of such a job", inKiB(state.MaxAdhocSpecBytes)},

	"MaxPause": {"how far ahead a pause may end", state.MaxPause},

	"MaxJitter":          {"jitter", state.MaxJitter},
	"MaxCatchUpLimit":    {"slots of an outage that are caught up", state.MaxCatchUpLimit},
	"MaxJobCalendars":    {"calendars that a job names", state.MaxJobCalendars},
	"MaxCalendarEntries": {"entries of a calendar", state.MaxCalendarEntries},
	"MaxCalendarBytes":   {"a whole calendar", inKiB(state.MaxCalendarBytes)},
	"MaxEntryName":       {"name of a calendar's entry", inBytes(state.MaxEntryName)},
	"MaxAttempts":        {"attempts of a run that its policy may allow", state.MaxAttempts},
	"MaxBackoff":         {"wait between two attempts", state.MaxBackoff},
	"MaxBackoffFactor":   {"factor from one wait to the next", state.MaxBackoffFactor},
	"MaxRetryAfter":      {"wait that an answer's `Retry-After` asks for", state.MaxRetryAfter},
	"MaxRetryConditions": {"conditions of `retryOn`, of `giveUpOn`", state.MaxRetryConditions},
	"MaxHandovers":       {"attempts of a run that are lost or interrupted", state.MaxHandovers},
	"MaxSnoozes":         {"attempts of a run that snooze", state.MaxSnoozes},
	"MaxSnooze":          {"wait of one that snoozes", state.MaxSnooze},
	"MaxRunTimeout":      {"timeout of a run over all attempts", state.MaxRunTimeout},
	"MaxDeadLetters":     {"dead letters of a job", state.MaxDeadLetters},

	"MaxDoubles":   {"attempts that began without a claim and are noted with the record of a run that was decided otherwise", state.MaxDoubles},
	"MaxJobLimits": {"limits that a job names", state.MaxJobLimits},
	"MaxLimitKey":  {"a key of limits that are per key", inBytes(state.MaxLimitKey)},
	"MaxWeight":    {"weight of a job", state.MaxWeight},
	"MaxRateRuns":  {"runs of a rate", state.MaxRateRuns},
	"MaxRateBurst": {"burst of a rate", state.MaxRateBurst},
	"MaxRatePer":   {"time of a rate", state.MaxRatePer},
	"MaxResources": {"resources of a node or a job", state.MaxResources},
	"MaxResource":  {"amount of a resource", state.MaxResource},

	"MaxPauseAfterFailures": {"failures in a row that pause a job", state.MaxPauseAfterFailures},
}

func inBytes(n int) string { return fmt.Sprintf("%d bytes", n) }
func inKiB(n int) string   { return fmt.Sprintf("%d KiB", n>>10) }

func TestLimits(t *testing.T) {
	table := map[string]string{}
	for _, row := range rows(readPage(t, "docs/configuration.md").section(t, "## Limits")) {
		table[row[0]] = row[1]
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "state", "limits.go"), nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				l, known := limits[name.Name]
				require.True(t, known, "docs/configuration.md has no limit for state.%s", name.Name)
				require.Equal(t, plain(fmt.Sprint(l.value)), plain(table[l.row]), "%s (state.%s)", l.row, name.Name)
				delete(table, l.row)
			}
		}
		return true
	})
	require.Empty(t, table, "limits that do not exist")
}
