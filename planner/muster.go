package planner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/state"
)

const (
	// musterEvery is how often the runs that are split are looked at without news of
	// them, and musterAgain the least time between two looks at one.
	musterEvery = 5 * time.Second
	musterAgain = 200 * time.Millisecond
)

// muster is what the leader knows of a run that is split and has its header, or whose
// first step is to list its shards. All that counts is in the store, and read from there: reports only tell when a look is worth
// it. The leader plans the shards that nobody has claimed, stops those that are to
// stop, and gives the run its verdict when all have ended. A successor finds the header,
// and does the same.
type muster struct {
	looking, again bool
	split          *state.Split // nil: not read yet
	// ended are the shards of which an executor told that they have.
	ended map[int]struct{}
	// orphaned is set once it is known that the job was not there when the header was
	// made, or was deleted since.
	orphaned bool
}

// nodeOf is the only node that may run a shard; empty: any.
func (m *muster) nodeOf(shard int) string {
	if m.split == nil {
		return ""
	}
	return m.split.Part(shard).Node
}

// spread is the order of nodes in which a job's shards are dealt out.
type spread struct {
	job   *Job
	names []string
	// rest are the others, where the job prefers some.
	rest []string
}

// placeShard plans an entry of a shard. The shards of a job are dealt out to its nodes
// in turn; where one has it already, the next gets it too.
func (t *term) placeShard(e *entry) {
	if e.node != "" {
		t.placeOn(e, e.node)
		return
	}
	if t.spread.job != e.version {
		key := jobKey(e.version.ID)
		t.spread = spread{job: e.version, names: t.table.Rank(nil, key, t.preferred(e.version), t.table.Len())}
		if !e.version.Preferred().All() {
			t.spread.rest = t.table.Rank(nil, key, e.version.Selector, t.table.Len())
		}
	}
	names, last := t.spread.names, ""
	if len(names) > 1 && len(e.holders) == 0 {
		last = e.failedOn() // perhaps it was the node's fault
	}
	for i := range names {
		if name := names[(e.shard+i)%len(names)]; name != last && t.placeOn(e, name) {
			return
		}
	}
	for _, name := range t.spread.rest {
		if name != last && t.placeOn(e, name) {
			return
		}
	}
	if last != "" {
		t.placeOn(e, last)
	}
}

// preferred is the selector of the executors that come first for a job: those that it
// prefers, where there is one, else all that may run it.
func (t *term) preferred(v *Job) placement.Selector {
	if !v.Preferred().All() && t.table.Any(v.Preferred()) {
		return v.Preferred()
	}
	return v.Selector
}

// addHelpers opens the entries of the other shards of a slot's run, so that they start
// punctually whether there is a leader by then or not. Their claims make the run's header
// as well.
func (t *term) addHelpers(first *entry, now time.Time) {
	if first.bar != nil {
		return
	}
	split := state.Split{Shards: *first.version.Shards}
	if split.Broadcast {
		split.Nodes = t.matching(first.version)
	}
	first.shards = split.Total()
	for i := 1; i < first.shards; i++ {
		t.add(&entry{
			entryKey: entryKey{job: first.job, due: first.due, shard: i}, version: first.version, start: first.start,
			split: true, shards: first.shards, node: split.Part(i).Node,
		}, now)
	}
}

// matching are the executors that a job's selector matches, by name, as the store would
// have them: a guess.
func (t *term) matching(v *Job) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if n := t.nodes[name]; n.Executor && v.Selector.Matches(n.Labels, n.Resources) && len(names) < state.MaxShards {
			names = append(names, name)
		}
	}
	return names
}

// musterOnce looks at the run of an entry unless it is looked after.
func (t *term) musterOnce(e *entry) {
	if (e.split || e.lists()) && t.musters[cancelKey{e.version.ID, e.runID()}] == nil {
		t.muster(e.version.ID, e.runID())
	}
}

// shardFinished takes in that a shard has ended, or waits.
func (t *term) shardFinished(job *timed, run state.RunID, shard int, to state.RunState) {
	k := cancelKey{job.job.ID, run}
	m := t.musters[k]
	switch {
	case shard == state.ListShard, m == nil && (job.job.Shards != nil || shard > 0):
		t.muster(k.job, k.run)
	case m == nil || to == state.StateWaiting:
	default:
		if m.ended == nil {
			m.ended = make(map[int]struct{})
		}
		m.ended[shard] = struct{}{}
		if m.split == nil || to != state.StateSucceeded || len(m.ended) >= m.split.Left() {
			t.muster(k.job, k.run)
		}
	}
}

// musterAll looks at all of them now and then.
func (t *term) musterAll(now time.Time) {
	if len(t.musters) == 0 || now.Sub(t.mustered).Abs() < musterEvery {
		return
	}
	t.mustered = now
	for k := range t.musters {
		t.muster(k.job, k.run)
	}
}

// muster looks at a run that is split once, and once more for what is asked meanwhile.
func (t *term) muster(id state.JobID, run state.RunID) {
	k := cancelKey{id, run}
	m := t.musters[k]
	if m == nil {
		m = &muster{}
		t.musters[k] = m
	}
	if m.looking {
		m.again = true
		return
	}
	m.looking, m.again = true, false
	t.task(func(ctx context.Context) func() {
		r, err := t.store.RunShards(ctx, id, run)
		return func() {
			if err != nil {
				t.mustErr(k, m, err)
				return
			}
			t.musterRun(k, m, &r)
		}
	})
}

// mustErr looks again after an error; a run that cannot be read is left alone.
func (t *term) mustErr(k cancelKey, m *muster, err error) {
	if errors.Is(err, state.ErrUnreadable) {
		t.cfg.Logger.Error("run that is split cannot be read and is left alone", "job", k.job, "run", k.run, "err", err)
		delete(t.musters, k)
		return
	}
	t.checkErr("muster a run of "+k.job.String(), err)
	m.again = true
	t.restMuster(k, m, time.Second)
}

// restMuster leaves a run alone for a while.
func (t *term) restMuster(k cancelKey, m *muster, d time.Duration) {
	t.later(d, func() {
		if m.looking = false; m.again && t.musters[k] == m {
			t.muster(k.job, k.run)
		}
	})
}

// musterRun does what a look at a run tells.
func (t *term) musterRun(k cancelKey, m *muster, r *state.RunShards) {
	if r.Listing {
		t.restMuster(k, m, musterAgain) // looked at again and again, in case that no report comes
		return
	}
	if r.Header == nil {
		delete(t.musters, k)
		t.dismiss(k, r.Over)
		return
	}
	now := t.now()
	m.split = r.Header.Split
	job := t.find(k.job, now)
	if job != nil {
		key := shardKey(job, r.Header, state.ListShard)
		if e := t.open[key.open()]; e != nil && !e.deciding {
			t.close(e) // its shards are listed
		}
	}
	if job != nil && begunAt(r.Header) < job.job.Born {
		job, m.orphaned = nil, true // it is of an earlier job of this name
	}
	if job == nil && !m.orphaned {
		t.onceKnown(r.Header.Token, func() {
			m.orphaned, m.looking = true, false
			t.muster(k.job, k.run)
		})
		return
	}
	wish := t.cancels[k]
	ta := newTally(r.Header.Split, r.Shards, func(node string) bool { return t.nodeLost(node, r.Header, now) })
	why, stop := fate{}, false
	switch {
	case wish != nil:
		why, stop = fate{state.StateCancelled, wish.Reason, wish.Detail}, true
	case ta.split.StopOnFailure && ta.hopeless():
		why, stop = fate{state: state.StateCancelled, reason: state.ReasonShardFailed}, true
	}
	switch {
	case stop:
		ta.leaveMissing(why)
	case job == nil:
		ta.leaveMissing(fate{state: state.StateCancelled, reason: state.ReasonDeleted})
	}
	for i, l := range ta.shards {
		if l != nil && stop {
			t.stopShard(l, why, now)
		} else if job != nil {
			t.musterShard(job, r.Header, ta, i, now)
		}
	}
	if !ta.ended() {
		rest := musterAgain
		if stop {
			m.again, rest = true, cancelAgain // who stops it is told again
		}
		t.restMuster(k, m, rest)
		return
	}
	t.conclude(k, m, r, ta.record(r.Header, ta.verdict(wish, job == nil), now))
}

// nodeLost tells whether a broadcast's shard will not start on a node. For a horizon after
// the run was due the node may come back.
func (t *term) nodeLost(node string, header *state.Live, now time.Time) bool {
	if node == "" || !t.gotNodes || now.Sub(header.Due) < t.cfg.Horizon {
		return false
	}
	_, registered := t.nodes[node]
	return !registered
}

// musterShard has a shard that nobody has claimed planned, and no other.
func (t *term) musterShard(job *timed, header *state.Live, ta *tally, shard int, now time.Time) {
	l := ta.shards[shard]
	_, left := ta.gone[shard]
	left = left || ta.carried(shard)
	switch node := ta.split.Part(shard).Node; {
	case l == nil || l.State != state.StateWaiting:
	case t.nodeLost(node, header, now):
		t.endShard(l, state.StateLost, state.ReasonNodeGone, now)
		return
	default:
		t.addWaiting(l, now)
		return
	}
	key := shardKey(job, header, shard)
	e := t.open[key.open()]
	switch {
	case e == nil && (l != nil || left):
		return
	case e == nil:
	case e.deciding:
		return // what comes of that looks again
	case e.waiting != nil && (l == nil || l.Token <= e.waiting.Token):
		return // it is newer than what was read
	case l != nil || left:
		t.close(e)
		return
	case e.begun:
		return
	case e.helper():
		e.begun, e.shards, e.node = true, len(ta.shards), ta.split.Part(shard).Node
		t.begun++
		return
	default:
		t.close(e) // it stood for the run
	}
	t.add(&entry{
		entryKey: key, version: job.job, start: header.Due.UnixMicro(), split: true, begun: true, shards: len(ta.shards),
		node: ta.split.Part(shard).Node,
	}, now)
}

// shardKey is the key of the entry of a shard.
func shardKey(job *timed, header *state.Live, shard int) entryKey {
	key := entryKey{job: job, due: header.Due.UnixMicro(), run: header.Run, shard: shard}
	if slot, ok := header.Run.Slot(); ok {
		key.due, key.run = slot.UnixMicro(), ""
	}
	return key
}

// stopShard ends a shard that is at work, or waits.
func (t *term) stopShard(l *state.Live, why fate, now time.Time) {
	switch l.State { //nolint:exhaustive // others have ended
	case state.StateRunning:
		t.tellCancel(l, &state.Cancel{Job: l.Job, Run: l.Run, Reason: why.reason, Detail: why.detail})
	case state.StateWaiting:
		t.endShard(l, why.state, why.reason, now)
	default:
	}
}

// endShard ends a waiting shard.
func (t *term) endShard(l *state.Live, to state.RunState, reason string, now time.Time) {
	t.task(func(ctx context.Context) func() {
		_, err := t.store.GiveUp(ctx, t.leadership, *l, to, reason, now, 0)
		return func() {
			t.checkErr("end a shard of "+l.Job.String(), err)
			t.muster(l.Job, l.Run)
		}
	})
}

// dismiss closes the entries of a run that is not begun, as far as they take that for
// granted, or, where it is over, all.
func (t *term) dismiss(k cancelKey, over bool) {
	job := t.jobs[k.job]
	if job == nil {
		return
	}
	for _, e := range slices.Clone(job.open) {
		if (e.split || e.lists()) && e.runID() == k.run && !e.deciding && (over || e.begun && e.waiting == nil) {
			t.close(e)
		}
	}
}

// conclude gives a run its verdict.
func (t *term) conclude(k cancelKey, m *muster, r *state.RunShards, rec state.Record) {
	t.task(func(ctx context.Context) func() {
		ok, err := t.store.Conclude(ctx, t.leadership, *r.Header, rec, r.Seen)
		return func() {
			switch {
			case err != nil:
				t.mustErr(k, m, err)
				return
			case !ok:
				m.again = true
				t.restMuster(k, m, musterAgain)
				return
			}
			delete(t.musters, k)
			t.dismiss(k, true)
			t.metrics.concluded.WithLabelValues(rec.State.String()).Inc()
			t.endedOf(k.job, rec.LimitKey)
			t.feedOf(k.job, k.run)
			if job := t.jobs[k.job]; job != nil && (rec.State == state.StateFailed || rec.State == state.StateTimedOut) {
				t.lookAtFailures(job)
			}
		}
	})
}
