package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	past "github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/store"
)

// The scenarios here are for guards of package mutant that random runs seldom or
// never need: each fails without its guard. See docs/verification.md.

// puts tells whether a transaction would write a key of a kind.
func puts(txn *kv.Txn, kind string) bool {
	if txn == nil {
		return false
	}
	for _, ops := range [][]kv.Op{txn.Then, txn.Else} {
		for i := range ops {
			switch op := &ops[i]; op.Kind {
			case kv.OpPut:
				if strings.HasPrefix(op.Key, store.DefaultPrefix+kind+"/") {
					return true
				}
			case kv.OpTxn:
				if puts(op.Txn, kind) {
					return true
				}
			case kv.OpGet, kv.OpDelete:
			}
		}
	}
	return false
}

// overtake has the next transaction of a node that writes a key of a kind carried
// out d later than its repetitions: its caller is told that nobody knows.
func (l *link) overtake(kind string, d time.Duration) {
	done := false
	l.watchTxn(func(txn *kv.Txn) faulty.Fault {
		if done || !puts(txn, kind) {
			return faulty.Fault{}
		}
		done = true
		l.postpone(*txn, d, nil)
		return faulty.Fault{Before: kv.ErrUnknown}
	})
}

// tokenKey tells claims apart: those of one transaction share a token.
func tokenKey(job state.JobID, run state.RunID, shard int, token int64) string {
	return fmt.Sprint(job, run, shard, token)
}

// ghosts are the running records whose work neither runs nor waits for its slot.
func (w *world) ghosts() (all []string) {
	runs := map[string]bool{}
	for _, s := range w.history.all() {
		if s.ended.IsZero() {
			runs[tokenKey(s.job, s.run, s.shard, s.token)] = true
		}
	}
	live, err := w.api.ListLive(w.ctx, func(l *state.Live) bool { return l.State == state.StateRunning && !l.IsHeader() })
	require.NoError(w.t, err)
	for i := range live {
		l := &live[i]
		if !l.Due.After(time.Now()) && !runs[tokenKey(l.Job, l.Run, l.Shard, l.Token)] {
			all = append(all, violation(past.Lost, runKey{l.Job, l.Run}, "is claimed by %s, which does not run it", l.Owner.Node))
		}
	}
	return all
}

// TestClaimBehindTheClosing has a claim under way for so long that a new leader has
// closed the timeline behind its slot, and given that its verdict.
func TestClaimBehindTheClosing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *").with(func(s *state.JobSpec) { s.CatchUp = state.CatchUpNone })
		w.put(j)
		c := w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(5500 * time.Millisecond)
		c.kill()
		down := time.Now()
		w.until(down.Add(11 * time.Second)) // it still has slots that were planned
		held := false
		x.link.watchTxn(func(txn *kv.Txn) faulty.Fault {
			switch {
			case !puts(txn, "active"):
				return faulty.Fault{}
			case held:
				return faulty.Fault{Before: kv.ErrUnavailable}
			}
			held = true
			x.link.postpone(*txn, 9*time.Second, nil)
			return faulty.Fault{Before: kv.ErrUnknown}
		})
		w.until(down.Add(17 * time.Second))
		w.control("c2")
		w.awaitLeader(c.term.Load())
		w.until(down.Add(22 * time.Second))
		require.True(t, held)
		x.link.watchTxn(nil)
		w.pass(30 * time.Second)
		require.Contains(t, w.slotsOf(j), "missed:outage")
		w.verify(true)
	})
}

// TestDistrustedClaimStartsNothing has executors whose registrations cannot be
// trusted any more from the very instant at which a run is due that they claimed.
// Which of both each of them notices first is chance.
func TestDistrustedClaimStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.control("c1")
		w.awaitLeader(0)
		var jobs []*job
		var workers []*worker
		slot := time.Now().Truncate(time.Minute).Add(time.Minute)
		trust := registrationTTL - registrationTTL/5
		w.until(slot.Add(-trust))
		for i := range 12 {
			zone := fmt.Sprint("z", i)
			j := newJob(fmt.Sprint("a", i), "* * * * *").with(func(s *state.JobSpec) {
				s.Guarantee, s.Selector = state.AtMostOnce, map[string]string{"zone": zone}
			})
			w.put(j)
			x := w.worker(fmt.Sprint("e", i), place{labels: map[string]string{"zone": zone}})
			x.link.watchTxn(func(txn *kv.Txn) faulty.Fault {
				if len(txn.Then) == 0 && len(txn.If) == 1 { // the second half of a keep-alive
					return faulty.Fault{Before: kv.ErrPermission}
				}
				return faulty.Fault{}
			})
			jobs, workers = append(jobs, j), append(workers, x)
		}
		w.until(slot)
		for _, j := range jobs {
			require.Contains(t, w.claims(j), string(state.SlotRunID(slot)))
			require.Empty(t, w.history.of(j), "a run started whose owner is not to be trusted")
		}
		for _, x := range workers {
			x.link.watchTxn(nil)
		}
		w.pass(time.Minute)
		w.verify(true)
	})
}

// claims are the runs of a job that were claimed.
func (w *world) claims(j *job) (runs []string) {
	for _, e := range w.audit.all() {
		if kind, _ := e.part(); kind != "active" || e.Deleted {
			continue
		}
		if l, err := e.live(); err == nil && l.Job == j.id && l.State == state.StateRunning {
			runs = append(runs, string(l.Run))
		}
	}
	return runs
}

// TestLeaderBehindTakesNoRun has a leader take a run from an owner that it does
// not know yet, as one does whose watch of the nodes is behind.
func TestLeaderBehindTakesNoRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		w.history.does(j, 3*time.Minute, state.StateSucceeded)
		w.put(j)
		c := w.control("c1")
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		run := w.trigger(j, 1, false)
		w.pass(time.Second)
		live := w.entry(j, run).Live[0]
		_, _, err := c.store.MarkLost(w.ctx, state.Term{Number: c.term.Load(), Key: *c.key.Load()}, live, time.Now())
		require.NoError(t, err)
		w.pass(4 * time.Minute)
		w.verify(true)
		require.Equal(t, "succeeded", w.verdict(j, run))
	})
}

// TestLateCheckpoint has the first of two checkpoints carried out once more, after
// the second.
func TestLateCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a")
		w.history.does(j, time.Minute, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		run := w.trigger(j, 1, false)
		w.pass(time.Second)
		live := w.entry(j, run).Live[0]
		x.link.overtake("checkpoints", 3*time.Second)
		previous := int64(0)
		for i, text := range []string{"first", "second"} {
			saved, err := x.store.Checkpoint(w.ctx, state.Checkpoint{Live: live, Data: []byte(text), Previous: previous, Number: int64(i + 1), Saved: time.Now()})
			require.NoError(t, err)
			require.Equal(t, state.TokenStored, saved.Status)
			previous = saved.Revision
		}
		w.pass(5 * time.Second)
		last, err := w.api.GetCheckpoint(w.ctx, state.CheckpointRef{Job: j.id, Run: run, Shard: live.Shard})
		require.NoError(t, err)
		require.Equal(t, "second", string(last.Data), "the checkpoint went back")
	})
}

// TestAnswerOfClaimIsLost has a claim carried out whose answer gets lost: the run
// starts, and is nobody's ghost.
func TestAnswerOfClaimIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		w.put(j)
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2500 * time.Millisecond)
		lost := false
		x.link.watchTxn(func(txn *kv.Txn) faulty.Fault {
			if lost || !puts(txn, "active") {
				return faulty.Fault{}
			}
			lost = true
			return faulty.Fault{After: kv.ErrUnknown}
		})
		from := time.Now()
		w.pass(5 * time.Second)
		require.True(t, lost)
		require.Empty(t, w.ghosts())
		w.punctual(j, from, from.Add(4*time.Second), 0)
		w.verify(true)
	})
}

// TestClaimsThatMeet has two runs of a job claimed at once, of which one may overlap
// others and the other may not.
func TestClaimsThatMeet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		filler := newJob("b")
		for _, job := range []*job{j, filler} {
			w.history.does(job, time.Minute, state.StateSucceeded)
			w.put(job)
		}
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		// While the first claim is under way the others gather.
		x.link.watchTxn(func(*kv.Txn) faulty.Fault { return faulty.Fault{Delay: 300 * time.Millisecond} })
		w.trigger(filler, 1, false)
		w.pass(50 * time.Millisecond)
		beside, alone := w.trigger(j, 2, true), w.trigger(j, 3, false)
		w.pass(5 * time.Second)
		w.verify(false)
		require.Equal(t, "running", w.verdict(j, beside))
		// It runs if its claim came first.
		require.Contains(t, []string{"running", "skipped:overlap"}, w.verdict(j, alone))
		w.pass(2 * time.Minute)
		w.verify(true)
	})
}

// TestChangesOvertakeClaims has a job edited while claims of it
// are under way that rely on what was known of all jobs.
func TestChangesOvertakeClaims(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *")
		w.put(j)
		for _, name := range []string{"b", "c"} { // claims that go together share what they rely on
			w.put(newJob(name, "* * * * * *"))
		}
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(5500 * time.Millisecond) // claims were seen to be carried out
		x.link.watchTxn(func(txn *kv.Txn) faulty.Fault {
			if puts(txn, "active") {
				return faulty.Fault{Delay: 400 * time.Millisecond}
			}
			return faulty.Fault{}
		})
		for i := range 20 {
			w.pass(4*time.Second + 150*time.Millisecond) // time for claims that rely on those before
			w.put(j.with(func(s *state.JobSpec) { s.StartDeadline = time.Duration(30+i) * time.Second }))
		}
		x.link.watchTxn(nil)
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestClaimComesTwice has a claim carried out once more when its run has long
// succeeded.
func TestClaimComesTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "10,30 * * * * *")
		w.history.does(j, time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		// Between two closings of the timeline, which fence it as well.
		slot := time.Now().Truncate(time.Minute).Add(90 * time.Second)
		w.until(slot.Add(-10 * time.Second)) // the claim of the slot before has learnt the last one
		x.link.overtake("active", 10*time.Second)
		w.until(slot.Add(2 * time.Second))
		require.Equal(t, "succeeded", w.verdict(j, state.SlotRunID(slot)))
		w.pass(30 * time.Second)
		w.verify(true)
	})
}

// TestEndComesTwice has an end carried out once more when it is known already. The
// record at the gate that it compares still has its token.
func TestEndComesTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		w.history.does(j, time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		x.link.overtake("history", 10*time.Second)
		run := w.trigger(j, 1, false)
		w.pass(5 * time.Second)
		require.Equal(t, "succeeded", w.verdict(j, run))
		w.pass(10 * time.Second)
		w.verify(true)
	})
}
