package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Limit is a limit of a job on how many runs are live at a time, of all jobs that name it.
type Limit struct {
	// Name tells it apart from all others, of any namespace.
	Name string
	Max  int
	// PerKey tells that there is one for each key of runs.
	PerKey bool
}

// HeldPlace is the time in revisions for which a run had a place at a limit.
type HeldPlace struct {
	Limit, Job, Run string
	// Max is how many runs may be live by its own job; 0: it only counts beside others.
	Max int
	// From is the revision of its claim, To that of its verdict; 0: it has none.
	From, To int64
}

// held are the places at limits that the facts tell of. A run counts where the version
// is known by which it was claimed: those that are live when their job is given a limit
// have no place.
func (c *checker) held() (all []HeldPlace) {
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		for _, r := range j.runs {
			begun, checked := j.begun(r), true
			if begun == 0 && r.split() && len(r.Attempts) > 0 {
				begun, checked = r.Attempts[0].Token, false // by then it was
				for i := range r.Attempts {
					begun = min(begun, r.Attempts[i].Token)
				}
			}
			v := j.inForce(begun)
			if begun == 0 || v == nil || r.Ended == 0 && !r.alive() ||
				r.Generation != 0 && v.Generation != 0 && r.Generation != v.Generation {
				continue
			}
			for _, l := range v.Limits {
				if l.PerKey && r.LimitKey != "" {
					l.Name += " for key " + r.LimitKey
				}
				h := HeldPlace{Limit: l.Name, Job: name, Run: r.ID, Max: l.Max, From: begun, To: r.Ended}
				if !checked {
					h.Max = 0
				}
				all = append(all, h)
			}
		}
	}
	return all
}

// Crowded are the runs that were claimed while as many runs as their job's limit allows
// had places there: invariant 4.
func Crowded(all []HeldPlace) (found []Violation) {
	of := map[string][]HeldPlace{}
	for _, h := range all {
		if h.To == 0 {
			h.To = math.MaxInt64
		}
		of[h.Limit] = append(of[h.Limit], h)
	}
	for _, limit := range slices.Sorted(maps.Keys(of)) {
		slices.SortStableFunc(of[limit], func(a, b HeldPlace) int { return cmp.Compare(a.From, b.From) })
		var live []HeldPlace
		for _, h := range of[limit] {
			live = slices.DeleteFunc(live, func(o HeldPlace) bool { return o.To <= h.From })
			if h.Max > 0 && len(live) >= h.Max {
				found = append(found, Violation{Overlap.Invariant(), Overlap, h.Job, h.Run, fmt.Sprintf(
					"was claimed with token %d while %d runs were live at the limit %s, of at most %d, the first of them %s of %s",
					h.From, len(live), limit, h.Max, live[0].Run, live[0].Job)})
			}
			live = append(live, h)
		}
	}
	return found
}
