package planner

import (
	"slices"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// entryKey tells the open entries of a term apart.
type entryKey struct {
	job   *timed
	due   int64       // microseconds: of a slot its instant, whatever its jitter
	run   state.RunID // empty for a slot's run
	shard int
}

// openKey is an entryKey by which open entries are kept.
type openKey struct {
	job   uint64 // timed.number
	due   int64
	run   state.RunID
	shard int
}

func (k *entryKey) open() openKey { return openKey{k.job.number, k.due, k.run, k.shard} }

// entry is a shard of a run that is to be started and is not known to have a
// record of its own yet.
type entry struct {
	entryKey
	version *Job // as planned
	at      int  // its place in job.open
	// start is when it is due, microseconds: due, and its jitter.
	start int64
	// bar is why the slot does not run; its verdict is due when its start would be.
	bar *Bar
	// early entries are due so late, since their job has jitter, that it is not time to
	// plan them yet.
	early bool
	// held is set where the entry holds the watermark at its slot; see holdFor.
	held bool
	// behind is an entry that must be done before this one is planned, and ahead
	// the one that waits for this.
	behind, ahead *entry

	// split entries are of a shard, of shards, of a run that is split. The entry of
	// the first stands for the run until begun is set: the run is known to have its
	// header. Until then those of the others are helpers: they decide nothing.
	split, begun bool
	shards       int
	// node is the only one that may have it; empty: any.
	node string

	// of a further attempt
	waiting *state.Live
	// of a run that was asked for
	pending *state.Pending
	// waits is set where that waits for other runs.
	waits bool
	// line is the one in which it waits for room at a limit. let is set once it was let go
	// from a line, which is from until it is heard of, and started when it is known to
	// have started.
	line, from   *line
	let, started bool
	// of a slot in the closed part of the timeline: the revision at which that
	// was closed, which lets the slot start all the same.
	closed int64

	// holders are the sessions that have it, in the order in which they got it.
	holders []*session
	// verdict is what it gets in place of a start, with its reason; StateNone: it
	// may start. relies is the revision of the job for which alone that holds,
	// state.NoJob for a job that is not there, 0 where it holds for all. deciding is
	// set while a worker stores it.
	verdict  state.RunState
	reason   string
	detail   string
	relies   int64
	deciding bool
	// suspended is set, beside deciding, while it is not known when the job was
	// deleted.
	suspended bool
	// busy is set when an executor could not claim it; last is why the newest one
	// could not: BUSY or REFUSED.
	busy bool
	last workerv1.Progress_Step
	// lack is the resource of which too little was free, where that was why.
	lack string
	// look is when check looks at it, in microseconds; 0: not until lookAt is called.
	look int64
	done bool
}

// slot tells whether the entry is a slot's first attempt: only those hold the
// watermark.
func (e *entry) slot() bool { return e.run == "" && e.waiting == nil && e.shard <= 0 && !e.begun }

// lists tells whether the entry is of a first step that lists its run's shards.
func (e *entry) lists() bool { return e.shard == state.ListShard }

// helper tells whether the entry is of a shard of a run that may not have begun, beside
// the first.
func (e *entry) helper() bool { return e.shard > 0 && e.waiting == nil && !e.begun }

// asked is the revision of what an entry that is no slot was made from: the wish for
// the run, or the record that waits.
func (e *entry) asked() int64 {
	switch {
	case e.waiting != nil:
		return e.waiting.Token
	case e.pending != nil:
		return e.pending.Revision
	}
	return 0
}

// holdsAt is when the entry's slot is due, before which it holds the watermark.
func (e *entry) holdsAt() int64 {
	if e.held {
		return e.due
	}
	return e.start
}

// backfill tells whether the entry is of a backfill's run. Those have no start
// deadline, and start also while their job is paused.
func (e *entry) backfill() bool { return e.run != "" && e.run.Kind() == state.KindBackfill }

// lineKey is the line of one of the limits of the entry's job, as the run counts there.
func (e *entry) lineKey(i int) lineKey {
	return e.version.lineKey(&e.version.Limits()[i], e.limitKey())
}

// limitKey is the run's key for limits that are per key, as long as it has no record.
func (e *entry) limitKey() string {
	if e.pending == nil {
		return ""
	}
	return e.pending.LimitKey
}

// attempt is the number of the attempt that the entry is for.
func (e *entry) attempt() int {
	if e.waiting != nil {
		return e.waiting.Attempt + 1
	}
	return 1
}

// failedOn is the node of a run's last attempt, if that failed of itself.
func (e *entry) failedOn() string {
	if e.waiting == nil || len(e.waiting.Attempts) == 0 {
		return ""
	}
	last := &e.waiting.Attempts[len(e.waiting.Attempts)-1]
	if last.Snoozed || last.State != state.StateFailed && last.State != state.StateTimedOut {
		return ""
	}
	return last.Node
}

func (e *entry) runID() state.RunID {
	if e.run != "" {
		return e.run
	}
	return state.SlotRunID(micros(e.due))
}

func (e *entry) heldBy(s *session) bool {
	return slices.Contains(e.holders, s)
}

func (e *entry) drop(s *session) {
	for i, h := range e.holders {
		if h == s {
			e.holders = append(e.holders[:i], e.holders[i+1:]...)
			return
		}
	}
}
