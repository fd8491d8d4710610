package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Rule is what a violation breaks; each belongs to one invariant.
type Rule string

// Rules, by the invariants of the design.
const (
	// 1: at most one claim per attempt, and work starts only by a claim.
	Twice     Rule = "twice"     // an attempt started or was claimed twice, or an at-most-once run again
	Again     Rule = "again"     // a further attempt at a run or shard that had succeeded, or still ran, or was over
	Unclaimed Rule = "unclaimed" // work started without a claim
	Silent    Rule = "silent"    // an attempt succeeded that no work wrote down
	Tokens    Rule = "tokens"    // attempts' numbers and tokens do not rise together

	// 2: every slot has one verdict with a reason, or a live record.
	Unaccounted Rule = "unaccounted" // a due slot has neither
	Doubled     Rule = "doubled"     // a slot has several
	Undue       Rule = "undue"       // there is one where nothing was due
	Reasonless  Rule = "reasonless"  // a skip or a miss without a reason
	Overdue     Rule = "overdue"     // a slot has neither though its start deadline is long over
	Watermark   Rule = "watermark"   // it fell, or passed a slot that nobody had decided
	Backfilled  Rule = "backfilled"  // a backfill forgot a slot, or has runs that it should not have
	Asleep      Rule = "asleep"      // a pause went on after its end, or began without its reason

	// 3: nothing starts early, or after its job's pause, edit or deletion.
	Early    Rule = "early"
	Barred   Rule = "barred" // a slot ran that the clock or a calendar bars, or one has such a verdict that they do not
	Unfenced Rule = "unfenced"

	// 4: overlap policies hold.
	Overlap Rule = "overlap"

	// 5: checkpoints never go back, and attempts resume from the last.
	Backward Rule = "backward"
	Resumed  Rule = "resumed"

	// 6: an acknowledged finish stands.
	Lost       Rule = "lost"       // an end or a whole run is not there
	Changed    Rule = "changed"    // a verdict was written twice, removed, or is not what the last attempt's end says
	Unreadable Rule = "unreadable" // a record cannot be read

	// 7: an owner whose registration is gone has stopped its work.
	Outlived Rule = "outlived"
	Disowned Rule = "disowned" // it claimed without a registration

	// 8: a bad job harms nobody.
	Harm Rule = "harm"

	// 9: a lost leader makes nothing late, a lost executor no later than it takes
	// to notice.
	Late Rule = "late"

	// 10: nothing waits for a running job.
	Held Rule = "held"
)

// invariants are the numbers that rules belong to.
var invariants = map[Rule]int{
	Twice: 1, Again: 1, Unclaimed: 1, Silent: 1, Tokens: 1,
	Unaccounted: 2, Doubled: 2, Undue: 2, Reasonless: 2, Overdue: 2, Watermark: 2, Asleep: 2, Backfilled: 2,
	Early: 3, Barred: 3, Unfenced: 3,
	Overlap:  4,
	Backward: 5, Resumed: 5,
	Lost: 6, Changed: 6, Unreadable: 6,
	Outlived: 7, Disowned: 7,
	Harm: 8,
	Late: 9,
	Held: 10,
}

// Invariant is the number of the invariant that the rule belongs to.
func (r Rule) Invariant() int { return invariants[r] }

// Violation is one broken rule.
type Violation struct {
	Invariant int
	Rule      Rule
	// Job and Run say where; either may be empty.
	Job, Run string
	// Text is a sentence without its subject.
	Text string
}

// String is the violation in one line.
func (v Violation) String() string {
	s := fmt.Sprintf("invariant %d (%s)", v.Invariant, v.Rule)
	if v.Job != "" {
		s += ": job " + v.Job
	}
	if v.Run != "" {
		s += " run " + v.Run
	}
	return s + ": " + v.Text
}

// Unchecked is something that could not be checked, and why.
type Unchecked struct {
	Invariant int
	// Job is empty where it is true of all.
	Job string
	Why string
	// Whole is set where nothing of the invariant could be checked.
	Whole bool
}

// Report answers Check.
type Report struct {
	// Violations by invariant, job and run; of one job at most 1000 are kept.
	Violations []Violation
	// Unchecked is what the facts do not tell.
	Unchecked []Unchecked
	// Slots is how many due slots were accounted for or not.
	Slots int64
	// Held are the places at limits that the facts tell of: whoever reads job after job
	// puts them together for Crowded.
	Held []HeldPlace
	// More is how many violations were left out.
	More int
}

const maxPerJob = 1000

// needs are the logs that parts of the invariants need.
var needs = []struct {
	invariant int
	sources   Sources
	why       string
	whole     bool
}{
	{1, WorkLog, "whether work itself started once, and only by a claim: no work log", false},
	{2, MarkLog, "whether the watermark ever passed an undecided slot: no log of watermarks", false},
	{3, WorkLog, "whether work itself began after its slot: no work log", false},
	{4, WorkLog | WorkEnds, "whether work itself ran side by side: no work log with ends", false},
	{5, CheckpointLog, "no log of checkpoints", true},
	{6, EndLog, "whether an end that its owner saw acknowledged was lost: no log of acknowledgements", false},
	{6, VerdictLog, "whether a verdict was ever overwritten: no log of verdicts", false},
	{7, RegistrationLog | WorkLog | WorkEnds, "no log of registrations and of work's ends", true},
	{8, IncidentLog, "no log of processes' ends", true},
	{9, LossLog | WorkLog, "no log of losses and of work", true},
	{10, WaitLog, "no log of what was asked meanwhile", true},
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(a.Invariant-b.Invariant, cmp.Compare(a.Job, b.Job), cmp.Compare(a.Run, b.Run))
	})
}
