package planner

import "github.com/leaderd/leaderd/state"

// whyLate says in words what has kept an entry from being claimed.
func (t *term) whyLate(e *entry) string {
	switch {
	case t.gates.bad[e.version.ID] != nil:
		return "the record of the job's last run cannot be read"
	case e.behind != nil:
		return "it was behind an earlier slot of an outage, which had not started"
	}
	switch t.whyUnplaced(e) {
	case state.ReasonNoExecutor:
		return "no executor attended the leader"
	case state.ReasonNoMatchingNode:
		return "no executor matches the nodeSelector"
	case state.ReasonNoCapacity:
		return "all executors that may run it were full"
	case state.ReasonRefused:
		return "the store refused the claims"
	}
	return "an executor had it in its plan and did not claim it"
}

// whyQueued says in words what has kept a run waiting.
func whyQueued(e *entry) string {
	if key := e.version.ConcurrencyKey; key != "" {
		return "it waited for other runs of the concurrencyKey " + key
	}
	return "it waited for other runs of the job"
}
