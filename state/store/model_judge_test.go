package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// judgement is the state of the store as its history passes by. It knows only
// keys and values, and what of design §6 may not happen.
type judgement struct {
	m       *model
	jobs    map[state.JobID]int64 // ModRevision
	nodes   map[string]int64      // CreateRevision
	closed  state.Closed
	live    map[string]state.Live // by key
	history map[string]state.Record
	saved   map[string]uint64

	claims map[string]int64 // by job, run, shard and attempt: the token
	// everything ever written of an attempt's end, by its stamp
	ends map[time.Time]state.Attempt
	recs map[time.Time]state.Record
}

// judge reads all that happened to the model's store.
func judge(m *model, begun int64) {
	j := &judgement{
		m: m, jobs: map[state.JobID]int64{}, nodes: map[string]int64{}, live: map[string]state.Live{},
		history: map[string]state.Record{}, saved: map[string]uint64{}, claims: map[string]int64{},
		ends: map[time.Time]state.Attempt{}, recs: map[time.Time]state.Record{},
	}
	prefix := m.s.Prefix()
	last := m.put(prefix+"end", "")
	w, err := m.db.Watch(context.Background(), prefix, end(prefix), begun)
	require.NoError(m.t, err)
	defer w.Close()
	for at := int64(0); at < last; {
		b, err := w.Next(context.Background())
		require.NoError(m.t, err)
		for len(b.Events) > 0 {
			n := 1
			for n < len(b.Events) && b.Events[n].KV.ModRevision == b.Events[0].KV.ModRevision {
				n++
			}
			j.revision(b.Events[:n])
			b.Events = b.Events[n:]
		}
		at = b.Revision
	}
	j.hearsay()
}

func (j *judgement) errorf(format string, args ...any) {
	j.m.t.Errorf("seed %d: "+format, append([]any{j.m.seed}, args...)...)
}

// revision takes in what one transaction wrote. Each write is judged by the
// state before, then all become part of it.
func (j *judgement) revision(events []kv.Event) {
	k := j.m.s.keys
	var after []func()
	for _, e := range events {
		key, gone := e.KV.Key, e.Deleted
		switch {
		case strings.HasPrefix(key, k.jobs()):
			id, _, err := parseJob(key[len(k.jobs()):])
			require.NoError(j.m.t, err)
			after = append(after, func() { j.jobs[id] = e.KV.ModRevision })
			if gone {
				after = append(after, func() { delete(j.jobs, id) })
			}
		case strings.HasPrefix(key, k.nodes()):
			after = append(after, func() { j.nodes[key] = e.KV.CreateRevision })
		case key == k.closed():
			c, err := decodeClosed(e.KV)
			require.NoError(j.m.t, err)
			if c.Instant.Before(j.closed.Instant) {
				j.errorf("the timeline was opened from %s to %s", j.closed.Instant, c.Instant)
			}
			after = append(after, func() { j.closed = c })
		case strings.HasPrefix(key, k.active()):
			after = append(after, j.active(e))
		case strings.HasPrefix(key, k.history()):
			after = append(after, j.verdict(e))
		case strings.HasPrefix(key, k.prefix+"checkpoints/"):
			var p statev1.Checkpoint
			require.NoError(j.m.t, proto.Unmarshal(e.KV.Value, &p))
			if p.GetData() == nil {
				continue // the head
			}
			key = key[:strings.LastIndexByte(key, '/')]
			n := binary.BigEndian.Uint64(p.GetData())
			if n != j.saved[key]+1 {
				j.errorf("checkpoint %d of %s after %d", n, key, j.saved[key])
			}
			j.saved[key] = n
		}
	}
	for _, f := range after {
		f()
	}
	n := 0
	for _, l := range j.liveOf(modelJobs[0]) {
		if !l.Exclusive {
			j.errorf("run %s of an exclusive job beside its gate", l.Run)
		}
		n++
	}
	if n > 1 {
		j.errorf("%d runs of an exclusive job are live at revision %d", n, events[0].KV.ModRevision)
	}
}

// liveOf are the job's records without a verdict.
func (j *judgement) liveOf(id state.JobID) map[string]state.Live {
	all := map[string]state.Live{}
	for key, l := range j.live {
		if l.Job == id && !j.decided(id, l.Run) {
			all[key] = l
		}
	}
	return all
}

// decided tells whether a run has a verdict, its own or a shared one.
func (j *judgement) decided(id state.JobID, run state.RunID) bool {
	slot, isSlot := run.Slot()
	for _, rec := range j.history {
		if rec.Job == id && (rec.Run == run || isSlot && rec.Covers(slot)) {
			return true
		}
	}
	return false
}

func (j *judgement) active(e kv.Event) (apply func()) {
	k := j.m.s.keys
	key := e.KV.Key
	was, had := j.live[key]
	if e.Deleted {
		return func() {
			if !j.decided(was.Job, was.Run) {
				j.errorf("the live record of %s went without a verdict", was.Run)
			}
			delete(j.live, key)
		}
	}
	id, more, err := parseJob(key[len(k.active()):])
	require.NoError(j.m.t, err)
	l, err := decodeLive(id, more == gate, e.KV)
	require.NoError(j.m.t, err)
	same := had && was.Run == l.Run
	from := state.StateNone
	if same {
		from = was.State
	} else if _, slot := l.Run.Slot(); !slot {
		from = state.StatePending
	}
	if err := state.CheckTransition(from, l.State); err != nil {
		j.errorf("%s: %v", l.Run, err)
	}
	if j.decided(id, l.Run) {
		j.errorf("%s became %s after its verdict", l.Run, l.State)
	}
	if l.State == state.StateRunning {
		j.claim(&l, &was, same)
	}
	j.noteEnds(l.Attempts)
	return func() { j.live[key] = l }
}

// claim judges a start.
func (j *judgement) claim(l, was *state.Live, same bool) {
	what := fmt.Sprintf("claim of %s %s, attempt %d, at %d", l.Job, l.Run, l.Attempt, l.Token)
	name := fmt.Sprint(l.Job, l.Run, l.Shard, l.Attempt)
	if _, twice := j.claims[name]; twice {
		j.errorf("%s: a second one", what)
	}
	j.claims[name] = l.Token
	if j.jobs[l.Job] != l.Generation {
		j.errorf("%s: relied on revision %d of the job, which is at %d", what, l.Generation, j.jobs[l.Job])
	}
	if j.nodes[j.m.s.keys.node(l.Owner.Node)] != l.Owner.Revision {
		j.errorf("%s: its owner's registration is gone", what)
	}
	if same {
		if l.Attempt != was.Attempt+1 || len(l.Attempts) != was.Attempt {
			j.errorf("%s: after attempt %d", what, was.Attempt)
		}
		return
	}
	if l.Attempt != 1 {
		j.errorf("%s: nothing before it", what)
	}
	for _, other := range j.liveOf(l.Job) {
		if other.Run == l.Run {
			j.errorf("%s: live already", what)
		}
		if l.Exclusive {
			j.errorf("%s: %s is live", what, other.Run)
		}
	}
	if _, slot := l.Run.Slot(); !slot {
		return
	}
	if l.Term == 0 && !l.Due.After(j.closed.Instant) || l.Term != 0 && l.Term != j.closed.Revision {
		j.errorf("%s: in the closed part (%s at %d)", what, j.closed.Instant, j.closed.Revision)
	}
}

func (j *judgement) verdict(e kv.Event) (apply func()) {
	k := j.m.s.keys
	key := e.KV.Key
	if e.Deleted || e.KV.Version != 1 {
		j.errorf("verdict %s was written over", key)
	}
	id, more, err := parseJob(key[len(k.history()):])
	require.NoError(j.m.t, err)
	run, err := runPart(more)
	require.NoError(j.m.t, err)
	rec, err := decodeRecord(id, run, e.KV)
	require.NoError(j.m.t, err)
	slots := []state.RunID{run}
	for at := rec.Due.Add(time.Minute); !at.After(rec.Until); at = at.Add(time.Minute) {
		slots = append(slots, state.SlotRunID(at))
	}
	for _, run := range slots {
		if j.decided(id, run) {
			j.errorf("a second verdict, %s, on %s %s", rec.State, id, run)
		}
		from := state.StateNone
		if _, slot := run.Slot(); !slot {
			from = state.StatePending
		}
		for _, l := range j.liveOf(id) {
			if l.Run == run {
				from = l.State
				if n := len(rec.Attempts); from == state.StateRunning && (n == 0 || rec.Attempts[n-1].Token != l.Token) {
					j.errorf("verdict on %s %s by another than token %d", id, run, l.Token)
				}
			}
		}
		if err := state.CheckTransition(from, rec.State); err != nil {
			j.errorf("verdict on %s %s: %v", id, run, err)
		}
	}
	if rec.Reason == state.ReasonOverlap {
		live := false
		for _, l := range j.liveOf(id) {
			live = live || rec.Detail == "run "+string(l.Run)+" was live"
		}
		if !live {
			j.errorf("%s was skipped: %s; it was not", run, rec.Detail)
		}
	}
	j.noteEnds(rec.Attempts)
	j.recs[rec.Recorded] = rec
	return func() { j.history[key] = rec }
}

// noteEnds takes down ended attempts; their tokens rise.
func (j *judgement) noteEnds(as []state.Attempt) {
	for i, a := range as {
		j.ends[a.Ended] = a
		if i > 0 && a.Token <= as[i-1].Token {
			j.errorf("token %d after %d", a.Token, as[i-1].Token)
		}
	}
}

// hearsay compares what callers were told with what happened.
func (j *judgement) hearsay() {
	for _, l := range j.m.said.claimed {
		if at := j.claims[fmt.Sprint(l.Job, l.Run, l.Shard, l.Attempt)]; at != l.Token {
			j.errorf("%s %s was said to be claimed at %d, and was at %d", l.Job, l.Run, l.Token, at)
		}
	}
	for _, s := range j.m.said.ends {
		a, stored := j.ends[s.attempt.Ended]
		switch {
		case stored != (s.status == state.TokenStored):
			j.errorf("end of %s %s: said %d, stored %t", s.live.Job, s.live.Run, s.status, stored)
		case stored && (a.State != s.attempt.State || a.Token != s.attempt.Token):
			j.errorf("end of %s %s: stored %+v", s.live.Job, s.live.Run, a)
		case stored && !s.retry:
			if rec := j.recs[s.attempt.Ended]; rec.State != s.attempt.State || rec.Run != s.live.Run {
				j.errorf("verdict on %s %s: %+v", s.live.Job, s.live.Run, rec)
			}
		}
	}
	for _, s := range j.m.said.decided {
		if rec, stored := j.recs[s.rec.Recorded]; stored != s.ok || stored && rec.Run != s.rec.Run {
			j.errorf("decision on %s %s: said %t, stored %t", s.rec.Job, s.rec.Run, s.ok, stored)
		}
	}
}
