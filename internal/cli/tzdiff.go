package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderd/leaderd/planner/schedule"
)

// systemZones is where machines keep zone data.
const systemZones = "/usr/share/zoneinfo"

// moved is a slot that is by one data and not by the other.
type moved struct {
	Job      string     `json:"job,omitempty"`
	Schedule string     `json:"schedule"`
	Zone     string     `json:"zone"`
	Was      *time.Time `json:"was,omitempty"`
	WillBe   *time.Time `json:"willBe,omitempty"`
}

// dated is a schedule to be compared.
type dated struct{ job, text, zone string }

func cronTZDiff(d Deps) *cobra.Command {
	var (
		f           format
		ns          namespace
		zone, data  string
		from, until string
		files       []string
	)
	ns.name = defaultNamespace
	c := &cobra.Command{
		Use:   "tzdiff [SCHEDULE...]",
		Short: "Show which slots other time zone data would move",
		Long: `Compares the coming slots of schedules, or of the jobs in files, by the program's time
zone data with those by other data: of the machine, of a directory or of a zip file.
Asks no cluster.`,
		Example: `  leaderd cron tzdiff '30 2 * * *' --zone America/Asuncion
  leaderd cron tzdiff -f jobs/ --data /usr/local/go/lib/time/zoneinfo.zip`,
		RunE: func(_ *cobra.Command, specs []string) error {
			begin, err := instantOr("--from", from, zone, time.Now())
			if err != nil {
				return err
			}
			end, err := instantOr("--until", until, zone, begin.AddDate(1, 0, 0))
			if err != nil {
				return err
			}
			if !begin.Before(end) || end.Sub(begin) > 10*366*24*time.Hour {
				return usagef("--until: must be after --from, at most ten years")
			}
			var all []dated
			for _, spec := range specs {
				all = append(all, dated{"", spec, zone})
			}
			if len(files) > 0 {
				jobs, err := readJobs(files, d.Stdin, &ns)
				if err != nil {
					return err
				}
				for _, j := range jobs {
					for _, text := range j.job.GetSpec().GetSchedules() {
						all = append(all, dated{shortJob(j.job.GetName()), text, j.job.GetSpec().GetTimeZone()})
					}
				}
			}
			if len(all) == 0 {
				return usagef("give schedules, or -f with jobs")
			}
			load, version, err := openZones(data)
			if err != nil {
				return usageError{fmt.Errorf("--data: %w", err)}
			}
			var out []moved
			for _, s := range all {
				diff, err := zoneDiff(s, load, begin, end)
				if err != nil {
					return usageError{err}
				}
				out = append(out, diff...)
			}
			return printMoved(d, f, out, version)
		},
	}
	c.Flags().StringVar(&zone, "zone", "UTC", "IANA zone of the schedules given")
	c.Flags().StringVar(&data, "data", systemZones, "the other data: a directory or a zip file")
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or directory of jobs; may be repeated")
	c.Flags().StringVar(&from, "from", "", "look at slots after this instant (default now)")
	c.Flags().StringVar(&until, "until", "", "and up to this one (default a year after --from)")
	f.bind(c)
	return c
}

func instantOr(flag, text, zone string, otherwise time.Time) (time.Time, error) {
	if text == "" {
		return otherwise, nil
	}
	return zonedTime(flag, text, zone)
}

// zoneDiff pairs the slots of a schedule that are by one data alone, in order.
func zoneDiff(s dated, load func(string) (*time.Location, error), from, until time.Time) ([]moved, error) {
	options := schedule.Options{Zone: s.zone, Anchor: from, Job: s.job}
	was, err := schedule.Parse(s.text, options)
	if err != nil {
		return nil, err
	}
	options.Zones = load
	will, err := schedule.Parse(s.text, options)
	if err != nil {
		return nil, err
	}
	var gone, come []time.Time
	a, b := was.Next(from), will.Next(from)
	in := func(t time.Time) bool { return !t.IsZero() && !t.After(until) }
	for in(a) || in(b) {
		switch {
		case in(a) && in(b) && a.Equal(b):
			a, b = was.Next(a), will.Next(b)
		case in(a) && (!in(b) || a.Before(b)):
			gone = append(gone, a)
			a = was.Next(a)
		default:
			come = append(come, b)
			b = will.Next(b)
		}
	}
	zone := s.zone
	if zone == "" {
		zone = "UTC"
	}
	var out []moved
	for i := range max(len(gone), len(come)) {
		m := moved{Job: s.job, Schedule: s.text, Zone: zone}
		if i < len(gone) {
			m.Was = &gone[i]
		}
		if i < len(come) {
			m.WillBe = &come[i]
		}
		out = append(out, m)
	}
	return out, nil
}

func printMoved(d Deps, f format, all []moved, version string) error {
	if f != formatTable {
		return printPlain(d.Stdout, f, slices.Concat([]moved{}, all))
	}
	if version == "" {
		version = "data of unknown release"
	}
	fmt.Fprintf(d.Stdout, "zone data: %s, compared with %s\n", schedule.ZoneData(), version)
	if len(all) == 0 {
		_, err := fmt.Fprintln(d.Stdout, "no slot moves")
		return err
	}
	t := newTable(d.Stdout, "JOB", "SCHEDULE", "ZONE", "WAS", "WILL BE")
	show := func(at *time.Time) string {
		if at == nil {
			return ""
		}
		return at.Format(time.RFC3339)
	}
	for _, m := range all {
		t.row(m.Job, m.Schedule, m.Zone, show(m.Was), show(m.WillBe))
	}
	return t.flush()
}
