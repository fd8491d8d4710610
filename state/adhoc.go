package state

import "time"

// DefaultAdhocAge is for how long past runs are kept of jobs that submissions make, and so
// these themselves, where neither the spec nor the cluster says less.
const DefaultAdhocAge = 24 * time.Hour

// AdhocRetention is the retention of jobs that submissions make and whose specs set none,
// where the cluster's is as given.
func AdhocRetention(cluster Retention) Retention {
	if cluster.MaxAge == 0 || cluster.MaxAge > DefaultAdhocAge {
		cluster.MaxAge = DefaultAdhocAge
	}
	return cluster
}

// CheckAdhoc adds to v what the spec of a job that a submission makes cannot have: such a
// job has no schedules, and nothing but the submission makes it a run.
func (s *JobSpec) CheckAdhoc(v *Violations) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"schedules", len(s.Schedules) > 0},
		{"timeZone", s.TimeZone != ""},
		{"startTime", !s.Start.IsZero()},
		{"endTime", !s.End.IsZero()},
		{"jitter", s.Jitter != 0},
		{"missingTime", s.MissingTime != MissingShift},
		{"repeatedTime", s.RepeatedTime != RepeatedFirst},
		{"excludedCalendars", len(s.ExcludedCalendars) > 0},
		{"onlyCalendars", len(s.OnlyCalendars) > 0},
		{"catchUp", s.CatchUp != CatchUpLatest},
		{"catchUpWindow", s.CatchUpWindow != 0},
		{"catchUpLimit", s.CatchUpLimit != 0},
		{"after", s.After != nil},
	} {
		if f.set {
			v.Add("spec."+f.name, "is not allowed in a submission, which makes one run, by itself; leave it out, or put a job that has it")
		}
	}
}
