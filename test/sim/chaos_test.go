package sim

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/test/sim/exact"
)

var (
	seedFlag    = flag.Uint64("seed", 1, "first seed of the random runs")
	seedsFlag   = flag.Uint64("seeds", 12, "how many seeds")
	freshFlag   = flag.Uint64("fresh", 3, "how many further seeds that nobody has seen before")
	hoursFlag   = flag.Float64("hours", 0, "virtual hours of each seed; 0: ten minutes")
	jobsFlag    = flag.Int("jobs", 6, "how many jobs at a time")
	withoutFlag = flag.String("without", "", "kinds of faults and changes to leave out, separated by commas")
	wildFlag    = flag.Bool("wild", false, "clocks that are wrong by minutes, not by seconds")
	dumpFlag    = flag.String("dump", "", "file that gets all that the nodes log, debug messages too")
)

// TestRandom runs clusters under random faults and checks all invariants.
// A failed seed names the command that repeats it.
func TestRandom(t *testing.T) {
	length := 10 * time.Minute
	if *hoursFlag > 0 {
		length = time.Duration(*hoursFlag * float64(time.Hour))
	}
	var seeds []uint64
	for i := range *seedsFlag {
		seeds = append(seeds, *seedFlag+i)
	}
	if !exact.On {
		fresh := uint64(time.Now().UnixMilli())
		for i := range *freshFlag {
			seeds = append(seeds, fresh+i)
		}
	}
	without := strings.FieldsFunc(*withoutFlag, func(r rune) bool { return r == ',' })
	for _, kind := range without {
		require.True(t, slices.ContainsFunc(acts, func(a act) bool { return a.kind == kind }), "no kind %q", kind)
	}
	if exact.On && !t.Run("warm", warmUp) {
		t.FailNow()
	}
	for _, seed := range seeds {
		if exact.On && t.Failed() {
			break // what comes next would begin in another process
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			var digest uint64
			begin()
			// It is written at the end: a system call is no part of the simulation.
			var dump *bytes.Buffer
			if *dumpFlag != "" {
				dump = &bytes.Buffer{}
				defer func() { require.NoError(t, os.WriteFile(*dumpFlag, dump.Bytes(), 0o600)) }()
			}
			inBubble(t, func(t *testing.T, w *world) {
				exact.Begin(seed)
				if dump != nil {
					w.log.all, w.level = dump, hclog.Debug
				}
				c := newChaos(w, seed, without)
				defer func() { t.Logf("seed %d: %s", seed, c.summary()) }()
				c.run(length)
				digest = w.digest()
			})
			if !t.Failed() {
				fmt.Printf("seed %d held, digest %016x\n", seed, digest)
			} else {
				t.Logf("repeat it: make sim SEEDS=1 SEED=%d HOURS=%g", seed, length.Hours())
			}
		})
	}
}

// chaos is a random run.
type chaos struct {
	w       *world
	rng     *rand.Rand
	without []string
	deck    []int // acts by weight
	jobs    []*job
	names   int
	faulty  bool
	nonce   uint32
	fills   []fill
	// heal are what ends passing faults, by when.
	heal []remedy
	// wild lets clocks be wrong by minutes.
	wild bool
	// quiet leaves out schedules of every few seconds, so that there is time for more
	// hours.
	quiet     bool
	acted     int
	collected time.Time
}

type remedy struct {
	at time.Time
	do func()
}

func newChaos(w *world, seed uint64, without []string) *chaos {
	c := &chaos{w: w, rng: rand.New(rand.NewPCG(seed, 17)), without: without}
	if c.chance(25) {
		w.plan = planner.Config{MaxOpen: 100}
	}
	// Signs of life make most of the traffic, and cost most of the time.
	w.plan.PulseInterval = pick(c, time.Second, 5*time.Second, 5*time.Second)
	if c.chance(60) {
		// What is kept is little, so that an hour is long enough for it to go.
		w.plan.ClosedBehind = pick(c, time.Minute, 2*time.Minute, 10*time.Minute)
		w.plan.Retention.Period = pick(c, 5*time.Second, time.Minute)
		w.plan.Retention.MaxRuns = pick(c, 1, 10, 60, 1000)
		w.plan.Retention.MaxAge = pick(c, 10*time.Minute, 30*24*time.Hour)
	}
	w.history.hookTakes = pick(c, 0, 200*time.Millisecond, 2*time.Second, 5*time.Second)
	w.election = pick(c, electionTTL, 10*time.Second)
	w.registration = pick(c, registrationTTL, 10*time.Second)
	c.wild, c.quiet = *wildFlag, c.chance(60)
	for i, a := range acts {
		for range a.weight {
			c.deck = append(c.deck, i)
		}
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
	c.live(length)
	c.settle()
	c.w.verify(true)
}

// live does something random now and then, for length.
func (c *chaos) live(length time.Duration) {
	for range 3 {
		c.startControl()
	}
	for range 3 {
		c.startWorker()
	}
	c.calendar()
	for range *jobsFlag {
		c.createJob()
	}
	calm := pick(c, 4*time.Second, 15*time.Second, 40*time.Second)
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.w.pass(c.span(time.Millisecond, calm))
		c.remedies(time.Now())
		c.act()
		c.collect()
	}
}

// summary is what a run was like; the digest tells runs apart.
func (c *chaos) summary() string {
	return fmt.Sprintf("%d acts, %d events, %d pieces of work, digest %016x",
		c.acted, len(c.w.audit.all()), len(c.w.history.all()), c.w.digest())
}

// collect collects garbage where the process does not by itself: see package
// exact. All other goroutines stand still.
func (c *chaos) collect() {
	if exact.On && time.Since(c.collected) > 10*time.Minute {
		c.collected = time.Now()
		c.w.pass(0)
		runtime.GC()
	}
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
	c.w.client.set(0)
	c.remedies(time.Now().Add(24 * time.Hour))
	c.setFaults(false)
	c.w.net.setLatency(0)
	for _, h := range c.w.hosts {
		h.set(0)
	}
	for len(c.w.controls) < 2 {
		c.startControl()
	}
	for len(c.w.workers) < 3 {
		c.startWorker()
	}
	c.w.pass(150 * time.Second)
}

// act does one random thing.
func (c *chaos) act() {
	a := acts[c.deck[c.rng.IntN(len(c.deck))]]
	if slices.Contains(c.without, a.kind) {
		return
	}
	c.acted++
	a.do(c)
}

func (c *chaos) createJob() {
	c.names++
	j := newJob(fmt.Sprint("j", c.names))
	c.respec(j)
	c.follow(j)
	c.jobs = append(c.jobs, j)
	c.employ(j)
	c.w.put(j)
}

// employ says what the runs of a job do.
func (c *chaos) employ(j *job) {
	takes := pick(c, 0, 100*time.Millisecond, 3*time.Second, 20*time.Second, 45*time.Second, 3*time.Minute)
	c.uneven(j, takes)
	switch c.rng.IntN(10) {
	case 0:
		c.w.history.crashes(j, takes, func() { panic("the work panics") })
	case 1:
		c.w.history.crashes(j, takes, runtime.Goexit)
	case 2, 3:
		c.w.history.does(j, takes, state.StateFailed)
	case 4:
		c.w.history.says(j, takes, state.StateFailed, state.Directive{RetryAfter: c.span(time.Millisecond, time.Minute)})
	case 5:
		c.w.history.says(j, takes, state.StateSucceeded, state.Directive{Snooze: c.span(time.Second, time.Minute)})
	case 6, 7:
		c.w.history.saves(j, max(takes, time.Second), pick(c, 4, 10))
	default:
		c.w.history.does(j, takes, state.StateSucceeded)
	}
}

// schedules are drawn from with equal chances: mostly slow ones, so that hours
// pass quickly. The first few are fast.
var schedules = []string{
	"* * * * * *", "*/3 * * * * *", "@every 7s", "*/20 * * * * *", "*/20 * * * * *", "@every 45s", "* * * * *",
	"* * * * *", "* * * * *", "*/2 * * * *", "*/5 * * * *", "@every 11m", "@every 1h",
}

const fast = 3

func (c *chaos) respec(j *job) {
	j.with(func(s *state.JobSpec) {
		s.Schedules = []string{pick(c, schedules...)}
		if c.quiet {
			s.Schedules = []string{pick(c, schedules[fast:]...)}
		}
		if c.chance(10) {
			s.Schedules = append(s.Schedules, "@every 11s")
		}
		c.gate(s)
		s.CatchUp = pick(c, state.CatchUpLatest, state.CatchUpLatest, state.CatchUpNone, state.CatchUpAll)
		s.CatchUpLimit = pick(c, 0, 2, 20)
		s.CatchUpWindow = pick(c, 0, 0, 20*time.Second)
		s.Jitter = pick(c, 0, 0, 0, 900*time.Millisecond, 20*time.Second, 3*time.Minute)
		s.ExcludedCalendars, s.OnlyCalendars = nil, nil
		if c.chance(20) {
			s.ExcludedCalendars = []string{"quiet"}
		} else if c.chance(10) {
			s.OnlyCalendars = []string{"quiet"}
		}
		s.Start, s.End = time.Time{}, time.Time{}
		if c.chance(15) {
			s.Start = time.Now().Add(c.span(-time.Minute, 2*time.Minute)).UTC()
		}
		if c.chance(15) {
			s.End = time.Now().Add(c.span(2*time.Minute, 10*time.Minute)).UTC()
		}
		s.Guarantee = pick(c, state.AtLeastOnce, state.AtMostOnce)
		s.StartDeadline = pick(c, 0, 5*time.Second, 30*time.Second)
		s.Selector = pick(c, nil, nil, nil, map[string]string{"zone": "a"}, map[string]string{"zone": "z"})
		s.PauseAfterFailures = pick(c, 0, 0, 0, 0, 0, 0, 2, 5)
		s.Timeout = pick(c, 0, 0, time.Minute)
		c.retry(s)
		s.Drain = state.DrainWait
		if s.Guarantee == state.AtLeastOnce && c.chance(40) {
			s.Drain = state.DrainHandover
		}
		c.shards(s)
		c.breaker(s)
		c.outlast(s)
		s.Resources = pick(c, nil, nil, nil, nil, state.Resources{"gpu": 1}, state.Resources{"gpu": 2})
		s.Preference = pick(c, nil, nil, map[string]string{"disk": "fast"})
		if s.Shards != nil && s.Shards.Broadcast {
			s.Preference = nil
		}
	})
}

// retry draws what follows an attempt that went wrong.
func (c *chaos) retry(s *state.JobSpec) {
	s.Retry, s.RunTimeout, s.QueueTimeout = nil, pick(c, 0, 0, 0, 40*time.Second, 2*time.Minute), 0
	if s.Guarantee == state.AtLeastOnce && c.chance(60) {
		s.Retry = &state.Retry{
			MaxAttempts: pick(c, 1, 2, 3, 10), InitialBackoff: pick(c, 0, 100*time.Millisecond, 2*time.Second),
			MaxBackoff: pick(c, 0, 20*time.Second),
		}
	}
	s.DeadLetter = pick(c, nil, nil, &state.DeadLetterPolicy{Keep: 2}, &state.DeadLetterPolicy{})
	if gate := s.Gate(); gate.Queues() || len(s.Limits) > 0 {
		s.QueueTimeout = pick(c, 0, 0, 5*time.Second, 30*time.Second)
	}
}

// shards splits the runs of some jobs.
func (c *chaos) shards(s *state.JobSpec) {
	s.Shards = nil
	if !c.chance(25) {
		return
	}
	s.Shards = &state.Shards{Count: pick(c, 1, 2, 3, 5), StopOnFailure: c.chance(50)}
	switch {
	case c.chance(20):
		s.Shards.Count, s.Shards.Broadcast = 0, true
	case c.chance(25):
		s.Shards.Count, s.Shards.Dynamic = 0, &state.Listing{Max: pick(c, 0, 2)}
		s.Shards.MinSuccess = pick(c, 0, 0, 1)
	case c.chance(30):
		s.Shards.MinSuccess = 1
	}
}

// gate draws an overlap policy.
func (c *chaos) gate(s *state.JobSpec) {
	s.MaxConcurrent, s.QueueLimit, s.ConcurrencyKey = 0, 0, ""
	s.Overlap = pick(c, state.OverlapSkip, state.OverlapSkip, state.OverlapAllow, state.OverlapAllow, state.OverlapQueue,
		state.OverlapQueue, state.OverlapCancel, state.OverlapReplace)
	if s.Overlap != state.OverlapCancel && c.chance(40) {
		s.MaxConcurrent = pick(c, 1, 2, 3)
	}
	if s.Overlap == state.OverlapQueue {
		s.QueueLimit = pick(c, 0, 1, 3, state.MaxQueue)
	}
	if s.Limit() > 0 && c.chance(25) {
		s.ConcurrencyKey = pick(c, "red", "blue")
	}
	s.Limits = nil
	if c.chance(25) {
		s.Limits = append(s.Limits, state.Limit{Name: pick(c, "few", "many"), Cluster: c.chance(30), Max: pick(c, 1, 2, 5)})
	}
	if c.chance(10) {
		s.Limits = append(s.Limits, state.Limit{Name: "slow", Rate: state.Rate{
			Runs: pick(c, 1, 10), Per: pick(c, time.Second, 10*time.Second), Burst: pick(c, 0, 3),
		}})
	}
	if gate := s.Gate(); !gate.Queues() && len(s.Limits) > 0 {
		s.Limits[0].PerKey = c.chance(50)
	}
	s.Priority = pick(c, state.PriorityNormal, state.PriorityNormal, state.PriorityCritical, state.PriorityHigh, state.PriorityLow)
	s.Weight = pick(c, 0, 1, 100)
}

func (c *chaos) anyJob() *job {
	if len(c.jobs) == 0 {
		c.createJob()
	}
	return pick(c, c.jobs...)
}
