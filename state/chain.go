package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// After says which ends of other jobs' runs make a run of the job. The fields mean what
// leaderd.v1.After says.
type After struct {
	// Jobs are names in the job's own namespace.
	Jobs []string
	Mode AfterMode
	On   AfterCondition
}

// AfterMode joins several jobs.
type AfterMode uint8

// Modes.
const (
	// AfterAll waits for an end of each of them; of several of one job the newest counts.
	// The default.
	AfterAll AfterMode = iota
	// AfterAny makes a run of each end.
	AfterAny
)

// AfterCondition is which ends count.
type AfterCondition uint8

// Conditions.
const (
	// AfterSuccess: succeeded. The default.
	AfterSuccess AfterCondition = iota
	// AfterFailure: failed, timed out or lost.
	AfterFailure
	// AfterCompletion: either.
	AfterCompletion
)

// MaxAfter bounds After.Jobs: what they all left is what a run is given to work on.
const MaxAfter = 8

// Counts tells whether a verdict is an end that counts.
func (a *After) Counts(verdict RunState) bool {
	switch a.On {
	case AfterSuccess:
		return verdict == StateSucceeded
	case AfterFailure:
		return verdict.Dead()
	case AfterCompletion:
		return verdict == StateSucceeded || verdict.Dead()
	}
	return false
}

// Chain tells of the runs after whose ends a run was made. The zero value is that of a
// run which was made otherwise.
type Chain struct {
	// Correlation is what all runs of a chain have in common: see Correlate.
	Correlation string
	// Upstream are the runs after which it was made.
	Upstream []Upstream
}

// Upstream is a run after whose end another was made. Its job is of the same namespace.
type Upstream struct {
	Job   string
	Run   RunID
	State RunState
	// ResultLost: it had left a result, which was removed before the other run was made.
	ResultLost bool
}

// Correlate is the correlation of a run: that of its chain, or, where it is the first of
// one, "job/run".
func (c *Chain) Correlate(job string, run RunID) string {
	if c.Correlation != "" {
		return c.Correlation
	}
	return job + "/" + string(run)
}

// AfterRunID is the id of the run that is made after the ends of others, the newest of
// which was written at an instant. The same ends make the same id.
func AfterRunID(at time.Time, upstream []Upstream) RunID {
	h := sha256.New()
	for _, u := range upstream {
		fmt.Fprintf(h, "%s\n%s\n", u.Job, u.Run)
	}
	return RunID(at.UTC().Format(slotLayout) + "-after-" + hex.EncodeToString(h.Sum(nil)[:8]))
}

// Given tells whether runs of the kind may be given a payload.
func (k RunKind) Given() bool { return k == KindSubmit || k == KindAfter }

func (s *JobSpec) checkAfter(v *Violations) {
	a := s.After
	if a == nil {
		return
	}
	const field = "spec.after.jobs"
	switch n := len(a.Jobs); {
	case n == 0:
		v.Add(field, "is empty; 1–%d names of jobs are required", MaxAfter)
	case n > MaxAfter:
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxAfter)
		return
	}
	seen := map[string]bool{}
	for i, name := range a.Jobs {
		at := fmt.Sprintf("%s[%d]", field, i)
		if why := CheckName(name); why != "" {
			v.Add(at, "job %s", why)
		} else if seen[name] {
			v.Add(at, "%q is there twice", name)
		}
		seen[name] = true
	}
}

// Advance asks the store to make the runs of a job that are due after the ends of
// others.
type Advance struct {
	Job JobID
	// JobRevision, Generation, After and Paused are of the version that is known. Runs of
	// a paused job are skipped.
	JobRevision, Generation int64
	After                   *After
	Paused                  bool
	Now                     time.Time
}

// Advanced answers an Advance.
type Advanced struct {
	// Runs are those that were made.
	Runs []RunID
	// More tells that there is more to do at once.
	More bool
	// Seen is the revision up to which all ends have been taken in, where there is not
	// more.
	Seen int64
}
