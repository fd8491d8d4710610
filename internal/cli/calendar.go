package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func calendarCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("calendar", "Keep calendars, which jobs avoid or keep to",
		calendarApply(d, o),
		calendarImport(d, o),
		calendarList(d, o),
		calendarGet(d, o),
		calendarDelete(d, o),
	)
	c.Aliases = []string{"calendars"}
	o.bind(c.PersistentFlags(), d)
	return c
}

// calendar is the resource name of what somebody calls a calendar.
func (n *namespace) calendar(name string) (string, error) {
	short := name
	if parts := strings.Split(name, "/"); len(parts) == 4 && parts[0] == "namespaces" && parts[2] == "calendars" {
		short = parts[1] + "/" + parts[3]
	}
	job, err := n.job(short)
	if err != nil {
		return "", usagef("%q is not a calendar's name: want calendar, namespace/calendar or namespaces/namespace/calendars/calendar", name)
	}
	return strings.Replace(job, "/jobs/", "/calendars/", 1), nil
}

func shortCalendar(resource string) string {
	return shortJob(strings.Replace(resource, "/calendars/", "/jobs/", 1))
}

func calendarApply(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		files  []string
		dryRun bool
		reason string
	)
	c := &cobra.Command{
		Use:   "apply -f FILE|-",
		Short: "Create or update calendars from files",
		Long: `Create or update calendars from YAML or JSON files; - is standard input. A file
may have several documents. Each job that names a calendar follows at once: the
change is in force for its slots after that moment.`,
		Example: `  leaderd calendar apply -f holidays.yaml

  name: holidays
  spec:
    timeZone: Europe/Berlin       # default: that of each job
    entries:
      - {name: Christmas, date: 12-25}
      - {name: Easter Monday, date: 2027-03-29}
      - {name: Works holiday, range: {first: 2027-08-02, last: 2027-08-20}}
      - {name: Night, weekly: {days: [MON-SUN], from: "00:00", to: "06:00"}}`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return usagef("-f is required")
			}
			all, err := readCalendars(files, d.Stdin, &ns)
			if err != nil {
				return err
			}
			return o.with(func(ctx context.Context, a *api, _ []string) error {
				return applyCalendars(ctx, d, a, all, dryRun, reason)
			})(cmd, args)
		},
	}
	ns.bind(c, o)
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or - for standard input; may be repeated")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record of the jobs' versions")
	// It fails only for a flag that is not there.
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json")
	return c
}

// readCalendars reads all calendars of the files.
func readCalendars(paths []string, stdin io.Reader, ns *namespace) ([]*leaderdv1.Calendar, error) {
	var out []*leaderdv1.Calendar
	var errs []error
	for _, path := range paths {
		var content []byte
		var err error
		if path == "-" {
			path = "standard input"
			if content, err = io.ReadAll(stdin); err != nil {
				err = fmt.Errorf("read standard input: %w", err)
			}
		} else if content, err = os.ReadFile(path); err != nil {
			err = fileProblem(err)
		}
		if err != nil {
			return nil, usageError{err}
		}
		for i, doc := range documents(content) {
			tree, err := parseDocument(doc)
			if err == nil && tree == nil {
				continue
			}
			var c *leaderdv1.Calendar
			if err == nil {
				c, err = parseCalendar(tree, ns)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: document %d: %w", path, i+1, err))
				continue
			}
			out = append(out, c)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, usageError{err}
	}
	if len(out) == 0 {
		return nil, usagef("no calendar in %s", strings.Join(paths, ", "))
	}
	return out, nil
}

func parseCalendar(tree any, ns *namespace) (*leaderdv1.Calendar, error) {
	c := &leaderdv1.Calendar{}
	var n normaliser
	tree = n.message(c.ProtoReflect().Descriptor(), tree, "")
	if err := errors.Join(n.errs...); err != nil {
		return nil, err
	}
	content, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(content, c); err != nil {
		return nil, errors.New(protoProblem(err))
	}
	if c.GetName() == "" {
		return nil, errors.New("name: required")
	}
	if c.GetSpec() == nil {
		return nil, errors.New("spec: required")
	}
	name, err := ns.calendar(c.GetName())
	if err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	return &leaderdv1.Calendar{Name: name, Spec: c.GetSpec(), Etag: c.GetEtag()}, nil
}

// applyCalendars has the server check all, and then writes them if all are allowed.
func applyCalendars(ctx context.Context, d Deps, a *api, all []*leaderdv1.Calendar, dryRun bool, reason string) error {
	put := func(c *leaderdv1.Calendar, check bool) (*leaderdv1.UpdateCalendarResponse, error) {
		return a.calendars.UpdateCalendar(ctx, &leaderdv1.UpdateCalendarRequest{
			Calendar: c, AllowMissing: true, ValidateOnly: check, Reason: reason,
		})
	}
	code := exitOK
	checked := make([]*leaderdv1.UpdateCalendarResponse, len(all))
	for i, c := range all {
		var err error
		if checked[i], err = put(c, true); err != nil {
			if !isBadRequest(err) && !isConflict(err) {
				return err // the same would happen to all
			}
			for _, line := range explain(err) {
				fmt.Fprintf(d.Stderr, "error: %s: %s\n", shortCalendar(c.GetName()), line)
			}
			code = max(code, exitStatus(err))
		}
	}
	if code != exitOK {
		return silentError{code}
	}
	for i, c := range all {
		resp, suffix := checked[i], " (dry run)"
		if !dryRun {
			var err error
			suffix = ""
			if resp, err = put(c, false); err != nil {
				return fmt.Errorf("%s: %w (%d of %d calendars were applied)", shortCalendar(c.GetName()), err, i, len(all))
			}
		}
		done := strings.ToLower(strings.TrimPrefix(resp.GetResult().String(), "RESULT_"))
		if n := resp.GetJobs(); n > 0 {
			done += fmt.Sprintf(", %d jobs follow", n)
		}
		if _, err := fmt.Fprintf(d.Stdout, "%s %s%s\n", shortCalendar(c.GetName()), done, suffix); err != nil {
			return err
		}
	}
	return nil
}

func calendarImport(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		name   string
		zone   string
		show   bool
		dryRun bool
	)
	c := &cobra.Command{
		Use:   "import FILE.ics",
		Short: "Create or update a calendar from an iCalendar file",
		Long: `Create or update a calendar from the events of an iCalendar file (RFC 5545).
Events of whole days, of days on end and of hours are taken. Of those that recur without
an end, days of every year and hours of every day or week are; those with an UNTIL or a
COUNT, daily, weekly, monthly or yearly, are written out, without their EXDATEs. Anything
else is refused, by its name and line: nothing is left out in silence. --show prints what
would be applied, in the form that "apply" reads.`,
		Args: wantArgs("FILE.ics"),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := os.ReadFile(args[0])
			if err != nil {
				return usageError{fileProblem(err)}
			}
			spec, err := parseICS(content, zone)
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", args[0], err)}
			}
			if name == "" {
				name = strings.TrimSuffix(filepath.Base(args[0]), filepath.Ext(args[0]))
			}
			full, err := ns.calendar(name)
			if err != nil {
				return err
			}
			calendar := &leaderdv1.Calendar{Name: full, Spec: spec}
			if show {
				return printOne(d.Stdout, formatYAML, calendar)
			}
			return o.with(func(ctx context.Context, a *api, _ []string) error {
				return applyCalendars(ctx, d, a, []*leaderdv1.Calendar{calendar}, dryRun, "")
			})(cmd, nil)
		},
	}
	ns.bind(c, o)
	c.Flags().StringVar(&name, "name", "", "the calendar's name (default: that of the file)")
	c.Flags().StringVar(&zone, "zone", "", "IANA zone of whole days and of times without one (default: that of each job; times without one are refused)")
	c.Flags().BoolVar(&show, "show", false, "print the calendar, ask no cluster")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	return c
}

func calendarList(d Deps, o *dialer) *cobra.Command {
	var (
		ns  namespace
		all bool
		f   format
	)
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List calendars",
		Args:    noArgs,
		RunE: o.with(func(ctx context.Context, a *api, _ []string) error {
			parent := "namespaces/" + ns.name
			if all {
				parent = "namespaces/-"
			}
			p := &listPrinter[*leaderdv1.Calendar]{
				w: d.Stdout, f: f,
				table: newTable(d.Stdout, "CALENDAR", "ENTRIES", "ZONE", "GENERATION", "UPDATED", "BY"),
				row: func(c *leaderdv1.Calendar) []string {
					return []string{
						shortCalendar(c.GetName()), strconv.Itoa(len(c.GetSpec().GetEntries())), c.GetSpec().GetTimeZone(),
						strconv.FormatInt(c.GetGeneration(), 10), instant(c.GetUpdateTime()), c.GetUpdatedBy(),
					}
				},
			}
			err := pages(func(token string) (string, error) {
				resp, err := a.calendars.ListCalendars(ctx, &leaderdv1.ListCalendarsRequest{Parent: parent, PageSize: pageSize, PageToken: token})
				if err != nil {
					return "", err
				}
				for _, c := range resp.GetCalendars() {
					if err := p.print(c); err != nil {
						return "", err
					}
				}
				return resp.GetNextPageToken(), nil
			})
			if err != nil {
				return err
			}
			return p.end()
		}),
	}
	ns.bind(c, o)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "calendars of all namespaces")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	f.bind(c)
	return c
}

func calendarGet(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		f  format
	)
	c := &cobra.Command{
		Use:   "get CALENDAR",
		Short: "Show a calendar, and which jobs name it",
		Args:  wantArgs("CALENDAR"),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.calendar(args[0])
			if err != nil {
				return err
			}
			resp, err := a.calendars.GetCalendar(ctx, &leaderdv1.GetCalendarRequest{Name: name})
			if err != nil {
				return err
			}
			c := resp.GetCalendar()
			if f != formatTable {
				return printOne(d.Stdout, f, c)
			}
			t := newTable(d.Stdout)
			t.row("name:", shortCalendar(c.GetName()))
			if q := c.GetQuarantine(); q != "" {
				t.row("quarantine:", q)
			}
			t.row("generation:", strconv.FormatInt(c.GetGeneration(), 10))
			t.row("updated:", fmt.Sprintf("%s by %s", instant(c.GetUpdateTime()), c.GetUpdatedBy()))
			for i, job := range resp.GetJobs() {
				label := ""
				if i == 0 {
					label = "jobs:"
				}
				t.row(label, shortJob(job))
			}
			if err := t.flush(); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(d.Stdout, "spec:"); err != nil {
				return err
			}
			return printIndented(d.Stdout, c.GetSpec())
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	return c
}

func calendarDelete(d Deps, o *dialer) *cobra.Command {
	var ns namespace
	c := &cobra.Command{
		Use:   "delete CALENDAR...",
		Short: "Delete calendars that no job names",
		Args:  someArgs("CALENDAR"),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			code := exitOK
			for _, arg := range args {
				name, err := ns.calendar(arg)
				if err != nil {
					return err
				}
				_, err = a.calendars.DeleteCalendar(ctx, &leaderdv1.DeleteCalendarRequest{Name: name})
				if interrupted(err) {
					return err
				}
				if err != nil {
					for _, line := range explain(err) {
						fmt.Fprintf(d.Stderr, "error: %s: %s\n", shortCalendar(name), line)
					}
					code = max(code, exitStatus(err))
					continue
				}
				if _, err := fmt.Fprintf(d.Stdout, "%s deleted\n", shortCalendar(name)); err != nil {
					return err
				}
			}
			if code != exitOK {
				return silentError{code}
			}
			return nil
		}),
	}
	ns.bind(c, o)
	return c
}
