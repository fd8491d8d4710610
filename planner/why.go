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
		return "no executor matches the nodeSelector and the resources"
	case state.ReasonNoCapacity:
		return "all executors that may run it were full"
	case state.ReasonRefused:
		return "the store refused the claims"
	}
	return "an executor had it in its plan and did not claim it"
}

// whyQueued says in words what has kept a run waiting.
func whyQueued(e *entry) string {
	if limits := e.version.Limits(); e.line != nil || e.let && len(limits) > 0 {
		return "it waited for room at " + limitOf(e).id.String()
	}
	if key := e.version.ConcurrencyKey; key != "" {
		return "it waited for other runs of the concurrencyKey " + key
	}
	return "it waited for other runs of the job"
}

// limitOf is the limit at which an entry waits, or was let go from.
func limitOf(e *entry) lineKey {
	switch {
	case e.line != nil:
		return e.line.lineKey
	case e.from != nil:
		return e.from.lineKey
	}
	return e.lineKey(min(int(e.job.reached), len(e.version.Limits())-1))
}
