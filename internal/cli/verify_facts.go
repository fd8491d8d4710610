package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// verifyPage is how many versions or runs are asked for at a time.
	verifyPage = 200
	// settleTime is how long after a change slots may have no verdict yet although
	// the watermark is past them: the leader works them up.
	settleTime = 10 * time.Second
	// defaultDeadline is the default of a job's start deadline.
	defaultDeadline = 10 * time.Minute
)

// eachJob calls f with the versions of each job below the parent, the newest
// first, and answers how many jobs there were. Of the specs only the parts are kept
// that say when something is due.
func eachJob(ctx context.Context, a *api, parent string, f func(job string, versions []*leaderdv1.JobVersion) error) (int, error) {
	n, job := 0, ""
	var versions []*leaderdv1.JobVersion
	flush := func() error {
		if versions == nil {
			return nil
		}
		n++
		done := versions
		versions = nil
		return f(job, done)
	}
	err := pages(func(token string) (string, error) {
		resp, err := a.jobs.ListJobVersions(ctx, &leaderdv1.ListJobVersionsRequest{Parent: parent, PageSize: verifyPage, PageToken: token})
		if err != nil {
			return "", err
		}
		for _, version := range resp.GetVersions() {
			name, _, _ := strings.Cut(version.GetName(), "/versions/")
			if name != job {
				if err := flush(); err != nil {
					return "", err
				}
				job = name
			}
			if s := version.GetSpec(); s != nil {
				s.Target, s.Description, s.Labels = nil, "", nil
			}
			versions = append(versions, version)
		}
		return resp.GetNextPageToken(), nil
	})
	if err != nil {
		return n, err
	}
	return n, flush()
}

// reading is what was read of a job.
type reading struct {
	facts *history.Facts
	notes []string
	// unreadable is set where none of its versions can be read.
	unreadable bool
}

// read reads a job's runs in the window, and puts them together with its versions,
// the newest of which is the first.
func (v *verifier) read(ctx context.Context, a *api, job string, versions []*leaderdv1.JobVersion) (reading, error) {
	name := shortJob(job)
	f := &history.Facts{
		From: v.from, To: v.to, Now: v.now, Settle: settleTime,
		Jobs: map[string][]history.Version{name: nil}, Since: map[string]time.Time{},
	}
	r := reading{facts: f}
	if f.To.After(v.decided) {
		f.To, f.Overdue = v.decided, earlier(v.to, v.now)
	}
	r.versions(name, versions, v.from, v.to)
	var floor time.Time
	var removed int64
	err := pages(func(token string) (string, error) {
		resp, err := a.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: job, PageSize: verifyPage, PageToken: token})
		if err != nil {
			return "", err
		}
		next := resp.GetNextPageToken()
		floor, removed = instantOf(resp.GetRemovedUntil()), resp.GetRemovedCount() // the last page's is the highest
		for _, run := range resp.GetRuns() {
			fact := factOf(name, run)
			t, _ := runTime(fact.ID)
			if !t.After(v.to) {
				f.Runs = append(f.Runs, fact)
			}
			if _, slot := history.Slot(fact.ID); slot && t.Before(v.from) {
				// It may stand for slots in the window; an older one cannot.
				next = ""
			}
		}
		v.progress.show("%d of about %d jobs, %d runs", v.jobs, v.total, v.runs+int64(len(f.Runs)))
		return next, nil
	})
	if err == nil && removed > 0 && floor.After(v.from) {
		if floor.After(f.Since[name]) {
			f.Since[name] = floor
		}
		r.notes = append(r.notes, fmt.Sprintf("%s: slots up to %s are not judged: records of that time were removed by retention, %d in all",
			name, floor.UTC().Format(time.RFC3339), removed))
	}
	return r, err
}

// versions takes a job's versions in, and since when they are known where they are
// not from the first.
func (r *reading) versions(job string, newestFirst []*leaderdv1.JobVersion, from, to time.Time) {
	var known []history.Version
	for _, version := range newestFirst {
		if version.GetEffectiveTime() == nil {
			break // it cannot be read, and what came before it is not known to its end
		}
		spec := version.GetSpec()
		x := history.Version{
			Revision: version.GetRevision(), Generation: version.GetGeneration(),
			Effective: instantOf(version.GetEffectiveTime()), Anchor: instantOf(version.GetAnchorTime()),
			Schedules: spec.GetSchedules(), Zone: spec.GetTimeZone(), Clock: clockRules(spec),
			Start: instantOf(spec.GetStartTime()), End: instantOf(spec.GetEndTime()), Jitter: spec.GetJitter().AsDuration(),
			Excluded: calendarFacts(version.GetCalendars(), spec.GetExcludedCalendars()),
			Only:     calendarFacts(version.GetCalendars(), spec.GetOnlyCalendars()),
			Paused:   version.GetPaused(), Deleted: version.GetChange() == leaderdv1.JobVersion_CHANGE_DELETE,
			Broken:     version.GetQuarantine() != "",
			AtMostOnce: spec.GetGuarantee() == leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE,
			RunPlanned: spec.GetStoreOutage() == leaderdv1.StoreOutage_STORE_OUTAGE_RUN_PLANNED,
			Queues:     spec.GetOverlap() > leaderdv1.Overlap_OVERLAP_ALLOW || len(spec.GetLimits()) > 0,
			Key:        spec.GetConcurrencyKey(),
			Deadline:   defaultDeadline,
		}
		x.Limits = limitFacts(job, spec)
		x.Limit = int(spec.GetMaxConcurrent())
		if spec.GetOverlap() != leaderdv1.Overlap_OVERLAP_ALLOW {
			x.Limit = max(x.Limit, 1)
		}
		if x.Exclusive = x.Limit == 1 && x.Key == ""; x.Exclusive {
			x.Limit = 0 // its one live record is its gate
		}
		if spec.GetStartDeadline() != nil {
			x.Deadline = spec.GetStartDeadline().AsDuration()
		}
		known = append([]history.Version{x}, known...)
	}
	r.facts.Jobs[job] = known
	if len(known) == 0 {
		r.unreadable, r.facts.Since[job] = true, to
		r.notes = append(r.notes, job+": none of its versions can be read")
		return
	}
	if known[0].Generation == 1 {
		return
	}
	since := known[0].Effective
	r.facts.Since[job] = since
	if since.After(from) {
		r.notes = append(r.notes, fmt.Sprintf("%s: slots up to %s are not judged: versions before generation %d are not kept, or cannot be read",
			job, since.Format(time.RFC3339), known[0].Generation))
	}
}

// limitFacts are the limits of a spec that bound how many runs are live at a time.
func limitFacts(job string, spec *leaderdv1.JobSpec) (all []history.Limit) {
	for _, l := range spec.GetLimits() {
		if l.GetMax() == 0 {
			continue
		}
		namespace, _, _ := strings.Cut(job, "/")
		name := namespace + "/" + l.GetName()
		if l.GetScope() == leaderdv1.Limit_SCOPE_CLUSTER {
			name = l.GetName() + " of the cluster"
		}
		all = append(all, history.Limit{Name: name, Max: int(l.GetMax()), PerKey: l.GetPerKey()})
	}
	return all
}

// clockRules are what a spec says of clocks that are set.
func clockRules(spec *leaderdv1.JobSpec) history.ClockRules {
	rules := history.ClockRules{Missing: "shift", Repeated: "first"}
	if spec.GetMissingTime() == leaderdv1.MissingTime_MISSING_TIME_SKIP {
		rules.Missing = "skip"
	}
	switch spec.GetRepeatedTime() {
	case leaderdv1.RepeatedTime_REPEATED_TIME_LAST:
		rules.Repeated = "last"
	case leaderdv1.RepeatedTime_REPEATED_TIME_BOTH:
		rules.Repeated = "both"
	case leaderdv1.RepeatedTime_REPEATED_TIME_UNSPECIFIED, leaderdv1.RepeatedTime_REPEATED_TIME_FIRST:
	}
	return rules
}

// calendarFacts are those of a version's calendars that it names.
func calendarFacts(all []*leaderdv1.JobCalendar, names []string) (out []history.Calendar) {
	for _, from := range all {
		if !slices.Contains(names, from.GetName()) {
			continue
		}
		c := history.Calendar{Name: from.GetName(), Zone: from.GetSpec().GetTimeZone()}
		for _, e := range from.GetSpec().GetEntries() {
			x := history.CalendarEntry{
				First: e.GetRange().GetFirst(), Last: e.GetRange().GetLast(),
				Start: instantOf(e.GetPeriod().GetStart()), End: instantOf(e.GetPeriod().GetEnd()),
				Days: e.GetWeekly().GetDays(), From: e.GetWeekly().GetFrom(), To: e.GetWeekly().GetTo(),
			}
			if e.GetDate() != "" {
				x.First, x.Last = e.GetDate(), e.GetDate()
			}
			c.Entries = append(c.Entries, x)
		}
		out = append(out, c)
	}
	return out
}

// factOf is a run in the form of package history.
func factOf(job string, run *leaderdv1.Run) history.Run {
	r := history.Run{
		LimitKey: run.GetLimitKey(),
		Job:      job, ID: runID(run.GetName()), State: stateName(run.GetState()), Reason: run.GetReason(),
		Generation: run.GetJobGeneration(), Due: instantOf(run.GetDueTime()), Until: instantOf(run.GetUntilTime()),
		Count: run.GetSlotCount(), Ended: run.GetRevision(),
	}
	if s := run.GetState(); s == leaderdv1.Run_STATE_UNREADABLE || s == leaderdv1.Run_STATE_UNSPECIFIED {
		r.State, r.Unreadable = "unreadable", run.GetDetail()
		if r.Unreadable == "" {
			r.Unreadable = "it has a state that this version does not know"
		}
	}
	if n := run.GetShards(); n != nil {
		r.Shards, r.Needed = int(n.GetTotal()), int(n.GetMinSuccess())
	}
	for _, of := range run.GetCarried() {
		carried := history.Carried{Run: runID(of.GetRun())}
		for _, shard := range of.GetShards() {
			carried.Shards = append(carried.Shards, int(shard))
		}
		r.Carried = append(r.Carried, carried)
	}
	r.Doubles = len(run.GetDoubles())
	for _, at := range run.GetAttempts() {
		r.Attempts = append(r.Attempts, history.Attempt{
			Shard: int(at.GetShard()), Number: int(at.GetNumber()), Token: at.GetToken(), Term: at.GetTerm(), Node: at.GetNode(), State: stateName(at.GetState()), Snoozed: at.GetSnoozed(),
			Unclaimed: at.GetUnclaimed(),
			Started:   instantOf(at.GetStartTime()), Ended: instantOf(at.GetEndTime()),
		})
	}
	return r
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func instantOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// runTime is the time that a run's id begins with.
func runTime(run string) (time.Time, bool) {
	begin, _, _ := strings.Cut(run, "-")
	return history.Slot(begin)
}
