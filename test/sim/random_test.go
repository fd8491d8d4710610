package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "first seed of the random runs")
	seedsFlag = flag.Uint64("seeds", 20, "how many seeds")
	hoursFlag = flag.Float64("hours", 0, "virtual hours of each seed; 0: ten minutes")
)

// TestRandom runs clusters under random faults and checks all invariants. A
// violation names its seed: go test ./test/sim -run 'TestRandom/N$' -seed N.
func TestRandom(t *testing.T) {
	length := 10 * time.Minute
	if *hoursFlag > 0 {
		length = time.Duration(*hoursFlag * float64(time.Hour))
	}
	for seed := *seedFlag; seed < *seedFlag+*seedsFlag; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) { newChaos(w, seed).run(length) })
		})
	}
}

// chaos is a random run.
type chaos struct {
	w      *world
	rng    *rand.Rand
	jobs   []*job
	names  int
	faulty bool
	nonce  uint32
	// heal are what ends passing faults, by when.
	heal []remedy
}

type remedy struct {
	at time.Time
	do func()
}

func newChaos(w *world, seed uint64) *chaos {
	c := &chaos{w: w, rng: rand.New(rand.NewPCG(seed, 17))}
	if c.rng.IntN(4) == 0 {
		w.plan = planner.Config{MaxOpen: 100}
	}
	return c
}

func (c *chaos) chance(percent int) bool { return c.rng.IntN(100) < percent }

func (c *chaos) span(from, to time.Duration) time.Duration {
	return from + time.Duration(c.rng.Int64N(int64(to-from)+1))
}

func pick[T any](c *chaos, from ...T) T { return from[c.rng.IntN(len(from))] }

// run does something random now and then, for length, then lets everything heal
// and checks.
func (c *chaos) run(length time.Duration) {
	for range 3 {
		c.startControl()
	}
	for range 3 {
		c.startWorker()
	}
	for range 8 {
		c.createJob()
	}
	calm := pick(c, 2*time.Second, 8*time.Second, 20*time.Second)
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.w.pass(c.span(time.Millisecond, calm))
		c.remedies(time.Now())
		c.act()
	}
	c.settle()
	c.w.verify(true)
	c.w.t.Logf("digest %016x", c.w.digest())
}

func (c *chaos) remedies(now time.Time) {
	c.heal = slices.DeleteFunc(c.heal, func(r remedy) bool {
		if r.at.After(now) {
			return false
		}
		r.do()
		return true
	})
}

func (c *chaos) later(d time.Duration, do func()) {
	c.heal = append(c.heal, remedy{time.Now().Add(d), do})
}

// settle heals all faults and waits until a sweep must have found what is left.
func (c *chaos) settle() {
	c.remedies(time.Now().Add(time.Hour))
	c.setFaults(false)
	for len(c.w.controls) < 2 {
		c.startControl()
	}
	for len(c.w.workers) < 3 {
		c.startWorker()
	}
	c.w.pass(150 * time.Second)
}

func (c *chaos) startControl() {
	c.names++
	n := c.w.control(fmt.Sprint("c", c.names))
	c.dirty(n.link)
}

// startWorker starts an executor under a name that is free, often an earlier one.
func (c *chaos) startWorker() {
	for _, i := range c.rng.Perm(5) {
		name := fmt.Sprint("e", i)
		if c.w.workers[name] == nil && !c.w.draining(name) {
			x := c.w.worker(name, place{
				labels:   map[string]string{"zone": pick(c, "a", "b")},
				capacity: pick(c, 2, 10, 1000),
				grace:    pick(c, time.Second, 10*time.Second),
			})
			c.dirty(x.link)
			return
		}
	}
}

func (c *chaos) createJob() {
	c.names++
	j := newJob(fmt.Sprint("j", c.names))
	c.respec(j)
	c.jobs = append(c.jobs, j)
	takes := pick(c, 0, 100*time.Millisecond, 3*time.Second, 20*time.Second, 45*time.Second)
	c.w.history.does(j, takes, pick(c, state.StateSucceeded, state.StateSucceeded, state.StateFailed))
	c.w.put(j)
}

func (c *chaos) respec(j *job) {
	j.with(func(s *state.JobSpec) {
		s.Schedules = []string{pick(c, "* * * * * *", "*/3 * * * * *", "@every 7s", "*/20 * * * * *", "* * * * *", "@every 1h")}
		if c.chance(10) {
			s.Schedules = append(s.Schedules, "@every 11s")
		}
		s.Overlap = pick(c, state.OverlapSkip, state.OverlapAllow)
		s.CatchUp = pick(c, state.CatchUpLatest, state.CatchUpLatest, state.CatchUpNone)
		s.Guarantee = pick(c, state.AtLeastOnce, state.AtMostOnce)
		s.StartDeadline = pick(c, 0, 5*time.Second, 30*time.Second)
		s.Selector = pick(c, nil, nil, nil, map[string]string{"zone": "a"}, map[string]string{"zone": "z"})
		s.Timeout = pick(c, 0, 0, time.Minute)
	})
}

func (c *chaos) anyJob() *job {
	if len(c.jobs) == 0 {
		c.createJob()
	}
	return pick(c, c.jobs...)
}

func (c *chaos) anyWorker() *worker {
	for _, i := range c.rng.Perm(5) {
		if x := c.w.workers[fmt.Sprint("e", i)]; x != nil {
			return x
		}
	}
	c.startWorker()
	return c.anyWorker()
}

func (c *chaos) anyControl() *control {
	for i := range c.names + 1 {
		if n := c.w.controls[fmt.Sprint("c", i)]; n != nil && c.chance(50) {
			return n
		}
	}
	if n := c.w.leader(); n != nil {
		return n
	}
	c.startControl()
	return c.w.controls[fmt.Sprint("c", c.names)]
}

func (c *chaos) dirty(l *link) {
	if !c.faulty {
		l.setFaults(nil)
		return
	}
	l.setFaults(&faults{
		rng:    rand.New(rand.NewPCG(c.rng.Uint64(), 1)),
		refuse: c.rng.IntN(60), lose: c.rng.IntN(40), vanish: c.rng.IntN(40), watch: c.rng.IntN(20),
		delay: pick(c, 0, 20*time.Millisecond, 300*time.Millisecond),
	})
}

func (c *chaos) setFaults(on bool) {
	c.faulty = on
	for _, x := range c.w.workers {
		c.dirty(x.link)
	}
	for _, n := range c.w.controls {
		c.dirty(n.link)
	}
}

// act does one random thing.
func (c *chaos) act() {
	w := c.w
	switch c.rng.IntN(24) {
	case 0:
		if n := w.leader(); n != nil {
			n.kill()
		}
	case 1:
		c.anyControl().kill()
	case 2:
		c.anyControl().resign()
	case 3, 4:
		if len(w.controls) < 3 {
			c.startControl()
		}
	case 5:
		c.anyWorker().kill()
	case 6:
		c.anyWorker().drain()
	case 7, 8:
		if len(w.workers) < 4 {
			c.startWorker()
		}
	case 9:
		x := c.anyWorker()
		x.wire.freeze()
		c.later(c.span(0, 10*time.Second), x.wire.thaw)
	case 10:
		c.anyWorker().wire.cut(false)
	case 11:
		c.anyWorker().revoke()
	case 12:
		c.revokeLeader()
	case 13:
		c.away(c.span(0, 10*time.Second), c.anyWorker().link)
	case 14:
		c.away(c.span(0, 10*time.Second), c.anyControl().link)
	case 15:
		if c.chance(30) {
			c.outage(c.span(5*time.Second, 80*time.Second))
		}
	case 16:
		c.setFaults(!c.faulty)
	case 17:
		c.compact()
	case 18, 19:
		j := c.anyJob()
		c.nonce++
		run := state.TriggerRunID(time.Now(), c.nonce)
		// A paused job refuses.
		_, _ = w.api.PutPending(w.ctx, state.Pending{
			Job: j.id, Run: run, Requested: time.Now(), Actor: "chaos", AllowOverlap: c.chance(20),
		})
	case 20:
		j := c.anyJob()
		c.respec(j)
		w.put(j)
	case 21:
		w.pause(c.anyJob())
	case 22:
		w.resume(c.anyJob())
	case 23:
		i := c.rng.IntN(len(c.jobs))
		j := c.jobs[i]
		w.delete(j)
		if c.chance(50) {
			w.put(j) // another one of the same name
			return
		}
		c.jobs = slices.Delete(c.jobs, i, i+1)
		c.createJob()
	}
}

func (c *chaos) revokeLeader() {
	if n := c.w.leader(); n != nil {
		_ = c.w.mem.Revoke(c.w.ctx, leaseOf(n))
	}
}

// away makes the store unreachable over links for a while.
func (c *chaos) away(d time.Duration, links ...*link) {
	for _, l := range links {
		l.setDown(true)
	}
	c.later(d, func() {
		for _, l := range links {
			l.setDown(false)
		}
	})
}

// outage takes the store away from everybody.
func (c *chaos) outage(d time.Duration) {
	var links []*link
	for _, x := range c.w.workers {
		links = append(links, x.link)
	}
	for _, n := range c.w.controls {
		links = append(links, n.link)
	}
	c.away(d, links...)
}

func (c *chaos) compact() {
	c.w.pass(0)
	if res, err := c.w.mem.Range(c.w.ctx, store.DefaultPrefix, "", rangeAll); err == nil {
		_ = c.w.mem.Compact(c.w.ctx, res.Revision)
	}
}
