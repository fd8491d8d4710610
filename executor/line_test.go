package executor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// jobOf is a spec of a job of its own.
func jobOf(name string, change func(*state.JobSpec)) *spec {
	p := noop(1, change)[0]
	p.Job = name
	return newSpec(&session{}, p)
}

// fill has n entries of a job be due at an instant.
func (d *desk) fill(sp *spec, n int, due int64) {
	for i := range n {
		e := entryDue(sp, i, due+int64(i))
		e.key.run = state.RunID(fmt.Sprintf("%s-%04d", e.key.run, i))
		d.entries[e.key] = e
		d.enqueue(e, ahead, due)
	}
}

// turnOf has runs that began come to nothing, or end, and answers whose they were.
func turnOf(d *desk, runs []*run, status state.ClaimStatus) map[string]int {
	got := map[string]int{}
	for _, r := range runs {
		got[r.entry.key.job.Name]++
		r.live = &state.Live{Token: 1}
		d.settle(r, &state.ClaimResult{Status: status}, nil, time.Millisecond, false)
		d.leave(r)
	}
	return got
}

// Of what is due at one instant, and more than there is room for, the higher class comes
// first, and inside a class jobs have turns as their weights are, however many come to
// nothing.
func TestLineIsByClassAndWeight(t *testing.T) {
	d := newBareDesk(t, Config{Node: state.Node{Capacity: 8}})
	now := time.Now().UnixNano()
	class := func(p state.Priority, weight int) func(*state.JobSpec) {
		return func(s *state.JobSpec) { s.Priority, s.Weight = p, weight }
	}
	low, one, three := jobOf("low", class(state.PriorityLow, 100)), jobOf("one", class(state.PriorityNormal, 1)), jobOf("three", class(state.PriorityNormal, 3))
	d.fill(low, 40, now)
	d.fill(one, 40, now)
	d.fill(three, 40, now)
	d.fill(jobOf("first", class(state.PriorityCritical, 1)), 8, now)

	runs, _ := d.dispatch(now)
	require.Equal(t, map[string]int{"first": 8}, turnOf(d, runs, state.Claimed))
	sum := map[string]int{}
	for range 4 {
		runs, _ = d.dispatch(now)
		for job, n := range turnOf(d, runs, state.Claimed) {
			sum[job] += n
		}
	}
	require.Equal(t, map[string]int{"one": 8, "three": 24}, sum)
	// That others have claimed three's runs costs it no turn.
	runs, _ = d.dispatch(now)
	require.Len(t, runs, 8)
	turnOf(d, runs, state.ClaimDecided)
	runs, _ = d.dispatch(now)
	require.Equal(t, map[string]int{"one": 2, "three": 6}, turnOf(d, runs, state.Claimed))
	for d.line.Len() > 40 { // until only low's are left
		runs, _ = d.dispatch(now)
		require.NotEmpty(t, runs)
		turnOf(d, runs, state.Claimed)
	}
	runs, _ = d.dispatch(now)
	require.Equal(t, map[string]int{"low": 8}, turnOf(d, runs, state.Claimed))
}

// Runs wait for what they need beside room, and others pass them.
func TestResources(t *testing.T) {
	d := newBareDesk(t, Config{Node: state.Node{Capacity: 100, Resources: state.Resources{"gpu": 3}}})
	now := time.Now().UnixNano()
	d.fill(jobOf("two", func(s *state.JobSpec) { s.Resources = state.Resources{"gpu": 2} }), 2, now-1)
	d.fill(jobOf("one", func(s *state.JobSpec) { s.Resources = state.Resources{"gpu": 1} }), 2, now)
	d.fill(jobOf("plain", nil), 2, now)
	first, _ := d.dispatch(now)
	names := map[string]int{}
	for _, r := range first {
		names[r.entry.key.job.Name]++
	}
	require.Equal(t, map[string]int{"two": 1, "one": 1, "plain": 2}, names)
	require.Equal(t, state.Resources{"gpu": 0}, d.spare)
	d.fill(jobOf("plain", nil), 3, now+10)
	runs, _ := d.dispatch(now + 20)
	require.Len(t, runs, 3, "what needs nothing goes on")
	turnOf(d, runs, state.Claimed)
	turnOf(d, first, state.Claimed)
	require.Equal(t, state.Resources{"gpu": 3}, d.spare)
	runs, _ = d.dispatch(now + 20)
	require.Equal(t, map[string]int{"two": 1, "one": 1}, turnOf(d, runs, state.Claimed))
	require.Zero(t, d.line.Len())
}

// The leader is told what is lacking, once.
func TestLackIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, c *Config) {
			c.Node.Capacity, c.Node.Resources = 10, state.Resources{"gpu": 1}
		})
		r.work.hook = obedient(time.Minute)
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, func(s *state.JobSpec) { s.Resources = state.Resources{"gpu": 1} }),
			&workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: 0, Shards: 2}, &workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: 1, Shards: 2})
		until(due.Add(3 * time.Second))
		var lack []string
		for _, p := range l.reports() {
			if p.GetStep() == stepBusy {
				lack = append(lack, p.GetLack())
			}
		}
		require.Equal(t, []string{"gpu"}, lack)
		r.close()
	})
}

// What waits for other runs is remembered once, and only as long as it waits.
func TestParkedOnce(t *testing.T) {
	d := newBareDesk(t, Config{Node: state.Node{Capacity: 8}})
	sp := jobOf("a", func(s *state.JobSpec) { s.Overlap, s.MaxConcurrent = state.OverlapQueue, 2 })
	for i := range 2 {
		e := entryDue(sp, i, d.wall())
		e.key.run, e.plan.queued = state.RunID(fmt.Sprint(i)), true
		d.entries[e.key] = e
		d.enqueue(e, later, d.wall())
	}
	soon := func() int64 { return d.wall() + int64(2*maxRefused) }
	for range 20 {
		runs, _ := d.dispatch(soon())
		require.Len(t, runs, 2)
		require.Empty(t, d.parked)
		turnOf(d, runs, state.ClaimHeld)
		require.Len(t, d.parked[sp.scope], 2)
	}
	d.unpark(sp.scope)
	require.Empty(t, d.parked)
	runs, _ := d.dispatch(soon())
	require.Len(t, runs, 2)
	turnOf(d, runs, state.ClaimHeld)
	require.Len(t, d.parked[sp.scope], 2)
	sp.revoked = true
	d.dispatch(soon())
	require.Empty(t, d.parked)
	require.Empty(t, d.entries)
}
