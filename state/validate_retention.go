package state

// checkRetention looks at for how long past runs are kept.
func (s *JobSpec) checkRetention(v *Violations) {
	r := s.Retention
	if r.MaxRuns < 0 || r.MaxRuns > MaxRetainedRuns {
		v.Add("spec.retention.maxRuns", "%d is outside 1–%d", r.MaxRuns, MaxRetainedRuns)
	} else if r.MaxRuns != 0 && r.MaxRuns < s.PauseAfterFailures {
		v.Add("spec.retention.maxRuns", "%d is less than pauseAfterFailures, %d, for which so many runs have to be kept", r.MaxRuns, s.PauseAfterFailures)
	}
	checkDuration(v, "spec.retention.maxAge", r.MaxAge, MinRetainedAge, MaxRetainedAge)
}
