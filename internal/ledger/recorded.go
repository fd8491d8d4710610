package ledger

import (
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// recorded is what became of a slot that has a record.
func (x *Explanation) recorded(e *store.RunEntry) string {
	switch {
	case e.Broken != nil:
		return "It has a record that cannot be read: " + e.Broken.Error() + "."
	case e.Pending != nil:
		return "It waits for its turn."
	case len(e.Live) > 0:
		return live(&e.Live[0])
	}
	r := e.Record
	if i := lastBegun(r.Attempts); i >= 0 {
		return x.ran(r, i)
	}
	out := "It did not start: " + verdict(r)
	why, known := reasonOf(r.Reason)
	if known {
		out += ", since " + x.means(r, why)
	}
	if r.Detail != "" {
		out += " (" + r.Detail + ")"
	}
	if r.Count > 1 {
		out += fmt.Sprintf(". It shares this verdict with %d others, from %s to %s", r.Count-1,
			r.Due.UTC().Format(time.RFC3339), r.Until.UTC().Format(time.RFC3339))
	}
	out += "."
	if known {
		out += " " + why.Do
	}
	return out
}

// lastBegun is the index of the last attempt whose work began, or may have begun; -1
// if there is none. Of an attempt whose executor was lost nobody knows.
func lastBegun(attempts []state.Attempt) int {
	for i := len(attempts) - 1; i >= 0; i-- {
		if a := &attempts[i]; !a.Started.IsZero() || a.State == state.StateLost {
			return i
		}
	}
	return -1
}

// ran tells of a run whose attempt i was the last to begin.
func (x *Explanation) ran(r *state.Record, i int) string {
	first, last := &r.Attempts[0], &r.Attempts[i]
	var out string
	if last.Started.IsZero() {
		out = fmt.Sprintf("It was claimed by %s (token %d), planned in term %d; its executor was lost; the work may have run in part or in full: %s.",
			last.Node, last.Token, last.Term, verdict(r))
	} else {
		out = fmt.Sprintf("It ran: %s on %s, planned in term %d, started %s after it was due and took %s.", verdict(r), last.Node, last.Term,
			rounded(last.Started.Sub(r.Due)), rounded(last.Ended.Sub(last.Started)))
	}
	if last.Unclaimed {
		out += " It began without a claim, since its executor could not reach the store, and was recorded later."
	}
	if n := len(r.Doubles); n > 0 {
		out += fmt.Sprintf(" It ran %d times more, without a claim, on executors that could not reach the store; see its record.", n)
	}
	if len(r.Attempts) > 1 {
		out += fmt.Sprintf(" It took %d attempts; the first, on %s, ended %s.", len(r.Attempts), first.Node, first.State)
	}
	why, known := reasonOf(r.Reason)
	switch {
	case r.State == state.StateLost:
		if lost, ok := reasonOf(r.State.String()); ok {
			out += " " + lost.Do
		}
	case known:
		out += " It ended so since " + x.means(r, why)
		if r.Detail != "" {
			out += " (" + r.Detail + ")"
		}
		out += "."
	case r.Detail != "":
		out += " Detail: " + r.Detail + "."
	}
	return out
}

func verdict(r *state.Record) string {
	if r.Reason == "" {
		return r.State.String()
	}
	return r.State.String() + ":" + r.Reason
}

// means is the clause of a reason, as the version of the job had it.
func (x *Explanation) means(r *state.Record, why Reason) string {
	switch {
	case r.Reason != state.ReasonOverlap:
		return why.Means
	case r.State == state.StateCancelled:
		return "a newer run was due while this one was live, and the overlap policy of that run's job is cancel"
	case x.Spec == nil:
		return why.Means
	}
	spec := x.Spec
	policy := "its overlap policy is " + spec.Overlap.String()
	gate := spec.Gate()
	live := "an earlier run of the job was still live"
	switch limit := spec.Limit(); {
	case gate.Key != "" && limit == 1:
		live = fmt.Sprintf("another run of its concurrencyKey %s was live", gate.Key)
	case gate.Key != "":
		live = fmt.Sprintf("%d runs of its concurrencyKey %s were live, as many as its maxConcurrent", limit, gate.Key)
	case limit > 1:
		live = fmt.Sprintf("%d runs of the job were live, as many as its maxConcurrent", limit)
	}
	if spec.Overlap == state.OverlapQueue {
		policy += fmt.Sprintf(" with a queueLimit of %d", gate.QueueLimit)
	}
	return live + ", and " + policy
}
