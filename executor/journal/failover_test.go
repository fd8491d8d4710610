package journal_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/journal"
	server "github.com/leaderd/leaderd/internal/journal"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// counted is a node's store, and how many entries were carried out there.
type counted struct {
	*store.Store
	done atomic.Int64
}

func (c *counted) Claim(ctx context.Context, claim state.Claim) (state.ClaimResult, error) {
	res, err := c.Store.Claim(ctx, claim)
	c.done.Add(1)
	return res, err
}

func (c *counted) Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error) {
	res, err := c.Store.Finish(ctx, f)
	c.done.Add(1)
	return res, err
}

// cluster is control nodes on one store in memory that takes a while to commit.
type cluster struct {
	db       *memkv.Store
	stores   []*counted
	controls []*control
}

func newCluster(t testing.TB, nodes int) *cluster {
	t.Helper()
	c := &cluster{db: memkv.New()}
	t.Cleanup(c.db.Close)
	slow := faulty.New(c.db, func(_ context.Context, call faulty.Call) faulty.Fault {
		if call.Op == faulty.OpTxn {
			return faulty.Fault{Delay: time.Millisecond, DelayAfter: time.Millisecond}
		}
		return faulty.Fault{}
	})
	for range nodes {
		st, err := store.New(slow, store.Config{})
		require.NoError(t, err)
		t.Cleanup(st.Close)
		c.stores = append(c.stores, &counted{Store: st})
	}
	for _, st := range c.stores {
		c.controls = append(c.controls, newControl(t, st, server.Config{}))
	}
	return c
}

// putJob makes a job and answers its revision.
func (c *cluster) putJob(t testing.TB, id state.JobID) int64 {
	t.Helper()
	res, err := c.stores[0].PutJob(t.Context(), store.PutJob{
		ID: id, AllowMissing: true, Actor: "anna", Now: due.Add(-time.Hour),
		Spec: &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}},
	})
	require.NoError(t, err)
	return res.Entry.Job.Revision
}

// during runs work, and ends the busiest node that is left once it has carried
// out enough entries.
func (c *cluster) during(t *testing.T, enough int64, end func(*control), work func()) {
	t.Helper()
	before := make([]int64, len(c.stores))
	for i, st := range c.stores {
		before[i] = st.done.Load()
	}
	var both sync.WaitGroup
	worked := make(chan struct{})
	both.Go(func() {
		defer close(worked)
		work()
	})
	busiest := -1
	for busiest < 0 {
		for i, st := range c.stores {
			if st.done.Load()-before[i] >= enough {
				busiest = i
			}
		}
		select {
		case <-worked:
			t.Error("the work was over before a node could be ended")
			return
		case <-time.After(time.Millisecond):
		}
	}
	end(c.controls[busiest])
	both.Wait()
}

// While thousands of claims are under way a node is killed, then, among the
// finishes, another one leaves: each caller gets one answer, no run is claimed
// twice though two executors try, and nothing is lost.
func TestFailover(t *testing.T) {
	const jobs, slots, callers = 40, 100, 400
	c := newCluster(t, 3)
	var clients []*journal.Client
	var regs []state.Registration
	for i := range 2 {
		client := newClient(t, journal.Config{}, c.controls...)
		reg, err := client.Register(t.Context(), state.Node{Name: fmt.Sprintf("executor-%d", i), Executor: true, Capacity: 9}, 30*time.Second)
		require.NoError(t, err)
		clients, regs = append(clients, client), append(regs, reg)
	}
	ids, revisions := make([]state.JobID, jobs), make([]int64, jobs)
	for i := range ids {
		ids[i] = state.JobID{Namespace: "default", Name: fmt.Sprintf("job-%d", i)}
		revisions[i] = c.putJob(t, ids[i])
	}
	begun := c.revision(t)

	results := [2][]state.ClaimResult{make([]state.ClaimResult, jobs*slots), make([]state.ClaimResult, jobs*slots)}
	each := func(do func(client, n int)) {
		var work sync.WaitGroup
		for client := range clients {
			var next atomic.Int64
			for range callers {
				work.Go(func() {
					for n := int(next.Add(1)) - 1; n < jobs*slots; n = int(next.Add(1)) - 1 {
						do(client, n)
					}
				})
			}
		}
		work.Wait()
	}
	c.during(t, 700, (*control).kill, func() {
		each(func(client, n int) {
			claim := claimOf(ids[n%jobs], revisions[n%jobs], regs[client].Owner, n/jobs)
			res, err := clients[client].Claim(t.Context(), claim)
			require.NoError(t, err)
			results[client][n] = res
		})
	})
	tokens := map[string]int64{}
	for n := range jobs * slots {
		a, b := results[0][n], results[1][n]
		if b.Status == state.Claimed {
			a, b = b, a
		}
		require.Equal(t, state.Claimed, a.Status)
		require.Equal(t, state.ClaimLive, b.Status)
		tokens[a.Live.Job.String()+" "+string(a.Live.Run)] = a.Live.Token
	}
	require.Len(t, tokens, jobs*slots)
	require.Equal(t, jobs*slots, c.puts(t, "active/", begun), "each record was written once")
	live, err := c.stores[0].ListLive(t.Context(), func(*state.Live) bool { return true })
	require.NoError(t, err)
	require.Len(t, live, jobs*slots)
	for _, l := range live {
		require.Equal(t, tokens[l.Job.String()+" "+string(l.Run)], l.Token)
	}

	c.during(t, 700, (*control).leave, func() {
		each(func(client, n int) {
			if results[client][n].Status != state.Claimed {
				return
			}
			token, err := clients[client].Finish(t.Context(), finishOf(*results[client][n].Live))
			require.NoError(t, err)
			require.Equal(t, state.TokenStored, token)
		})
	})
	require.Equal(t, jobs*slots, c.puts(t, "history/", begun), "each verdict was written once")
	live, err = c.stores[0].ListLive(t.Context(), func(*state.Live) bool { return true })
	require.NoError(t, err)
	require.Empty(t, live)

	for i, client := range clients {
		_, err := client.KeepAlive(t.Context(), regs[i])
		require.NoError(t, err)
		require.NoError(t, client.Deregister(t.Context(), regs[i]))
		_, err = client.KeepAlive(t.Context(), regs[i])
		require.ErrorIs(t, err, state.ErrNotRegistered)
		require.NoError(t, client.Deregister(t.Context(), regs[i]))
		res, err := client.Claim(t.Context(), claimOf(ids[0], revisions[0], regs[i].Owner, slots+1))
		require.NoError(t, err)
		require.Equal(t, state.ClaimDisowned, res.Status)
	}
}

func (c *cluster) revision(t testing.TB) int64 {
	t.Helper()
	res, err := c.db.Range(t.Context(), "x", "", kv.RangeOptions{})
	require.NoError(t, err)
	return res.Revision
}

// puts counts the writes below a part of the prefix after a revision.
func (c *cluster) puts(t testing.TB, part string, after int64) int {
	t.Helper()
	until := c.revision(t)
	prefix := store.DefaultPrefix + part
	w, err := c.db.Watch(t.Context(), prefix, kv.PrefixEnd(prefix), after+1)
	require.NoError(t, err)
	defer w.Close()
	n := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		b, err := w.Next(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return n
		}
		for _, e := range b.Events {
			if !e.Deleted {
				require.True(t, strings.HasPrefix(e.KV.Key, prefix))
				n++
			}
		}
		if b.Revision >= until {
			return n
		}
	}
}

// A run's whole life through the stream, on the store itself: progress, an
// interrupted attempt, the next one.
func TestLifeOfARun(t *testing.T) {
	c := newCluster(t, 1)
	client := newClient(t, journal.Config{}, c.controls...)
	reg, err := client.Register(t.Context(), state.Node{Name: "executor-1", Executor: true, Labels: map[string]string{"zone": "a"}}, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, "executor-1", reg.Owner.Node)
	require.GreaterOrEqual(t, reg.TTL, 30*time.Second)
	revision := c.putJob(t, job)

	claim := claimOf(job, revision, reg.Owner, 1)
	claim.Exclusive = true
	first, err := client.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, state.Claimed, first.Status)
	require.True(t, first.Live.Exclusive)

	// The same attempt again, in other words: the record is the stored one.
	other := claim
	other.Live.Term, other.Live.Claimed = 8, claim.Live.Claimed.Add(time.Second)
	again, err := client.Claim(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, first, again)

	cp := state.Checkpoint{Live: *first.Live, Data: []byte("one"), Number: 1, Saved: due.Add(time.Second)}
	saved, err := client.Checkpoint(t.Context(), cp)
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, saved.Status)
	repeated, err := client.Checkpoint(t.Context(), cp)
	require.NoError(t, err)
	require.Equal(t, saved, repeated, "a repetition changes nothing")
	late := state.Checkpoint{Live: *first.Live, Data: []byte("zero"), Number: 1, Saved: due}
	_, err = client.Checkpoint(t.Context(), late)
	require.ErrorIs(t, err, state.ErrCheckpointChanged)

	f := finishOf(*first.Live)
	f.Attempt.State, f.Attempt.Error, f.Retry = state.StateInterrupted, "drained", due.Add(2*time.Second)
	token, err := client.Finish(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, token)
	token, err = client.Finish(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, token, "it is his own")
	cp.Previous, cp.Number, cp.Data = saved.Revision, 2, []byte("two")
	fenced, err := client.Checkpoint(t.Context(), cp)
	require.NoError(t, err)
	require.Equal(t, state.TokenFenced, fenced.Status)

	live, err := c.stores[0].ListLive(t.Context(), func(*state.Live) bool { return true })
	require.NoError(t, err)
	require.Len(t, live, 1)
	require.Equal(t, state.StateWaiting, live[0].State)
	require.True(t, f.Retry.Equal(live[0].NextTry))

	claim.Token, claim.Live.Attempt = live[0].Token, 2
	second, err := client.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, state.Claimed, second.Status)
	require.Greater(t, second.Live.Token, first.Live.Token)
	require.Len(t, second.Live.Attempts, 1)
	require.Equal(t, f.Attempt, second.Live.Attempts[0])
	last, err := client.GetCheckpoint(t.Context(), state.CheckpointRef{Job: job, Run: claim.Live.Run})
	require.NoError(t, err)
	require.Equal(t, state.SavedCheckpoint{
		Number: 1, Data: []byte("one"), Token: first.Live.Token, Run: claim.Live.Run, Saved: cp.Saved, Revision: saved.Revision,
	}, last)

	end := finishOf(*second.Live)
	end.Tail, end.OutputBytes, end.Reason = []byte{0xff, 'x'}, 12345, "because"
	token, err = client.Finish(t.Context(), end)
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, token)
	run, err := c.stores[0].GetRun(t.Context(), job, claim.Live.Run)
	require.NoError(t, err)
	require.Equal(t, state.StateSucceeded, run.Record.State)
	require.Equal(t, end.Tail, run.Record.Tail)
	require.EqualValues(t, 12345, run.Record.OutputBytes)
	require.Equal(t, "because", run.Record.Reason)
	require.Equal(t, []state.Attempt{f.Attempt, end.Attempt}, run.Record.Attempts)
}
