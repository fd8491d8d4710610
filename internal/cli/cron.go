package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

// mostSlots bounds what cron next prints.
const mostSlots = 100_000

func cronCommand(d Deps) *cobra.Command {
	return group("cron", "Try schedules, without a cluster", cronNext(d), cronDescribe(d), cronTZDiff(d))
}

// cronOptions are the flags that say how schedules are read.
type cronOptions struct {
	zone, job, anchor string
}

func (o *cronOptions) bind(cmd *cobra.Command, anchor string) {
	cmd.Flags().StringVar(&o.zone, "zone", "UTC", "IANA zone that the fields are read in")
	complete(cmd, "zone", cobra.FixedCompletions(zoneinfo.Names(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVar(&o.job, "job", "", "job that H chooses for")
	cmd.Flags().StringVar(&o.anchor, "anchor", "", "instant that @every counts from (default "+anchor+")")
}

// read makes options for package schedule of the flags.
func (o *cronOptions) read(anchor time.Time) (schedule.Options, error) {
	if o.zone == "" {
		return schedule.Options{}, usagef("--zone: an empty name is no zone")
	}
	out := schedule.Options{Zone: o.zone, Anchor: anchor}
	if o.job != "" {
		name, err := (&namespace{name: defaultNamespace}).job(o.job)
		if err != nil {
			return out, err
		}
		out.Job = shortJob(name)
	}
	if o.anchor != "" {
		var err error
		if out.Anchor, err = zonedTime("--anchor", o.anchor, o.zone); err != nil {
			return out, err
		}
	}
	return out, nil
}

// inQuotes refuses fields that the shell took apart, and may have replaced by names
// of files.
func inQuotes(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, specs []string) error {
		if len(specs) > 1 && !slices.ContainsFunc(specs, func(s string) bool { return strings.ContainsAny(s, " \t") }) {
			return fmt.Errorf("%s: put each schedule in quotes, such as '*/5 * * * *'", cmd.CommandPath())
		}
		return args(cmd, specs)
	}
}

// shownZone is whose local times are shown beside UTC: a lone schedule may bring its
// zone itself.
func (o *cronOptions) shownZone(specs []string) string {
	if len(specs) == 1 {
		if d, err := schedule.Describe(specs[0], schedule.Options{Zone: o.zone}); err == nil && d.Zone != "" {
			return d.Zone
		}
	}
	return o.zone
}

// parse compiles schedules; the error has a line for each that is refused.
func (o *cronOptions) parse(specs []string, anchor time.Time) ([]schedule.Schedule, error) {
	options, err := o.read(anchor)
	if err != nil {
		return nil, err
	}
	var out []schedule.Schedule
	var bad []error
	for _, spec := range specs {
		s, err := schedule.Parse(spec, options)
		if err != nil {
			bad = append(bad, err)
		}
		out = append(out, s)
	}
	if len(bad) > 0 {
		return nil, usageError{errors.Join(bad...)}
	}
	return out, nil
}

func cronNext(d Deps) *cobra.Command {
	var f format
	var o cronOptions
	var from string
	var count int
	c := &cobra.Command{
		Use:   "next SCHEDULE...",
		Short: "Show when schedules are due next",
		Long: `Shows the next instants at which a job with these schedules would be due. An
instant that several of them name is shown once. Asks no cluster.`,
		Example: `  leaderd cron next '30 2 * * MON-FRI' --zone Europe/Berlin
  leaderd cron next '0 9 L * *' --from 2027-01-01T00:00:00Z -n 12 -o json`,
		Args: inQuotes(someArgs("SCHEDULE")),
		RunE: func(_ *cobra.Command, specs []string) error {
			after := time.Now()
			if from != "" {
				var err error
				if after, err = zonedTime("--from", from, o.zone); err != nil {
					return err
				}
			}
			if count < 1 || count > mostSlots {
				return usagef("--count: %d is outside 1–%d", count, mostSlots)
			}
			schedules, err := o.parse(specs, after)
			if err != nil {
				return err
			}
			return printSlots(d.Stdout, f, o.shownZone(specs), nextSlots(schedules, after, count))
		},
	}
	o.bind(c, "--from")
	c.Flags().StringVar(&from, "from", "", "show slots after this instant (default now)")
	c.Flags().IntVarP(&count, "count", "n", 5, "how many to show")
	f.bind(c)
	return c
}

// nextSlots are at most count slots after an instant, in order, each once.
func nextSlots(schedules []schedule.Schedule, after time.Time, count int) []time.Time {
	out := make([]time.Time, 0, min(count, 100))
	for len(out) < count {
		var first time.Time
		for _, s := range schedules {
			if t := s.Next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
				first = t
			}
		}
		if first.IsZero() {
			break
		}
		out = append(out, first)
		after = first
	}
	return out
}

// printSlots prints them in UTC; a table also has what a clock of the zone shows.
func printSlots(w io.Writer, f format, zone string, slots []time.Time) error {
	if f != formatTable {
		return printPlain(w, f, slots)
	}
	loc, err := schedule.Location(zone)
	if err != nil {
		return err
	}
	t := newTable(w, "SLOT", "LOCAL", "DAY")
	for _, s := range slots {
		local := s.In(loc)
		t.row(s.Format(time.RFC3339), local.Format(time.RFC3339), local.Weekday().String())
	}
	return t.flush()
}

// printPlain prints a value that is no message of the API.
func printPlain(w io.Writer, f format, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	content = append(content, '\n')
	if f == formatYAML {
		if content, err = yaml.JSONToYAML(content); err != nil {
			return err
		}
	}
	_, err = w.Write(content)
	return err
}

func cronDescribe(d Deps) *cobra.Command {
	var f format
	var o cronOptions
	c := &cobra.Command{
		Use:     "describe SCHEDULE",
		Short:   "Say in words when a schedule is due",
		Long:    "Says in words when a schedule is due, and which zone data tells that. Asks no cluster.",
		Example: "  leaderd cron describe '0 9 * * MON#1' --zone Europe/Berlin",
		Args:    inQuotes(wantArgs("SCHEDULE")),
		RunE: func(_ *cobra.Command, specs []string) error {
			options, err := o.read(time.Now())
			if err != nil {
				return err
			}
			words, err := schedule.Describe(specs[0], options)
			if err != nil {
				return usageError{err}
			}
			return printDescription(d.Stdout, f, specs[0], words)
		},
	}
	o.bind(c, "now")
	f.bind(c)
	return c
}

// What clock changes mean for a schedule.
const (
	clockIgnored = "keeps to real time"
	clockOnce    = "each local time counts once: one that is left out runs right after, one that comes twice runs the first time"
)

func printDescription(w io.Writer, f format, spec string, words schedule.Description) error {
	if f != formatTable {
		return printPlain(w, f, struct {
			Schedule    string `json:"schedule"`
			Description string `json:"description"`
			Zone        string `json:"zone,omitempty"`
			RealTime    bool   `json:"realTime"`
			ZoneData    string `json:"zoneData"`
		}{spec, words.When, words.Zone, words.RealTime, schedule.ZoneData()})
	}
	fmt.Fprintln(w, printable(words.When))
	if words.Zone == "" {
		return nil
	}
	clock := clockOnce
	if words.RealTime {
		clock = clockIgnored
	}
	t := newTable(w)
	t.row("zone:", fmt.Sprintf("%s (zone data %s)", words.Zone, schedule.ZoneData()))
	if words.Zone != "UTC" {
		t.row("clock changes:", clock)
	}
	return t.flush()
}
