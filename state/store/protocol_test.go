package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var slot0 = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// slotAt is the n-th slot of the tests' jobs.
func slotAt(n int) time.Time { return slot0.Add(time.Duration(n) * time.Minute) }

func slotRun(n int) state.RunID { return state.SlotRunID(slotAt(n)) }

// rig is a store and the surroundings of its protocol, made by hand: jobs are
// only keys, and nodes and leaders come and go at a word.
type rig struct {
	t  testing.TB
	db kv.KV // without faults
	s  *Store

	fault atomic.Pointer[faulty.Hook]
}

func newRig(t testing.TB) *rig {
	db := memkv.New()
	t.Cleanup(db.Close)
	return rigOn(t, db, "")
}

func rigOn(t testing.TB, db kv.KV, prefix string) *rig {
	r := &rig{t: t, db: db}
	r.s = openStore(t, faulty.New(db, r.ask), prefix)
	return r
}

func (r *rig) ask(ctx context.Context, c faulty.Call) faulty.Fault {
	if h := r.fault.Load(); h != nil {
		return (*h)(ctx, c)
	}
	return faulty.Fault{}
}

// onTxn makes each transaction from now on meet what f says; nil: nothing.
func (r *rig) onTxn(f func(t *kv.Txn) faulty.Fault) {
	if f == nil {
		r.fault.Store(nil)
		return
	}
	h := faulty.Hook(func(_ context.Context, c faulty.Call) faulty.Fault {
		if c.Op != faulty.OpTxn {
			return faulty.Fault{}
		}
		return f(c.Txn)
	})
	r.fault.Store(&h)
}

// other is a second store on the same keys, as on another control node.
func (r *rig) other() *Store { return openStore(r.t, r.db, r.s.Prefix()) }

func (r *rig) commit(t kv.Txn) kv.TxnResult {
	res, err := r.db.Txn(context.Background(), t)
	require.NoError(r.t, err)
	require.True(r.t, res.Succeeded)
	return res
}

func (r *rig) put(key, value string) int64 {
	return r.commit(kv.Txn{Then: []kv.Op{kv.Put(key, []byte(value), 0)}}).Revision
}

func (r *rig) remove(key string) { r.commit(kv.Txn{Then: []kv.Op{kv.Delete(key)}}) }

func (r *rig) get(key string) (kv.KeyValue, bool) {
	res, err := r.db.Range(context.Background(), key, "", kv.RangeOptions{})
	require.NoError(r.t, err)
	if len(res.KVs) == 0 {
		return kv.KeyValue{}, false
	}
	return res.KVs[0], true
}

// setJob writes the job's key anew and answers its revision.
// setJob and removeJob change a job as edits do.
func (r *rig) setJob(id state.JobID) int64 {
	return r.commit(kv.Txn{Then: []kv.Op{kv.Put(r.s.keys.job(id), []byte("job"), 0), kv.Put(r.s.keys.changed(), nil, 0)}}).Revision
}

func (r *rig) removeJob(id state.JobID) {
	r.commit(kv.Txn{Then: []kv.Op{kv.Delete(r.s.keys.job(id)), kv.Put(r.s.keys.changed(), nil, 0)}})
}

// register makes the node's key anew, so that what it owned is disowned.
func (r *rig) register(node string) state.Owner {
	r.remove(r.s.keys.node(node))
	return state.Owner{Node: node, Revision: r.put(r.s.keys.node(node), "node")}
}

func (r *rig) unregister(o state.Owner) { r.remove(r.s.keys.node(o.Node)) }

// lead begins a term, which ends with depose.
func (r *rig) lead(name string) state.Term {
	key := r.s.Prefix() + "leader/" + name
	r.remove(key)
	return state.Term{Key: key, Number: r.put(key, name)}
}

func (r *rig) depose(t state.Term) { r.remove(t.Key) }

func claimOf(id state.JobID, revision int64, o state.Owner, n int, exclusive bool) state.Claim {
	return state.Claim{
		Job: id, JobRevision: revision, Exclusive: exclusive,
		Live: state.Live{
			Run: slotRun(n), Shards: 1, Generation: 1, Attempt: 1, Owner: o, Term: 7,
			Due: slotAt(n), Claimed: slotAt(n).Add(-time.Second),
		},
	}
}

func (r *rig) claim(c state.Claim) state.ClaimResult {
	r.t.Helper()
	res, err := r.s.Claim(context.Background(), c)
	require.NoError(r.t, err)
	return res
}

// start claims, and requires to get it.
func (r *rig) start(c state.Claim) state.Live {
	r.t.Helper()
	res := r.claim(c)
	require.Equal(r.t, state.Claimed, res.Status, res.Status.String())
	return *res.Live
}

func endOf(l state.Live, to state.RunState) state.Finish {
	return state.Finish{Live: &l, Attempt: attemptOf(&l, to)}
}

// attemptOf is the attempt that is under way, as it ends.
func attemptOf(l *state.Live, to state.RunState) state.Attempt {
	return state.Attempt{
		Number: l.Attempt, Node: l.Owner.Node, Token: l.Token, Term: l.Term,
		Claimed: l.Claimed, Started: l.Due, Ended: l.Due.Add(time.Second), State: to,
	}
}

func retryOf(l state.Live, at time.Time) state.Finish {
	f := endOf(l, state.StateFailed)
	f.Retry = at
	if l.AtMostOnce {
		f.Attempt.Started = time.Time{}
	}
	return f
}

func (r *rig) finish(f state.Finish) state.TokenStatus {
	r.t.Helper()
	status, err := r.s.Finish(context.Background(), f)
	require.NoError(r.t, err)
	return status
}

// end finishes with success, and requires that it is stored.
func (r *rig) end(l state.Live) {
	r.t.Helper()
	require.Equal(r.t, state.TokenStored, r.finish(endOf(l, state.StateSucceeded)))
}

// wait ends an attempt with a wait for the next one, and answers the record.
func (r *rig) wait(l state.Live) state.Live {
	r.t.Helper()
	require.Equal(r.t, state.TokenStored, r.finish(retryOf(l, l.Due.Add(time.Minute))))
	got, ok := r.live(l)
	require.True(r.t, ok)
	require.Equal(r.t, state.StateWaiting, got.State)
	return got
}

// again is the claim of the next attempt of a waiting run.
func again(w state.Live, revision int64, o state.Owner) state.Claim {
	c := state.Claim{Job: w.Job, JobRevision: revision, Exclusive: w.Exclusive, Token: w.Token, Live: w}
	c.Live.Owner, c.Live.Attempt = o, w.Attempt+1
	return c
}

// live is the record at l's key.
func (r *rig) live(l state.Live) (state.Live, bool) {
	kv, ok := r.get(r.s.keys.live(&l))
	if !ok {
		return state.Live{}, false
	}
	got, err := decodeLive(l.Job, l.Exclusive, kv)
	require.NoError(r.t, err)
	return got, true
}

func (r *rig) record(id state.JobID, run state.RunID) (state.Record, bool) {
	kv, ok := r.get(r.s.keys.historyRun(id, run))
	if !ok {
		return state.Record{}, false
	}
	rec, err := decodeRecord(id, run, kv)
	require.NoError(r.t, err)
	return rec, true
}

func (r *rig) verdict(id state.JobID, run state.RunID) state.RunState {
	rec, _ := r.record(id, run)
	return rec.State
}

func skipOf(id state.JobID, n int) state.Record {
	return state.Record{
		Job: id, Run: slotRun(n), Generation: 1, State: state.StateMissed, Reason: state.ReasonDeadline,
		Due: slotAt(n), Recorded: slotAt(n + 1), Shards: 1,
	}
}

func rangeOf(id state.JobID, first, last int) state.Record {
	rec := skipOf(id, first)
	rec.Reason, rec.Until, rec.Count = state.ReasonOutage, slotAt(last), int64(last-first+1)
	return rec
}

func bothWays(t *testing.T, f func(t *testing.T, exclusive bool)) {
	t.Run("exclusive", func(t *testing.T) { f(t, true) })
	t.Run("allow", func(t *testing.T) { f(t, false) })
}

// countTxns adds to n each transaction from now on.
func (r *rig) countTxns(n *int) {
	r.onTxn(func(*kv.Txn) faulty.Fault {
		*n++
		return faulty.Fault{}
	})
}

// dump is all that is stored.
func (r *rig) dump() map[string]string {
	res, err := r.db.Range(context.Background(), r.s.Prefix(), end(r.s.Prefix()), kv.RangeOptions{})
	require.NoError(r.t, err)
	all := map[string]string{}
	for _, found := range res.KVs {
		all[found.Key] = string(found.Value)
	}
	return all
}
