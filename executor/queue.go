package executor

import (
	"time"

	"github.com/leaderd/leaderd/executor/unclaimed"
	"github.com/leaderd/leaderd/internal/minheap"
	"github.com/leaderd/leaderd/state"
)

// key tells entries apart. The run's id is always the full one, so that one
// attempt has one key however the plan names it.
type key struct {
	job     state.JobID
	run     state.RunID
	shard   int32
	attempt int32
}

// plan is what the leader said of an entry, last.
type plan struct {
	spec         *spec
	run          state.RunID // as planned: empty for a slot's
	due          int64       // nanoseconds since 1970: as planned; a slot's instant
	start        int64       // when it is due: a slot's instant, and its jitter
	shards       int32
	allowOverlap bool
	backfill     bool // it waits for its job's gate, however long
	token        int64
	pending      int64
	closed       int64
	queued       bool // it waits for other runs
	origin       state.RunID
	limitKey     string       // see state.Pending
	chain        *state.Chain // nil: the run was not made after others
	split        bool         // it is a shard of a run that is split
	begun        bool         // which is known to have begun
	hedge        bool         // another executor has it too
}

// same tells whether a claim by p relies on the same things as one by q.
func (p *plan) same(q *plan) bool {
	return p.spec.revision == q.spec.revision && p.token == q.token && p.pending == q.pending &&
		p.closed == q.closed && p.begun == q.begun && p.allowOverlap == q.allowOverlap
}

// place is where an entry is.
type place uint8

const (
	nowhere  place = iota
	ahead          // in the desk's heap of that name
	later          // in the desk's heap of that name
	full           // in the desk's line of those that found no room
	behind         // in the list of those that wait for the answer to a claim of their job
	claiming       // the journal is asked for its claim
	claimed        // it is ours: it waits for its slot, is at work, or its end is being stored
	over           // decided, and remembered
)

// entry is an attempt that was planned onto this executor. The desk's mutex
// guards it.
type entry struct {
	key  key
	plan *plan // nil once it is over; it is replaced, and never changed

	place place
	// doubt is set after a claim whose outcome is unknown: it may be ours.
	doubt    bool
	busy     bool // the leader was told
	refused  bool // the leader was told since it planned it last
	refusals uint8
	// at is the entry's position in its heap: in ahead when it is due, in later
	// when it is to be claimed.
	at int64
	// until is when it has missed its start deadline.
	until int64
	// token is that of the claim, and run what came of it, in place claimed.
	token int64
	run   *run
	turn  uint64 // its newest in the line
	// parked is by whose ends it is claimed again, where that is in desk.parked.
	parked string
	// left is the run as it began here without a claim; nil: it has not.
	left *unclaimed.Run

	// of what is over
	ended ending
}

// expired tells whether an entry of the queue is not to be claimed any more.
func (e *entry) expired(now int64) bool {
	return !e.doubt && (e.plan.spec.revoked || now > e.until)
}

// valid tells whether an entry has the place and position of an item still.
func valid(it minheap.Item[*entry], in place) bool { return it.Val.place == in && it.Val.at == it.Key }

// fifo is a queue on a slice.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) { f.items = append(f.items, v) }

func (f *fifo[T]) first() T { return f.items[f.head] }

func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	f.head++
	if f.head >= 1024 && f.head*2 >= len(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	return v
}

// dues counts entries by when they are due, in steps of a quarter of a second.
type dues map[int64]int32

func dueStep(due int64) int64 { return due / int64(250*time.Millisecond) }

func (d dues) add(due int64) { d[dueStep(due)]++ }

func (d dues) remove(due int64) {
	step := dueStep(due)
	if d[step]--; d[step] <= 0 {
		delete(d, step)
	}
}

// within is how many entries are due until then.
func (d dues) within(then int64) int {
	n, last := 0, dueStep(then)
	for step, count := range d {
		if step <= last {
			n += int(count)
		}
	}
	return n
}
