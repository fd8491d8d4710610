package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// verifyRounds is how often the facts of a job are read at most: what seems
	// broken counts only if another reading shows it too, since a job may change
	// between two pages.
	verifyRounds = 3
	// slowWatermark is how far behind the watermark is worth a word.
	slowWatermark = 10 * time.Second
	// maxFindings bounds the violations that are printed.
	maxFindings = 1000
)

// uncheckedError is what keeps a command from finding out what it was asked.
type uncheckedError struct{ error }

func (e uncheckedError) Unwrap() error { return e.error }

func verifyCommand(d Deps) *cobra.Command {
	var (
		o        dialer
		ns       namespace
		v        = &verifier{}
		jobs     []string
		from, to string
	)
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check on a live cluster that no invariant was broken",
		Long: `Check on a live cluster that every slot of a window has one verdict or a live
record, and that no run broke an invariant: that nothing started twice, early,
after its job's pause, edit or deletion, or beside another run of a job that
forbids it. It only reads, page by page, and asks for one page at a time.

Slots behind the watermark have their verdicts, later ones may be open. Without --to the
window ends now, and a note says how far the watermark is behind, and which job holds it.

Exit status: 0 if nothing is broken, 1 if something is, 2 if that could not be
checked, such as a window whose --to is after the watermark.`,
		Args: noArgs,
	}
	run := o.with(func(ctx context.Context, a *api, _ []string) error {
		parents, err := verifyParents(&ns, jobs)
		if err != nil {
			return err
		}
		if err := v.window(ctx, a, from, to); err != nil {
			return err
		}
		v.progress = &progress{w: d.Stderr, tty: isTerminal(d.Stderr)}
		if err = v.verify(ctx, a, parents); err != nil {
			v.note("this is not all: it could not be read to its end")
		}
		v.progress.clear()
		return errors.Join(v.print(d.Stdout), err)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		switch {
		case v.broken():
			// What was found is so, even if there may be more.
			if err != nil {
				for _, line := range explain(err) {
					fmt.Fprintln(d.Stderr, "error: "+line)
				}
			}
			return silentError{exitFailure}
		case err != nil:
			return uncheckedError{err}
		case v.unjudged > 0:
			return uncheckedError{fmt.Errorf("%d jobs could not be judged; see above", v.unjudged)}
		case v.asked && v.to.After(v.decided):
			return uncheckedError{fmt.Errorf("--to: slots after %s could not be checked, since they are not decided yet: the watermark is %s behind the cluster's clock%s",
				v.decided.Format(time.RFC3339), span(v.now.Sub(v.decided)), v.heldBy)}
		}
		return nil
	}
	flags := c.Flags()
	o.bind(flags, d)
	ns.bind(c, &o)
	flags.Lookup("namespace").Usage = "namespace to verify, and of short names; without it and --job all are verified"
	flags.StringArrayVar(&jobs, "job", nil, "verify this job alone, also a deleted one; may be repeated")
	complete(c, "job", o.completeJob(&ns, 0))
	v.since = time.Hour
	flags.Var((*spanValue)(&v.since), "since", "how far back from --to the window begins")
	flags.StringVar(&from, "from", "", "begin of the window, such as 2026-11-30T06:00:00Z")
	flags.StringVar(&to, "to", "", "end of the window, if later than the watermark the exit status is 2; default is now")
	c.MarkFlagsMutuallyExclusive("since", "from")
	v.format.bind(c)
	return c
}

// verifyParents are the parents of versions to read.
func verifyParents(ns *namespace, jobs []string) ([]string, error) {
	if len(jobs) > 0 {
		return ns.all(jobs)
	}
	if ns.flags.Changed("namespace") {
		return []string{"namespaces/" + ns.name + "/jobs/-"}, nil
	}
	return []string{"namespaces/-/jobs/-"}, nil
}

// verifier reads the facts of one job after the other, and judges them.
type verifier struct {
	format   format
	since    time.Duration
	progress *progress

	// from and to are the window, decided the end of what has its verdicts, and
	// now the cluster's clock when that was so.
	from, to, decided, now time.Time
	total                  int64

	jobs, runs, slots int64
	verdicts          map[string]int64
	terms             map[int64]bool
	late              []time.Duration
	findings          []history.Violation
	more              int
	unchecked         []history.Unchecked
	// held are the places at limits, of all jobs.
	held     []history.HeldPlace
	notes    []string
	unjudged int
	// heldBy names the job that holds the watermark, and why, for the end of a
	// sentence; empty where the leader knows of none.
	heldBy string
	// asked is set where the window's end was.
	asked bool
}

func (v *verifier) broken() bool { return len(v.findings) > 0 }

// window reads how far the timeline is decided, and sets the window.
func (v *verifier) window(ctx context.Context, a *api, from, to string) error {
	if v.since <= 0 {
		return usagef("--since: %s is not positive", v.since)
	}
	status, err := a.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
	if err != nil {
		return err
	}
	if status.GetWatermark() == nil {
		return errors.New("no leader has decided any slot yet: there is nothing to verify")
	}
	v.decided = status.GetWatermark().AsTime()
	v.now = v.decided.Add(status.GetWatermarkLag().AsDuration())
	v.total = status.GetJobs()
	if l := status.GetLate(); l != nil {
		v.heldBy = fmt.Sprintf("; %s holds it, whose run due %s has not started%s",
			shortJob(l.GetWorstJob()), instant(l.GetWorstDueTime()), lateReason(l))
	}
	v.to = v.now
	if to != "" {
		v.asked = true
		if v.to, err = readTime("--to", to, v.now, time.Local, ago(v.now)); err != nil {
			return err
		}
	}
	v.from = v.to.Add(-v.since)
	if from != "" {
		if v.from, err = readTime("--from", from, v.now, time.Local, ago(v.now)); err != nil {
			return err
		}
	}
	switch {
	case !v.from.Before(v.to):
		return usagef("the window ends at %s, before it begins at %s", v.to.Format(time.RFC3339), v.from.Format(time.RFC3339))
	case v.from.Before(time.Unix(0, 0)):
		return usagef("the window begins at %s; nothing was due before 1970", v.from.Format(time.RFC3339))
	case v.from.After(v.now):
		return usagef("the window begins at %s, which is yet to come", v.from.Format(time.RFC3339))
	}
	if lag := v.now.Sub(v.decided); lag > slowWatermark && v.to.After(v.decided) {
		v.note("slots after %s are not decided yet: the watermark is %s behind the cluster's clock%s",
			v.decided.Format(time.RFC3339), span(lag), v.heldBy)
	}
	return nil
}

func (v *verifier) note(format string, args ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
}

// verify judges all jobs below the parents.
func (v *verifier) verify(ctx context.Context, a *api, parents []string) error {
	v.verdicts, v.terms = map[string]int64{}, map[int64]bool{}
	for _, parent := range parents {
		found, err := eachJob(ctx, a, parent, func(job string, versions []*leaderdv1.JobVersion) error {
			return v.job(ctx, a, job, versions)
		})
		if err != nil {
			return err
		}
		if found == 0 && !strings.HasSuffix(parent, "/-") {
			return fmt.Errorf("there is no job %s, and there was none", shortJob(parent))
		}
	}
	return v.limits(ctx, a)
}

// job judges one job.
func (v *verifier) job(ctx context.Context, a *api, job string, versions []*leaderdv1.JobVersion) error {
	v.progress.show("%d of about %d jobs, %d runs, %d violations", v.jobs, v.total, v.runs, len(v.findings)+v.more)
	r, err := v.read(ctx, a, job, versions)
	if err != nil {
		return err
	}
	report := history.Check(r.facts)
	found := v.within(report.Violations)
	for round := 1; len(found) > 0 && round < verifyRounds; round++ {
		var again []*leaderdv1.JobVersion
		if _, err := eachJob(ctx, a, job, func(_ string, versions []*leaderdv1.JobVersion) error {
			again = versions
			return nil
		}); err != nil {
			return err
		}
		if r, err = v.read(ctx, a, job, again); err != nil {
			return err
		}
		report = history.Check(r.facts)
		found = confirmed(found, v.within(report.Violations))
	}
	v.add(r, &report, found)
	return nil
}

// within leaves out what concerns runs outside the window: some are read beside.
func (v *verifier) within(all []history.Violation) []history.Violation {
	var out []history.Violation
	for _, x := range all {
		if t, ok := runTime(x.Run); !ok || !t.Before(v.from) && !t.After(v.to) {
			out = append(out, x)
		}
	}
	return out
}

// confirmed are those of now that were there before.
func confirmed(before, now []history.Violation) []history.Violation {
	type key struct {
		rule history.Rule
		run  string
	}
	seen := map[key]bool{}
	for _, x := range before {
		seen[key{x.Rule, x.Run}] = true
	}
	var out []history.Violation
	for _, x := range now {
		if seen[key{x.Rule, x.Run}] {
			out = append(out, x)
		}
	}
	return out
}

// add counts a judged job.
func (v *verifier) add(read reading, report *history.Report, found []history.Violation) {
	f := read.facts
	v.jobs++
	v.notes = append(v.notes, read.notes...)
	if read.unreadable {
		v.unjudged++
	}
	v.slots += report.Slots
	v.held = append(v.held, report.Held...)
	for i := range f.Runs {
		r := &f.Runs[i]
		if t, ok := runTime(r.ID); ok && (t.Before(v.from) || t.After(v.to)) {
			continue
		}
		v.runs++
		name := r.State
		if r.Reason != "" {
			name += ":" + r.Reason
		}
		v.verdicts[name] += max(1, r.Count)
		for _, at := range r.Attempts {
			if at.Term != 0 {
				v.terms[at.Term] = true
			}
		}
		if slot, ok := history.Slot(r.ID); ok && len(r.Attempts) > 0 && !r.Attempts[0].Started.IsZero() && len(v.late) < maxLate {
			v.late = append(v.late, r.Attempts[0].Started.Sub(slot))
		}
	}
	room := min(len(found), maxFindings-len(v.findings))
	v.findings = append(v.findings, found[:room]...)
	v.more += len(found) - room + report.More
	for _, u := range report.Unchecked {
		if u.Job != "" {
			v.unjudged++
			v.note("%s: %s", u.Job, u.Why)
		}
	}
	if v.jobs == 1 {
		for _, u := range report.Unchecked {
			if u.Job == "" {
				v.unchecked = append(v.unchecked, u)
			}
		}
	}
}

// maxLate bounds the starts of which the lateness is kept: 8 MB.
const maxLate = 1 << 20
