package history

import (
	"slices"
	"strings"
	"time"
)

// Sources are logs that facts may have beside the versions and runs. What needs a
// log that is not there is not checked, and the report says so.
type Sources uint16

// Sources of facts.
const (
	// WorkLog: Starts has every start, as the work itself wrote it down.
	WorkLog Sources = 1 << iota
	// WorkEnds: each of Starts has its end, unless the work still goes on.
	WorkEnds
	// ClaimLog: Claims has every committed claim.
	ClaimLog
	// VerdictLog: Verdicts has every write of a verdict.
	VerdictLog
	// EndLog: Ends has every end that was acknowledged to its owner.
	EndLog
	// CheckpointLog: Checkpoints has every accepted one.
	CheckpointLog
	// RegistrationLog: Registrations has all of them.
	RegistrationLog
	// MarkLog: Marks has every write of the watermark.
	MarkLog
	// LossLog: Losses has every leader and executor that was lost.
	LossLog
	// WaitLog: Waits has all that was asked of the cluster while work ran.
	WaitLog
	// IncidentLog: Incidents has every process and leadership that ended by
	// itself.
	IncidentLog
)

// Facts is what is known of a cluster's past. Times of different machines are
// compared only where OneClock or LogClock is set.
type Facts struct {
	// From and To bound the due slots that must be accounted for, both included.
	// To is at or before the watermark as it was when the runs were read, or
	// earlier. A zero From checks no slots.
	From, To time.Time
	// Overdue is the last slot that is looked at behind To: whether it should have
	// its verdict by Now. Zero: none is.
	Overdue time.Time
	// Now is when the runs were read, by the cluster's clock. Overdue and Settle
	// need it.
	Now time.Time
	// Settle is how long after its change a version may be unknown to the leader:
	// slots of a version that is younger than that at Now may have no record yet.
	Settle time.Duration
	// Stale is how long after a change those who have not heard of it may act
	// upon the version before; 0 means DefaultStale.
	Stale time.Duration
	// OneClock tells that all times but Start.Local are by one clock, those in
	// records of attempts too.
	OneClock bool
	// LogClock tells that the times in the logs are, whatever the executors' clocks
	// show: those of Starts but for Local, Claims and Registrations.
	LogClock bool
	// KnowsOverrides tells that Run.Override is set wherever it should be. Without
	// it runs without a slot may have been allowed to overlap.
	KnowsOverrides bool
	// KnowsWaits tells that Run.Asked is set wherever it should be. Without it any slot
	// of a version that Queues may have waited.
	KnowsWaits bool
	// Sources are the logs below that are there.
	Sources Sources

	// Jobs has the versions of each job in order of revision.
	Jobs map[string][]Version
	// Since are jobs of which older versions are not known: nothing that happened
	// at this instant or before is judged.
	Since map[string]time.Time
	// Runs are all runs, live and past, and all verdicts on slots.
	Runs []Run

	Starts        []Start
	Claims        []Claim
	Verdicts      []Verdict
	Ends          []End
	Checkpoints   []Checkpoint
	Registrations []Registration
	Marks         []Mark
	Losses        []Loss
	Waits         []Wait
	Incidents     []Incident
	// Backfills are those of which all is known.
	Backfills []Backfill
}

// DefaultStale is the default of Facts.Stale: a watch that fell silent is begun
// anew within that.
const DefaultStale = 45 * time.Second

// Version is a job as it was stored at a revision.
type Version struct {
	// Revision is the store's, of the change.
	Revision int64
	// Generation counts the versions; 0: not known.
	Generation int64
	// Effective is the instant after which slots of this version are due, and of
	// the version before no more; so also when it was paused or deleted.
	Effective time.Time
	// Slack is how far Effective may be off, for changes whose instant is not
	// stored. Slots nearer than that to it may have a run or not.
	Slack time.Duration
	// Schedules are texts as ParseSchedule reads them.
	Schedules []string
	// Zone is the IANA name of the zone of cron fields; default UTC.
	Zone string
	// Clock has the rules for changes of the zone's clock.
	Clock ClockRules
	// Anchor is what @every counts from.
	Anchor time.Time
	// Start and End bound the slots, [Start, End); zero: they do not.
	Start, End time.Time
	// Jitter is how long after its instant a slot is due at most.
	Jitter time.Duration
	// Excluded and Only are the calendars: slots in any of the former do not run,
	// nor do those that are in none of the latter, where there are any.
	Excluded, Only []Calendar
	// Paused, Deleted and Broken (quarantined) versions make nothing due.
	Paused, Deleted, Broken bool
	// Until is when a pause ends by itself; zero: it does not.
	Until time.Time
	// PausedAfter is set where the leader paused the job after so many failures of
	// the version before.
	PausedAfter int
	AtMostOnce  bool
	// RunPlanned: its slots may begin without a claim while the store cannot be reached.
	RunPlanned bool
	// Exclusive runs do not overlap.
	Exclusive bool
	// Limit is how many runs may be live at a time where they take places, of the
	// job or of Key if that is set; 0: none do.
	Limit int
	Key   string
	// Limits are those on how many runs of several jobs are live at a time.
	Limits []Limit
	// Queues tells that runs wait for others, of the job or at a limit, and go on with
	// the newest version.
	Queues bool
	// Deadline is how long after it was due a slot may start; 0: not known.
	Deadline time.Duration
	// Mark is what the work of this version writes down to tell it from others.
	Mark string
	// NoWork is set where the work writes nothing down.
	NoWork bool
}

func (v *Version) live() bool { return !v.Paused && !v.Deleted && !v.Broken }

// Start is a start as the work wrote it down.
type Start struct {
	Job, Run       string
	Shard, Attempt int
	Token          int64
	Mark           string
	// At is when the work began; Local the same by its executor's own clock, where
	// that is another (zero: it is not).
	At, Local time.Time
	// Ended is when the work ended; zero: it did not, or WorkEnds is not there.
	Ended time.Time
	// Resumed is the Sequence of the checkpoint that it began from, 0 for none. Negative:
	// the work ended before it knew.
	// It is compared where CheckpointLog is there.
	Resumed int64
}

// Attempt is one try at a run. States are in lower case: succeeded, timed_out.
type Attempt struct {
	Number      int
	Shard       int
	Token, Term int64
	Node        string
	State       string
	// Snoozed: the work asked to be called again, whatever its state. Unclaimed: it began
	// without a claim; its work wrote down the token 0.
	Snoozed, Unclaimed bool
	// Started and Ended are by the executor's clock.
	Started, Ended time.Time
}

// Run is a run or verdict as it was read at the end.
type Run struct {
	Job, ID, State, Reason string
	// LimitKey is the key by which it counts at limits that are per key. Generation is of
	// the version that it ran; 0: not known.
	LimitKey   string
	Generation int64
	Due, Until time.Time
	Count      int64 // how many slots the verdict stands for, from Due to Until
	// Attempts, the oldest first. Of more than 20 some are left out. Doubles is how many
	// further ones began without a claim.
	Attempts []Attempt
	Doubles  int
	// Shards is how many parts a run that is split has, and Needed how many of them
	// must succeed; 0 for any other run, such as one that has listed none.
	Shards, Needed int
	// Carried are those of its shards that succeeded before, and have no attempts in it.
	Carried []Carried
	// Override is set where it was allowed to start beside other runs.
	Override bool
	// Asked is when it was due as its pending key has it, of a run that was asked for
	// or that had to wait for others; zero: it never had such a key.
	Asked time.Time
	// Decided is the revision of its first record, Ended that of its verdict; 0:
	// not known, or there is none.
	Decided, Ended int64
	// Unreadable is set where its record cannot be read, and says why.
	Unreadable string
}

// split tells whether the run has parts.
func (r *Run) split() bool { return r != nil && r.Shards > 0 }

// alive tells whether the run has no verdict.
func (r *Run) alive() bool {
	return r.State == "pending" || r.State == "running" || r.State == "waiting"
}

// HeaderShard is the shard of the claim of a run that is split as a whole, beside which
// each of its shards is claimed.
const HeaderShard = -1

// ListShard is the shard of the first step of a run that lists its shards. Its claim is
// that of the run as a whole.
const ListShard = -2

// whole tells whether a shard stands for its run as a whole.
func whole(shard int) bool { return shard == HeaderShard || shard == ListShard }

// Claim is a committed claim.
type Claim struct {
	Job, Run       string
	Shard, Attempt int
	// Token is the revision of its commit.
	Token int64
	// Generation is of the version that it was for; 0: not known.
	Generation            int64
	Owner                 Owner
	Exclusive, AtMostOnce bool
	// Placed is set where the run took one of its version's places.
	Placed bool
	At     time.Time
}

// Owner is one registration of an executor.
type Owner struct {
	Node     string
	Revision int64
}

// Verdict is one write of a run's verdict, or its removal: then State is empty.
type Verdict struct {
	Job, Run, State string
	Revision        int64
}

// End is an attempt's end that the store acknowledged to its owner.
type End struct {
	Job, Run string
	Shard    int
	Token    int64
	State    string
	// Retry tells that the run was to go on with another attempt.
	Retry bool
}

// Checkpoint is one that the store accepted.
type Checkpoint struct {
	Job, Run string
	Shard    int
	// Token is of the attempt that saved it, Revision that of the write.
	Token, Revision int64
	// Sequence is how far the work had come, by its own count.
	Sequence int64
}

// Registration is an executor's hold on its name.
type Registration struct {
	Owner
	// EndRevision and Ended tell of its end; 0 and zero where it stands.
	EndRevision int64
	Ended       time.Time
	// Forced is set where it was ended behind its owner's back, which then could
	// not know in time.
	Forced bool
}

// Mark is one write of the watermark.
type Mark struct {
	Instant        time.Time
	Revision, Term int64
	// Jobs is the revision up to which versions of jobs are in it, which does not
	// fall either; 0: not known.
	Jobs int64
}

// Loss is a leader or an executor that died, was cut off or was stopped.
type Loss struct {
	// What happened, for people.
	What string
	// Executor is the node whose work was lost; empty for a leader that ran none.
	Executor string
	// At is when, Noticed when the cluster could know: the end of a lease.
	At, Noticed time.Time
	// Until is the last slot that is judged.
	Until time.Time
	// Limit is how late a slot may start: after it was due, or for an executor's
	// after Noticed if that is later.
	Limit time.Duration
}

// Wait is something that was asked of the cluster while work ran: another leader,
// a changed plan, the end of a drained node.
type Wait struct {
	What string
	// Asked and Done are when; Done is zero where it was not done.
	Asked, Done time.Time
	Limit       time.Duration
}

// Incident is a process or a leadership that ended although nobody asked for it.
type Incident struct {
	Node, Text string
}

const slotLayout = "20060102T150405Z"

// IsBackfill tells whether a run is a backfill's.
func IsBackfill(run string) bool {
	_, kind, _ := strings.Cut(run, "-")
	return strings.HasPrefix(kind, "backfill-")
}

// Slot is the run's slot; ok is false for one that was asked for.
func Slot(run string) (slot time.Time, ok bool) {
	t, err := time.Parse(slotLayout, run)
	return t, err == nil
}

// Lateness tells how long after their slots first attempts started.
type Lateness struct {
	Starts        int
	P50, P99, Max time.Duration
}

// Lateness of the starts of slots in [from, to].
func (f *Facts) Lateness(from, to time.Time) Lateness {
	var all []time.Duration
	for i := range f.Starts {
		s := &f.Starts[i]
		if slot, ok := Slot(s.Run); ok && s.Attempt == 1 && !slot.Before(from) && !slot.After(to) {
			all = append(all, s.At.Sub(slot))
		}
	}
	if len(all) == 0 {
		return Lateness{}
	}
	slices.Sort(all)
	return Lateness{Starts: len(all), P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
}

// Count tells how many runs have each "state" or "state:reason"; a verdict on
// several slots counts for each.
func (f *Facts) Count() map[string]int64 {
	out := map[string]int64{}
	for i := range f.Runs {
		r := &f.Runs[i]
		name := r.State
		if r.Reason != "" {
			name += ":" + r.Reason
		}
		out[name] += max(r.Count, 1)
	}
	return out
}

// Nodes tells which executor had each attempt.
func (f *Facts) Nodes() map[Holder]string {
	out := map[Holder]string{}
	for i := range f.Runs {
		for _, a := range f.Runs[i].Attempts {
			out[Holder{f.Runs[i].Job, a.Token}] = a.Node
		}
	}
	return out
}

// Holder names an attempt: among those of a job a token is unique.
type Holder struct {
	Job   string
	Token int64
}
