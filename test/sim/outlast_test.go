package sim

import (
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// disk is an unclaimed.Disk in memory.
type disk struct {
	mu  sync.Mutex
	all map[string][]byte
}

// copy is a disk with the same on it; of nil an empty one.
func (d *disk) copy() *disk {
	of := &disk{all: map[string][]byte{}}
	if d != nil {
		of.all, _ = d.All()
	}
	return of
}

func (d *disk) Put(name string, content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[name] = content
	return nil
}

func (d *disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, name)
	return nil
}

func (d *disk) All() (map[string][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.all), nil
}

func (d *disk) PutAside(name string) error { return d.Remove(name) }

// unrecorded reads what executors began without a claim and have on their disks still:
// they may not have come back, or the run may have no record of its own to note it in.
func (w *world) unrecorded() map[runKey]bool {
	found := map[runKey]bool{}
	for _, d := range w.disks {
		all, _ := d.All()
		for _, content := range all {
			var of struct {
				Namespace, Job string
				Run            state.RunID
			}
			require.NoError(w.t, json.Unmarshal(content, &of))
			found[runKey{state.JobID{Namespace: of.Namespace, Name: of.Job}, of.Run}] = true
		}
	}
	return found
}

// runsPlanned is a job whose slots begin without the store.
func runsPlanned(name, schedule string) *job {
	return newJob(name, schedule).with(func(s *state.JobSpec) {
		s.Overlap, s.StoreOutage = state.OverlapAllow, state.OutageRunPlanned
	})
}

// unclaimedOf counts a job's starts without a claim by slot.
func (w *world) unclaimedOf(j *job) map[state.RunID]int {
	n := map[state.RunID]int{}
	for _, s := range w.history.of(j) {
		if s.token == 0 {
			n[s.run]++
		}
	}
	return n
}

// TestPlannedRunsOutlastTheStore has the store away for longer than the horizon, and an
// executor die in that time with what it has begun.
func TestPlannedRunsOutlastTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, held := runsPlanned("planned", "*/2 * * * * *"), newJob("held", "*/2 * * * * *")
		w.history.does(j, 500*time.Millisecond, state.StateSucceeded)
		w.put(j)
		w.put(held)
		links := []*link{w.control("c1").link, w.control("c2").link, w.worker("e1", place{}).link, w.worker("e2", place{}).link}
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(12 * time.Second))
		for _, l := range links {
			l.setDown(true)
		}
		down := time.Now()
		w.until(down.Add(9100 * time.Millisecond)) // the slot at :22 is at work, wherever that is
		for _, name := range []string{"e1", "e2"} {
			w.workers[name].kill()
			w.worker(name, place{}).link.setDown(true)
		}
		w.until(down.Add(40 * time.Second))
		began := w.unclaimedOf(j)
		require.GreaterOrEqual(t, len(began), 2)
		for run, n := range began {
			require.Equal(t, 1, n, run)
		}
		require.Empty(t, w.unclaimedOf(held))
		require.NotEmpty(t, w.unrecorded())
		for _, l := range links[:2] {
			l.setDown(false)
		}
		for _, x := range w.workers {
			x.link.setDown(false)
		}
		w.pass(time.Minute)
		require.Empty(t, w.unrecorded())
		for run := range began {
			r := w.entry(j, run).Record
			require.True(t, r.Attempts[0].Unclaimed, run)
			require.Equal(t, state.StateSucceeded, r.State, run)
			if r.Attempts[0].State == state.StateInterrupted {
				require.Len(t, r.Attempts, 2, "it died with its executor, and starts again")
				continue
			}
			require.Len(t, r.Attempts, 1, run)
		}
		w.verify(true)
	})
}

// TestACutOffExecutorMayDouble has one executor cut off from all others: they start what
// it had, and so does it. When it is back the run says so.
func TestACutOffExecutorMayDouble(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := runsPlanned("planned", "*/2 * * * * *")
		w.put(j)
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(11 * time.Second))
		x.link.setDown(true)
		x.wire.cut(true)
		w.worker("e2", place{})
		w.pass(30 * time.Second)
		began := w.unclaimedOf(j)
		require.NotEmpty(t, began)
		x.wire.cut(false)
		x.link.setDown(false)
		w.pass(2 * time.Minute)
		require.Empty(t, w.unrecorded())
		doubles := 0
		for run := range began {
			r := w.entry(j, run).Record
			require.Equal(t, state.StateSucceeded, r.State)
			for _, d := range r.Doubles {
				require.Equal(t, "e1", d.Node)
				require.True(t, d.Unclaimed)
			}
			doubles += len(r.Doubles)
		}
		require.NotZero(t, doubles)
		w.verify(true)
	})
}
