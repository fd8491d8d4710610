package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// sweepKeys is how many verdicts one step of a sweep looks at, and writes at most:
	// with the compares of the term, of the segment and of the gate below
	// kv.MaxTxnOps.
	sweepKeys = 100
	// plainRuns is how many of a job's newest verdicts are not packed, and packRuns
	// how many are packed at a time at least: a segment that has room is written
	// anew for them.
	plainRuns = 16
	packRuns  = 16
	// segmentRuns and segmentBytes bound a segment. A job that keeps few runs has
	// shorter ones: what is packed is removed by segments.
	segmentRuns  = 1024
	segmentBytes = 64 << 10
)

// Floor answers what retention has removed of a job's history. A value that cannot
// be read is logged, and answered as nothing.
func (s *Store) Floor(ctx context.Context, id state.JobID) (state.Floor, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.swept(id), "", kv.RangeOptions{})
	})
	if err != nil {
		return state.Floor{}, fmt.Errorf("read what was removed of %s: %w", id, err)
	}
	return s.decodeFloor(res.KVs), nil
}

func (s *Store) decodeFloor(found []kv.KeyValue) state.Floor {
	if len(found) == 0 {
		return state.Floor{}
	}
	var p statev1.Swept
	if err := proto.Unmarshal(found[0].Value, &p); err != nil {
		s.log.Error("unreadable note of what was removed is written anew", "key", found[0].Key, "err", err)
	}
	return state.Floor{Instant: codec.Time(p.GetFloor()), Removed: p.GetRemoved(), Revision: found[0].ModRevision}
}

// sweep is one step's view of a job.
type sweep struct {
	*state.Sweep

	saved    map[state.RunID]bool  // runs that have checkpoints
	dead     map[state.RunID]int64 // dead letters of runs of the page that were given a payload
	floor    state.Floor
	gate     holder
	busy     map[state.BackfillID]bool // backfills that are under way
	segments []segment
	plain    []kv.KeyValue // a page of history/…, the oldest first
	after    int           // how many plain records lie behind the page
	more     bool
	total    int // verdicts of the job, packed or not
	idle     bool
}

// SweepJob carries out one step of a job's retention while the term stands: it
// removes verdicts that are beyond its limits, or packs older ones. Besides what sw
// says it keeps the verdicts of backfills that are under way, and that of the run
// which the job's gate names, unless the step removes the gate's dead record with it.
// What is removed is noted in the job's Floor, in the same transaction. Errors are
// those of package kv, and state.ErrTermLost; after any of them the same step may be
// made again.
func (s *Store) SweepJob(ctx context.Context, term state.Term, sw state.Sweep) (state.Swept, error) {
	done, err := s.sweepJob(ctx, term, &sw)
	if errors.Is(err, errMoved) {
		// The job's records have changed since they were looked at, or an earlier try of
		// this was carried out.
		return state.Swept{Kept: done.Kept, Oldest: done.Oldest}, nil
	}
	if err != nil {
		return done, fmt.Errorf("sweep %s: %w", sw.Job, err)
	}
	return done, nil
}

func (s *Store) sweepJob(ctx context.Context, term state.Term, of *state.Sweep) (state.Swept, error) {
	if term.Number == 0 || of.Closed == 0 { // which would compare as "is not there"
		return state.Swept{}, state.ErrTermLost
	}
	sw, err := s.lookToSweep(ctx, of)
	if err != nil {
		return state.Swept{}, err
	}
	done := state.Swept{Kept: sw.total, Oldest: sw.oldest()}
	if sw.idle {
		return done, nil
	}
	if t := s.dropSegments(sw); t.removed > 0 {
		done.Removed, done.More, done.After, done.Passed = t.removed, true, of.After, of.Passed
		return done, s.commitSweep(ctx, term, sw, t)
	}
	remove, pack := s.sortOut(sw)
	switch {
	case len(remove) > 0:
		t := s.dropPlain(sw, remove)
		// The records that stay of the page are looked at once more.
		done.Removed, done.More, done.After, done.Passed = t.removed, true, of.After, of.Passed
		return done, s.commitSweep(ctx, term, sw, t)
	case len(pack) > 0:
		t, err := s.pack(ctx, sw, pack)
		if err != nil {
			return done, err
		}
		if t.packed > 0 {
			done.Packed, done.More, done.After, done.Passed = t.packed, true, of.After, of.Passed
			return done, s.commitSweep(ctx, term, sw, t)
		}
	}
	if done.More = sw.more; sw.more {
		last := sw.plain[len(sw.plain)-1]
		run, err := runPart(last.Key[len(s.keys.historyOf(of.Job)):])
		done.After, done.Passed, done.More = run, of.Passed+len(sw.plain), err == nil
	}
	return done, nil
}

// lookToSweep reads what a step needs, which is little where there is nothing to do.
func (s *Store) lookToSweep(ctx context.Context, of *state.Sweep) (*sweep, error) {
	sw := &sweep{Sweep: of}
	from := s.keys.historyOf(of.Job)
	if of.After != "" {
		from = s.keys.historyRun(of.Job, of.After) + "\x00"
	}
	history := func(limit int64) (kv.RangeResult, error) {
		return s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, end(s.keys.historyOf(of.Job)), kv.RangeOptions{Limit: limit})
		})
	}
	first, err := history(1)
	if err != nil {
		return nil, err
	}
	if sw.segments, err = s.segmentsOf(ctx, of.Job, ""); err != nil {
		return nil, err
	}
	sw.total = of.Passed + int(first.Count)
	for i := range sw.segments {
		sw.total += sw.segments[i].runs
	}
	// Most jobs have nothing to do most of the time: then this is all that is read.
	sw.plain = first.KVs
	sw.idle = first.Count < plainRuns+packRuns && !sw.over()
	if sw.idle && len(first.KVs) > 0 {
		run, err := runPart(first.KVs[0].Key[len(s.keys.historyOf(of.Job)):])
		at, ok := runTime(run)
		sw.idle = err == nil && ok && !at.Before(of.Before)
	}
	if sw.idle {
		return sw, nil
	}
	page, err := history(sweepKeys)
	if err != nil {
		return nil, err
	}
	sw.plain, sw.more, sw.after = page.KVs, page.More, int(page.Count)-len(page.KVs)
	view := kv.Txn{Then: []kv.Op{
		kv.Get(s.keys.activeGate(of.Job)), kv.GetRange(s.keys.backfillsOf(of.Job), end(s.keys.backfillsOf(of.Job)), 0), kv.Get(s.keys.swept(of.Job)),
	}}
	var res kv.TxnResult
	if err := s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, view)
		return err
	}); err != nil {
		return nil, err
	}
	if sw.saved, err = s.savedRuns(ctx, of.Job); err != nil {
		return nil, err
	}
	if sw.dead, err = s.deadRuns(ctx, of.Job, sw.plain); err != nil {
		return nil, err
	}
	sw.gate = s.gateOf(of.Job, res.Results[0])
	sw.busy = make(map[state.BackfillID]bool)
	for _, found := range res.Results[1].KVs {
		if b, err := s.DecodeBackfill(found); err != nil || b.Active() {
			sw.busy[b.ID] = true
		}
	}
	sw.floor = s.decodeFloor(res.Results[2].KVs)
	return sw, nil
}

// over tells whether anything is to be removed from the segments, or by number.
func (sw *sweep) over() bool {
	if len(sw.segments) == 0 {
		return sw.total > sw.MaxRuns
	}
	g := &sw.segments[0]
	return sw.total-g.runs >= sw.MaxRuns || g.newest.Before(sw.Before)
}

// oldest is the time of the oldest run of the view.
func (sw *sweep) oldest() time.Time {
	var oldest time.Time
	if len(sw.segments) > 0 {
		oldest, _ = runTime(sw.segments[0].first)
	}
	if len(sw.plain) > 0 && sw.After == "" {
		key := sw.plain[0].Key
		run, err := runPart(key[strings.LastIndexByte(key, '/')+1:])
		if at, ok := runTime(run); err == nil && ok && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return oldest
}

// step is a transaction of a sweep.
type step struct {
	txn             kv.Txn
	removed, packed int
	reach           time.Time // up to which records are removed
	gate            bool      // the gate's record goes too
}

// remove adds a key that goes.
func (t *step) remove(key string, revision int64) {
	t.txn.If = append(t.txn.If, unchanged(key, revision))
	t.txn.Then = append(t.txn.Then, kv.Delete(key))
}

// dropSegments removes segments: those whose verdicts are all too old, and the
// oldest that hold nothing but what is beyond the number.
func (s *Store) dropSegments(sw *sweep) *step {
	t := &step{}
	left := sw.total
	oldest := true
	for i := range sw.segments {
		g := &sw.segments[i]
		over := oldest && left-g.runs >= sw.MaxRuns
		if !over && !g.newest.Before(sw.Before) || g.reach.After(sw.Bound) || len(t.txn.Then) == sweepKeys {
			oldest = false
			continue
		}
		t.remove(g.key, g.revision)
		t.removed += g.runs
		t.reach = later(t.reach, g.reach)
		left -= g.runs
	}
	return t
}

// candidate is a plain verdict that may be removed or packed.
type candidate struct {
	from   kv.KeyValue
	run    state.RunID
	record *statev1.Record // nil: it cannot be read
	reach  time.Time
}

// sortOut tells which verdicts of the page go, and which are packed.
func (s *Store) sortOut(sw *sweep) (remove, pack []candidate) {
	excess := 0
	if len(sw.segments) == 0 { // or what is oldest is in these
		excess = sw.total - sw.MaxRuns
	}
	prefix := s.keys.historyOf(sw.Job)
	for i, found := range sw.plain {
		run, err := runPart(found.Key[len(prefix):])
		if err != nil {
			s.log.Error("key of no run is passed over", "key", found.Key, "err", err)
			continue
		}
		c := candidate{from: found, run: run}
		at, ok := runTime(run)
		if !ok || at.After(sw.Bound) || found.ModRevision >= sw.Closed {
			continue
		}
		c.reach = at
		record := &statev1.Record{}
		written := at
		if err := proto.Unmarshal(found.Value, record); err == nil {
			c.record = record
			if n := record.GetRecorded(); n != 0 {
				written = codec.Time(n)
			}
			if n := record.GetUntil(); n != 0 {
				c.reach = later(c.reach, codec.Time(n))
			}
		}
		backfill, _, _ := run.Backfill()
		if !written.Before(sw.Young) || c.reach.After(sw.Bound) || sw.busy[backfill] {
			continue
		}
		old := written.Before(sw.Before)
		switch {
		case run == sw.gate.run:
			// For one run of each job: by age alone, and with the gate's record.
			if old {
				remove = append(remove, c)
			}
		case old || len(remove) < excess:
			remove = append(remove, c)
		case c.record != nil && len(sw.plain)-i+sw.after > plainRuns && !sw.saved[run] && !run.Kind().Given() && !record.GetResult() &&
			!awaitsHooks(record, written, sw.Young):
			// What a run was given and left goes with its record.
			pack = append(pack, c)
		}
	}
	if len(remove) > 0 || sw.Frugal || len(pack) < packRuns {
		return remove, nil
	}
	return nil, pack
}

// dropPlain removes verdicts of a page.
func (s *Store) dropPlain(sw *sweep, remove []candidate) *step {
	t := &step{}
	for i := range remove {
		c := &remove[i]
		if max(len(t.txn.Then), len(t.txn.If)) >= sweepKeys {
			break // what was beside the records went too
		}
		t.remove(c.from.Key, c.from.ModRevision)
		if sw.saved[c.run] {
			saved := s.keys.checkpointsOf(sw.Job, c.run)
			t.txn.Then = append(t.txn.Then, kv.DeleteRange(saved, end(saved)))
		}
		if c.run.Kind().Given() || c.record.GetResult() {
			t.txn.Then = append(t.txn.Then, kv.Delete(s.keys.result(sw.Job, c.run)))
			if letter := sw.dead[c.run]; letter != 0 { // which takes the payload with it
				t.txn.If = append(t.txn.If, unchanged(s.keys.deadRun(sw.Job, c.run), letter))
			} else {
				t.txn.Then = append(t.txn.Then, kv.Delete(s.keys.payload(sw.Job, c.run)))
			}
		}
		t.removed++
		t.reach = later(t.reach, c.reach)
		if c.run == sw.gate.run && sw.gate.token != 0 {
			t.remove(s.keys.activeGate(sw.Job), sw.gate.token)
			t.gate = true
		}
	}
	return t
}

// commitSweep carries a step out. One that finds something else than what was looked
// at does nothing: the next sweep looks anew.
func (s *Store) commitSweep(ctx context.Context, term state.Term, sw *sweep, t *step) error {
	t.txn.If = append(t.txn.If, termGuard(term))
	if t.removed > 0 && !sw.Frugal {
		key := s.keys.swept(sw.Job)
		floor := later(sw.floor.Instant, t.reach)
		value, err := proto.Marshal(&statev1.Swept{Floor: codec.Micros(floor), Removed: sw.floor.Removed + int64(t.removed)})
		if err != nil {
			return err
		}
		t.txn.If = append(t.txn.If, unchanged(key, sw.floor.Revision))
		t.txn.Then = append(t.txn.Then, kv.Put(key, value, 0))
	}
	t.txn.Else = []kv.Op{keyOnly(term.Key)}
	// Past group commit, where every claim of the job would meet it: none of them
	// relies on what is changed here.
	res, _, err := s.send(ctx, t.txn)
	if err != nil {
		return err
	}
	if !res.Succeeded {
		if err := over(term, res); err != nil {
			return err
		}
		return errMoved
	}
	if t.gate {
		s.holders.set(sw.Job, holder{})
	}
	return nil
}
