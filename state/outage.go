package state

// StoreOutage is what becomes of slots that come while an executor cannot reach the
// store.
type StoreOutage uint8

// Policies for an outage of the store.
const (
	// OutageHold starts nothing that the store does not know of; what came meanwhile is
	// caught up. The default.
	OutageHold StoreOutage = iota
	// OutageRunPlanned starts without a claim what an executor has in its plan, and has it
	// recorded when the store is back. Another executor may have started the same.
	OutageRunPlanned
)

// checkOutage refuses run_planned beside all that claims uphold.
func (s *JobSpec) checkOutage(v *Violations) {
	if s.StoreOutage != OutageRunPlanned {
		return
	}
	for _, x := range [...]struct {
		what string
		set  bool
	}{
		{"guarantee at_most_once", s.Guarantee == AtMostOnce},
		{"an overlap policy other than allow (skip is the default)", s.Overlap != OverlapAllow},
		{"maxConcurrent", s.Overlap == OverlapAllow && s.MaxConcurrent > 0},
		{"concurrencyKey", s.ConcurrencyKey != ""},
		{"limits", len(s.Limits) > 0},
		{"circuitBreaker", s.CircuitBreaker != nil},
		{"shards", s.Shards != nil},
		{"checkpoint", s.Checkpoint != nil},
		{"resources", len(s.Resources) > 0},
	} {
		if x.set {
			v.Add("spec.storeOutage", "run_planned is not allowed beside %s, which nobody upholds without a claim", x.what)
		}
	}
}

// DoubleReport asks the store to note, in the record of a run that was decided
// otherwise, an attempt that began without a claim.
type DoubleReport struct {
	Job     JobID
	Run     RunID
	Attempt Attempt
}
