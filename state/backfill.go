package state

import (
	"fmt"
	"strings"
	"time"
)

// BackfillID names a backfill inside its job: the time of its making and a nonce
// (20261130T020000Z-5f3a9c01).
type BackfillID string

// NewBackfillID is the id of a backfill that is made at now; nonce tells it from
// others of the same second.
func NewBackfillID(now time.Time, nonce uint32) BackfillID {
	return BackfillID(fmt.Sprintf("%s-%08x", now.UTC().Format(slotLayout), nonce))
}

// Valid tells whether it has the form of NewBackfillID.
func (id BackfillID) Valid() bool {
	begin, nonce, _ := strings.Cut(string(id), "-")
	if _, ok := RunID(begin).Slot(); !ok || len(nonce) != 8 {
		return false
	}
	return strings.Trim(nonce, "0123456789abcdef") == ""
}

// Run is the id of the backfill's run of a slot. There is one for each slot, whoever
// makes it, and however often.
func (id BackfillID) Run(slot time.Time) RunID {
	begin, nonce, _ := strings.Cut(string(id), "-")
	return RunID(begin + "-backfill-" + nonce + "-" + slot.UTC().Format(slotLayout))
}

// Backfill is the backfill that a run belongs to, and its slot; ok is false for
// all other runs.
func (id RunID) Backfill() (of BackfillID, slot time.Time, ok bool) {
	parts := strings.Split(string(id), "-")
	if len(parts) != 4 || parts[1] != "backfill" {
		return "", time.Time{}, false
	}
	of = BackfillID(parts[0] + "-" + parts[2])
	slot, isSlot := RunID(parts[3]).Slot()
	return of, slot, isSlot && of.Valid()
}

// Nominal is the slot that a run is for: its own, or a backfill's; ok is false for
// runs that are for none.
func (id RunID) Nominal() (slot time.Time, ok bool) {
	if _, slot, ok = id.Backfill(); ok {
		return slot, true
	}
	return id.Slot()
}

// Backfill is a set of past slots of a job, each of which gets a run of its own kind.
// Which slots these are is settled when it is made, and stored beside it.
type Backfill struct {
	Job JobID
	ID  BackfillID
	// From and To are the window [From, To).
	From, To time.Time
	// All takes all slots of it, not only those that are missing.
	All bool
	// Newest takes the newest slot first.
	Newest bool
	// Concurrency is how many runs may be under way at a time, from 1.
	Concurrency int
	// OverrideOverlap starts them beside live runs of the job.
	OverrideOverlap bool
	Actor, Reason   string
	Created         time.Time
	// JobUID tells the job from a later one of the same name.
	JobUID string

	Total int
	// Next is how many slots, in order, have been given a run; Open are those of them
	// that are not known to have ended.
	Next int
	Open []int
	// Succeeded, Failed and Cancelled count those that ended. Slots that were never
	// given a run, since the backfill was cancelled, are among the last.
	Succeeded, Failed, Cancelled int
	// Ended is when all was over; zero: it is not.
	Ended time.Time
	// CancelTime is when its end was asked for, with who and why; zero: it was not.
	CancelTime                time.Time
	CancelActor, CancelReason string
	// CancelRunning ends the runs that are under way too.
	CancelRunning bool
	// Revision is the store's ModRevision.
	Revision int64
}

// SameWish tells whether both are one backfill, which may have moved on.
func (b *Backfill) SameWish(other *Backfill) bool {
	return b.Job == other.Job && b.ID == other.ID && b.JobUID == other.JobUID && b.Total == other.Total &&
		b.Actor == other.Actor && b.Reason == other.Reason && b.Created.UnixMicro() == other.Created.UnixMicro()
}

// Active tells whether runs are under way or to come.
func (b *Backfill) Active() bool { return b.Ended.IsZero() }

// Remaining is how many slots have no run yet.
func (b *Backfill) Remaining() int { return b.Total - b.Next }

// Count takes in how a run ended that was open.
func (b *Backfill) Count(to RunState) {
	switch to { //nolint:exhaustive // all others are failures
	case StateSucceeded:
		b.Succeeded++
	case StateCancelled:
		b.Cancelled++
	default:
		b.Failed++
	}
}

// Cancel asks for its end, and with running for that of its runs that are under way,
// which may also be asked for later. It is false where that was done before, or it has
// ended.
func (b *Backfill) Cancel(now time.Time, actor, reason string, running bool) bool {
	switch {
	case !b.Active():
		return false
	case b.CancelTime.IsZero():
		b.CancelTime, b.CancelActor, b.CancelReason = now, actor, reason
	case b.CancelRunning || !running:
		return false
	}
	b.CancelRunning = running
	return true
}
