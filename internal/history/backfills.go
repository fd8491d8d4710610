package history

import (
	"cmp"
	"slices"
	"time"
)

// Backfill is a set of past slots of a job that get runs of their own.
type Backfill struct {
	// Prefix is what the ids of its runs begin with; the slot follows.
	Job, Prefix string
	Slots       []time.Time
	Concurrency int
	// Ended is set where it is over; Succeeded, Failed and Cancelled are what it says of
	// its slots then.
	Ended                        bool
	Succeeded, Failed, Cancelled int
}

// backfills checks that no slot of a backfill was forgotten or is another's, that it
// counted right, and that no more runs were live at a time than it allows.
func (c *checker) backfills() {
	for i := range c.f.Backfills {
		b := &c.f.Backfills[i]
		c.backfill(b, c.job(b.Job))
	}
}

func (c *checker) backfill(b *Backfill, j *job) {
	of := map[string]bool{}
	succeeded, failed, cancelled := 0, 0, 0
	var live []*Run
	for _, slot := range b.Slots {
		id := b.Prefix + slot.Format(slotLayout)
		of[id] = true
		r := j.byID[id]
		switch {
		case r == nil: // never made, since it was cancelled
			cancelled++
			continue
		case r.alive():
			if b.Ended {
				c.fail(Backfilled, j.name, id, "is %s, though its backfill has ended", r.State)
			}
		case r.State == "succeeded":
			succeeded++
		case r.State == "cancelled":
			cancelled++
		default:
			failed++
		}
		if len(r.Attempts) > 0 || r.alive() && r.State != "pending" {
			live = append(live, r)
		}
	}
	for _, r := range j.runs {
		if len(r.ID) > len(b.Prefix) && r.ID[:len(b.Prefix)] == b.Prefix && !of[r.ID] {
			c.fail(Backfilled, j.name, r.ID, "is of no slot of its backfill")
		}
	}
	if b.Ended && (b.Succeeded != succeeded || b.Failed != failed || b.Cancelled != cancelled) {
		c.fail(Backfilled, j.name, b.Prefix, "counts %d succeeded, %d failed and %d cancelled of %d, but there are %d, %d and %d",
			b.Succeeded, b.Failed, b.Cancelled, len(b.Slots), succeeded, failed, cancelled)
	}
	c.crowd(b, j, live)
}

// crowd checks how many runs were live at a time, by the revisions of their records.
func (c *checker) crowd(b *Backfill, j *job, live []*Run) {
	type step struct {
		at  int64
		way int
	}
	var steps []step
	for _, r := range live {
		if r.Decided == 0 {
			return // it is not known
		}
		steps = append(steps, step{r.Decided, 1})
		if r.Ended != 0 {
			steps = append(steps, step{r.Ended, -1})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.way, b.way)) })
	n := 0
	for _, s := range steps {
		if n += s.way; n > b.Concurrency {
			c.fail(Backfilled, j.name, b.Prefix, "had %d runs under way at revision %d, and may have %d", n, s.at, b.Concurrency)
			return
		}
	}
}
