package planner

import (
	"slices"
	"time"

	"github.com/leaderd/leaderd/internal/fair"
	"github.com/leaderd/leaderd/state"
)

// Runs that wait since a limit is reached stand in a line, that of the limit, from which
// the leader lets them go by class and weight: one for each run that ends there, or for
// each token of a rate. Only those it lets go are planned onto an executor, so that no
// other one asks for the room. All runs of a job that wait stand in its line, and go in
// order of due. Of a job whose policy is to queue only the first one does, since the store
// lets no other pass it.
//
// Nothing rests on it: the claim tells whether there is room. What the leader does not
// hear of it finds out by letting one go now and then, and one more for each that found
// room.

const (
	// leastProbe and mostProbe bound how often one is let go of each line without news:
	// a hundred of all together in a second. A new leader is not told of the ends of runs
	// that were planned by the one before.
	leastProbe = time.Second
	mostProbe  = 30 * time.Second
	// leastTurn is the least time between two turns of the loop for the sake of tokens.
	leastTurn = time.Millisecond
)

// lines are the limits at which runs wait.
type lines struct {
	of map[lineKey]*line
	// all are the same, in the order in which they came to be.
	all    []*line
	probed time.Time
	// roused are those from which some may be let go at the end of the turn, when all
	// that came together has its place.
	roused []*line
}

// lineKey tells lines apart: jobs may mean places by a name, and others tokens.
type lineKey struct {
	id    state.LimitID
	rated bool
}

// lineKey is that of one of the job's limits, for runs with a key.
func (j *Job) lineKey(l *state.Limit, key string) lineKey {
	return lineKey{l.ID(j.ID.Namespace, key), l.Max == 0}
}

// line is what waits at a limit.
type line struct {
	lineKey
	limit   state.Limit               // as the job that came last has it
	waiting fair.Queue[uint64, stand] // one of its job for each run
	// credit is how many may be let go since runs have ended.
	credit int
	// probing is set while it is not known whether there is room: then one is out at a
	// time.
	probing bool
	out     int // how many were let go and not heard of
	roused  bool
	// next is when a rate has its next token.
	next time.Time
	// timer is the newest of its items among the term's tokens.
	timer int64
}

// stand is what stands in a line: a job, in the class that it had when it came.
type stand struct {
	job   *timed
	class uint8
}

// flow is how a job's runs are taken when they wait.
func (j *timed) flow() fair.Flow[uint64] { return stand{j, j.job.Class}.flow() }

func (s stand) flow() fair.Flow[uint64] {
	return fair.Flow[uint64]{Key: s.job.number, Class: int(s.class), Weight: int(s.job.job.Weight)}
}

// waitsInLine tells whether an entry that could be placed has to wait at a limit, and
// sees to its place in the line.
func (t *term) waitsInLine(e *entry) bool {
	if len(e.version.Limits()) == 0 || e.let {
		return false
	}
	if !e.waits {
		// A run that was asked for, and would only be told to wait, waits at once.
		if e.pending == nil || e.backfill() || e.start > t.now().UnixMicro() || !t.crowded(e) {
			return false
		}
		t.asked--
		t.enqueue(e)
	}
	if e.line == nil && e.mayStart() {
		t.lineUp(e, int(e.job.reached), time.Time{})
	}
	return true
}

// crowded tells whether others wait at one of an entry's limits, or of its own job.
func (t *term) crowded(e *entry) bool {
	if len(e.job.queue) > 0 {
		return true
	}
	for i := range e.version.Limits() {
		if ln := t.lines.of[e.lineKey(i)]; ln != nil && ln.waiting.Len() > 0 {
			return true
		}
	}
	return false
}

// lineUp has an entry wait at one of its job's limits. next is from when on there may be
// room, if that is known.
func (t *term) lineUp(e *entry, limit int, next time.Time) {
	v := e.version
	l := v.Limits()[min(limit, len(v.Limits())-1)]
	ln := t.line(l, v.lineKey(&l, e.limitKey()))
	if l != ln.limit { // there may be more room by it, or a token sooner
		ln.probing = true
		if soon := t.now().Add(l.Rate.Interval()); ln.rated && ln.next.After(soon) {
			ln.next = soon
		}
	}
	if ln.limit = l; !next.IsZero() {
		ln.next = next
	}
	e.line = ln
	ln.waiting.Push(e.job.flow(), stand{e.job, e.job.job.Class})
	t.rouse(ln)
}

// line finds a limit's line, or begins it.
func (t *term) line(l state.Limit, key lineKey) *line {
	ln := t.lines.of[key]
	if ln == nil {
		if t.lines.of == nil {
			t.lines.of = make(map[lineKey]*line)
		}
		ln = &line{lineKey: key, limit: l, probing: true}
		t.lines.of[key] = ln
		t.lines.all = append(t.lines.all, ln)
	}
	return ln
}

// leaveLine takes an entry out of its line: what it waited for may be another limit now.
func (t *term) leaveLine(e *entry) {
	e.line = nil // what stands there is void
	if from := e.from; e.let && from != nil {
		from.out--
		from.credit++
		t.rouse(from)
	}
	e.let, e.from = false, nil
}

// rouse has what may be let go from a line be let go at the end of the turn.
func (t *term) rouse(ln *line) {
	if !ln.roused {
		ln.roused = true
		t.lines.roused = append(t.lines.roused, ln)
	}
}

// letGo lets those go from a line for which there may be room.
func (t *term) letGo(ln *line) {
	now := t.now()
	for ln.waiting.Len() > 0 {
		switch {
		case ln.rated && now.Before(ln.next):
			if at := ln.next.UnixMicro(); ln.timer != at {
				ln.timer = at
				t.tokens.Push(at, ln)
			}
			return
		case ln.rated:
		case ln.credit > 0:
		case ln.probing && ln.out == 0:
		default:
			return
		}
		e := ln.pop()
		if e == nil {
			return
		}
		switch {
		case ln.rated:
			ln.next = spent(&ln.limit.Rate, ln.next, now)
		case ln.credit > 0:
			ln.credit--
		}
		e.let, e.from = true, ln
		ln.out++
		t.place(e)
	}
}

// spent is from when on there is another token where one was there from next on, and is
// taken now. What a bucket has gathered since the turn before is not lost.
func spent(r *state.Rate, next, now time.Time) time.Time {
	if next.IsZero() { // nobody knows
		return now.Add(r.Interval())
	}
	gathers := min(time.Duration(max(1, r.Burst)-1)*r.Interval(), tick)
	return later(next, now.Add(-gathers)).Add(r.Interval())
}

// untilToken is how long it is until a line has its next token; ok is false where that is
// no sooner than the loop's next turn.
func (t *term) untilToken() (wait time.Duration, ok bool) {
	if t.tokens.Len() == 0 {
		return 0, false
	}
	wait = micros(t.tokens.Top().Key).Sub(t.now())
	return max(wait, leastTurn), wait < tick
}

// pop takes the entry whose turn it is; nil: there is none.
func (ln *line) pop() *entry {
	for {
		s, ok := ln.waiting.Pop(nil)
		if !ok {
			return nil
		}
		if s.class == s.job.job.Class { // else all its runs have come again
			for _, e := range s.job.queue {
				if e.line == ln && !e.done && !e.deciding && !e.version.Paused {
					e.line = nil
					return e
				}
			}
		}
		ln.waiting.Return(s.flow()) // it was for one that has left
	}
}

// mayStart tells whether the store lets a run that waits start, as far as earlier runs of
// its job that wait are concerned.
func (e *entry) mayStart() bool { return e == e.job.queue[0] || !e.version.ordered() }

// ordered tells whether runs of the job that wait start one after another.
func (j *Job) ordered() bool { return j.wants == nil || len(j.wants.limits) == 0 || j.wants.ordered }

// freed notes that a run of the job, with a key, has ended: there may be room at its
// limits. Where the key is not known those that are per key hear of it by what is let go
// now and then.
func (t *term) freed(j *Job, key string) {
	for i := range j.Limits() {
		l := &j.Limits()[i]
		if ln := t.lines.of[j.lineKey(l, key)]; ln != nil && l.Max > 0 {
			ln.credit = min(ln.credit+1, l.Max)
			t.rouse(ln)
		}
	}
}

// heldAt takes in that the claim of an entry that waits found one of its job's limits
// reached, from 1; 0: it waits for other runs of its job.
func (t *term) heldAt(e *entry, s *session, limit int, next time.Time) {
	if !e.waits || limit < 0 || limit > len(e.version.Limits()) {
		return
	}
	if limit == 0 {
		if from := e.from; e.let && from != nil { // it did not take the room that there may be
			e.from = nil
			from.out--
			from.credit++
			t.rouse(from)
		}
		return
	}
	e.drop(s)
	t.heldBack(e)
	e.job.reached = uint8(limit - 1)
	if e.line == nil && e.mayStart() {
		t.lineUp(e, limit-1, next)
	}
}

// heldBack notes that an entry that was let go has found no room: there is none for others,
// and its job has had no turn.
func (t *term) heldBack(e *entry) {
	if from := e.from; e.let && from != nil {
		from.out--
		from.probing, from.credit = false, 0
		from.waiting.Return(e.job.flow())
	}
	e.let, e.from = false, nil
}

// reachedBy notes which limit a run was found to have to wait for, of which the news is
// on its way.
func (t *term) reachedBy(e *entry, limit int, next time.Time) {
	if limit <= 0 || limit > len(e.version.Limits()) {
		return
	}
	e.job.reached = uint8(limit - 1)
	if l := e.version.Limits()[limit-1]; !next.IsZero() {
		t.line(l, e.lineKey(limit-1)).next = next
	}
}

// gone takes in that an entry that was let go is done. If it did not take the room, there
// is some for another.
func (t *term) gone(e *entry) {
	ln := e.from
	if !e.let || ln == nil {
		return
	}
	e.let, e.from = false, nil
	ln.out--
	if !e.started && !ln.rated {
		ln.credit++
	}
	t.rouse(ln)
}

// tendLines lets go what is due at a rate, and now and then one of each line.
func (t *term) tendLines(now time.Time) {
	for t.tokens.Len() > 0 && t.tokens.Top().Key <= now.UnixMicro() {
		if due := t.tokens.Pop(); due.Val.timer == due.Key {
			due.Val.timer = 0
			t.rouse(due.Val)
		}
	}
	if every := min(max(leastProbe, time.Duration(len(t.lines.all))*10*time.Millisecond), mostProbe); now.Sub(t.lines.probed).Abs() < every {
		t.letRousedGo()
		return
	}
	t.lines.probed = now
	t.lines.all = slices.DeleteFunc(t.lines.all, func(ln *line) bool {
		if ln.waiting.Len() > 0 || ln.out > 0 {
			ln.probing = true
			t.rouse(ln)
			return false
		}
		delete(t.lines.of, ln.lineKey)
		return true
	})
	t.letRousedGo()
}

// letRousedGo lets go from the lines of which there was news.
func (t *term) letRousedGo() {
	for len(t.lines.roused) > 0 {
		ln := t.lines.roused[0]
		t.lines.roused = t.lines.roused[1:]
		ln.roused = false
		t.letGo(ln)
	}
	t.lines.roused = nil
}
