package history

import "time"

// pauseGrace is how long after the end of a pause the job must have been resumed, and
// after its last failure a failing job paused: a leader may have to be elected, and to
// learn of it.
const pauseGrace = time.Minute

// pauses checks that pauses that end by themselves did so, when they should have, and
// that the leader paused no job whose runs had not failed.
func (c *checker) pauses(j *job) {
	for i, v := range j.versions {
		if !v.Paused || v.Broken || v.Deleted {
			continue
		}
		if v.PausedAfter > 0 && i > 0 && !j.versions[i-1].Paused { // else it is an edit of a paused job
			c.failing(j, v)
		}
		if v.Until.IsZero() {
			continue
		}
		end := v.Until
		if v.Effective.After(end) {
			end = v.Effective
		}
		switch {
		case v.next == nil && !c.f.Now.IsZero() && c.f.Now.Sub(end) > pauseGrace+c.f.Settle:
			c.fail(Asleep, j.name, "", "was paused at revision %d until %s, and still is", v.Revision, end.Format(timeLayout))
		case v.next != nil && !v.next.Broken && v.next.Effective.Add(-v.next.Slack).After(end):
			c.fail(Asleep, j.name, "", "was paused at revision %d until %s, and what is due since then is by the version at revision %d, "+
				"from %s on", v.Revision, end.Format(timeLayout), v.next.Revision, v.next.Effective.Format(timeLayout))
		}
	}
}

// failing checks a pause that failures were the reason of: as many runs of the version
// before had failed when it was stored.
func (c *checker) failing(j *job, v *version) {
	failed := 0
	for _, r := range j.runs {
		if r.Generation == v.Generation-1 && (r.State == "failed" || r.State == "timed_out") && r.Ended < v.Revision && !IsBackfill(r.ID) {
			failed++
		}
	}
	if failed < v.PausedAfter {
		c.fail(Asleep, j.name, "", "was paused at revision %d after %d failures, but %d runs had failed", v.Revision, v.PausedAfter, failed)
	}
}
