package planner

import (
	"math"
	"time"
)

// timed is a job's place on the timeline.
type timed struct {
	job *Job
	// number tells it apart. An address would too, but the order of what is kept
	// by it would not repeat in a simulation.
	number uint64
	// last is the newest slot that was popped, next the one to come, in Unix
	// seconds or never.
	last, next int64
	// since is the instant after which slots have to be due to be opened: those of
	// a job with jitter may be due before others that came earlier. It is in Unix
	// microseconds, the precision of all that is due.
	since int64
	// at is the job's place in the heap, -1 while it has no slot to come.
	at int
	// open are the job's open entries, in no order.
	open []*entry
	// queue are those of them whose runs wait for others, in order of due, and
	// scope is where the term keeps the job by it.
	queue []*entry
	scope *scope
	// reached is the limit at which its runs were found to have to wait last, from 0.
	reached uint8
	// trimming is set while its dead letters are about to be counted.
	trimming bool
	// end is what ended a deleted job, once that is known.
	end *ending
	// replays wait for the one that is under way; nil: none is.
	replays *[]func()
}

// never stands for no slot.
const never = math.MinInt64

func newTimed(j *Job) *timed { return &timed{job: j, last: never, next: never, at: -1} }

// newTimed is newTimed with a number, by which the term's entries are kept. It is
// counted in each term anew: what other terms of the process had before must not
// change in which order this one deals with its entries.
func (t *term) newTimed(j *Job) *timed {
	t.numbered++
	timed := newTimed(j)
	timed.number = t.numbered
	return timed
}

func slotSeconds(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return t.Unix()
}

// timeline is a heap of jobs by their next slot. It is pure: it reads no clock.
// Every operation on one job costs O(log n).
type timeline struct{ heap []*timed }

// put sets a job's next slot to the first one that may be due after the instant. A
// slot that was popped is not named again.
func (l *timeline) put(t *timed, after time.Time) {
	t.since = after.UnixMicro()
	after = after.Add(-t.job.jitter())
	if t.last != never && after.Unix() < t.last {
		after = time.Unix(t.last, 0)
	}
	l.set(t, slotSeconds(t.job.NextSlot(after)))
}

// remove takes a job off the timeline.
func (l *timeline) remove(t *timed) { l.set(t, never) }

// pop answers the earliest slot that is due by until, and moves its job on.
func (l *timeline) pop(until time.Time) (t *timed, slot time.Time, ok bool) {
	if len(l.heap) == 0 || l.heap[0].next > until.Unix() {
		return nil, time.Time{}, false
	}
	t = l.heap[0]
	slot = time.Unix(t.next, 0).UTC()
	t.last = t.next
	l.set(t, slotSeconds(t.job.NextSlot(slot)))
	return t, slot, true
}

// first is the earliest slot to come, or the zero time.
func (l *timeline) first() time.Time {
	if len(l.heap) == 0 {
		return time.Time{}
	}
	return time.Unix(l.heap[0].next, 0).UTC()
}

func (l *timeline) set(t *timed, next int64) {
	was := t.at
	t.next = next
	switch {
	case next == never && was >= 0:
		end := len(l.heap) - 1
		l.swap(was, end)
		l.heap[end] = nil
		l.heap = l.heap[:end]
		t.at = -1
		if was < end {
			l.fix(was)
		}
	case next == never:
	case was < 0:
		t.at = len(l.heap)
		l.heap = append(l.heap, t)
		l.up(t.at)
	default:
		l.fix(was)
	}
}

func (l *timeline) swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].at, l.heap[j].at = i, j
}

func (l *timeline) fix(i int) {
	if !l.down(i) {
		l.up(i)
	}
}

func (l *timeline) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if l.heap[i].next >= l.heap[parent].next {
			return
		}
		l.swap(i, parent)
		i = parent
	}
}

func (l *timeline) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(l.heap) {
			return moved
		}
		if right := child + 1; right < len(l.heap) && l.heap[right].next < l.heap[child].next {
			child = right
		}
		if l.heap[child].next >= l.heap[i].next {
			return moved
		}
		l.swap(i, child)
		i, moved = child, true
	}
}
