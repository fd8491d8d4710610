package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// act is one kind of what a random run does.
type act struct {
	kind   string
	weight int
	do     func(*chaos)
}

var acts = []act{
	{"crash", 3, (*chaos).crash},
	{"leave", 2, (*chaos).leave},
	{"join", 4, (*chaos).join},
	{"pause", 3, (*chaos).pause},
	{"split", 3, (*chaos).split},
	{"reset", 1, func(c *chaos) { c.anyWorker().wire.cut(false) }},
	{"latency", 1, func(c *chaos) { c.w.net.setLatency(pick(c, 0, 20*time.Millisecond, 400*time.Millisecond)) }},
	{"away", 2, (*chaos).storeAway},
	{"oneway", 3, (*chaos).oneWay},
	{"outage", 1, (*chaos).outage},
	{"flaky", 1, func(c *chaos) { c.setFaults(!c.faulty) }},
	{"lease", 2, (*chaos).loseLease},
	{"compact", 1, (*chaos).compact},
	{"clock", 3, (*chaos).clock},
	{"trigger", 3, (*chaos).trigger},
	{"submit", 2, (*chaos).submit},
	{"adhoc", 1, (*chaos).adhoc},
	{"edit", 2, (*chaos).edit},
	{"cancel", 1, (*chaos).cancel},
	{"halt", 1, func(c *chaos) { c.w.pause(c.anyJob()) }},
	{"backfill", 2, (*chaos).backfill},
	{"unfill", 1, (*chaos).unfill},
	{"nap", 1, (*chaos).nap},
	{"resume", 1, func(c *chaos) { c.w.resume(c.anyJob()) }},
	{"delete", 1, (*chaos).deleteJob},
	{"calendar", 1, (*chaos).calendar},
	{"redo", 3, (*chaos).redo},
	{"breaker", 1, (*chaos).resetCircuit},
	{"work", 1, func(c *chaos) { c.employ(c.anyJob()) }},
}

// crash ends a node at once.
func (c *chaos) crash() {
	switch n := c.w.leader(); {
	case n != nil && c.chance(40):
		n.kill()
	case c.chance(40):
		c.anyControl().kill()
	default:
		c.anyWorker().kill()
	}
}

// leave ends a node in order.
func (c *chaos) leave() {
	if c.chance(40) {
		n := c.anyControl()
		n.host.resume()
		n.resign()
		return
	}
	x := c.anyWorker()
	x.host.resume()
	x.drain()
}

func (c *chaos) join() {
	if c.chance(50) && len(c.w.controls) < 3 {
		c.startControl()
	}
	if len(c.w.workers) < 4 {
		c.startWorker()
	}
}

// pause has a node stand still, for longer than its lease lasts, or not.
func (c *chaos) pause() {
	h := c.anyHost()
	h.pause()
	c.later(c.span(0, pick(c, 2*time.Second, 8*time.Second, 30*time.Second)), h.resume)
}

// split keeps what a control node and an executor send from getting through, in
// one direction or both; the executor may hear no control node at all.
func (c *chaos) split() {
	x, from, to := c.anyWorker(), c.anyControl().name, ""
	if c.chance(30) {
		from = anybody
	}
	to = x.name
	both := c.chance(40)
	if c.chance(50) {
		from, to = to, from
	}
	c.w.net.block(from, to, true)
	if both {
		c.w.net.block(to, from, true)
	}
	c.later(c.span(0, 12*time.Second), func() {
		c.w.net.block(from, to, false)
		c.w.net.block(to, from, false)
	})
}

func (c *chaos) anyLink() *link {
	if c.chance(50) {
		return c.anyWorker().link
	}
	return c.anyControl().link
}

func (c *chaos) anyHost() *host { return c.anyLink().host }

// storeAway has the store refuse a node for a while.
func (c *chaos) storeAway() { c.away(c.span(0, 10*time.Second), c.anyLink()) }

// oneWay keeps a node's requests from getting to the store, or the answers from
// getting back.
func (c *chaos) oneWay() {
	l, deaf := c.anyLink(), c.chance(60)
	l.setDeafMute(deaf, !deaf || c.chance(20))
	c.later(c.span(0, pick(c, 3*time.Second, 15*time.Second)), func() { l.setDeafMute(false, false) })
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
func (c *chaos) outage() {
	if !c.chance(30) {
		return
	}
	var links []*link
	for _, x := range c.w.workers {
		links = append(links, x.link)
	}
	for _, n := range c.w.controls {
		links = append(links, n.link)
	}
	c.away(c.span(5*time.Second, 80*time.Second), links...)
}

// loseLease ends leases behind their owners' backs.
func (c *chaos) loseLease() {
	which := c.rng.IntN(10)
	if which < 6 {
		if n := c.w.leader(); n != nil {
			_ = c.w.mem.Revoke(c.w.ctx, leaseOf(n))
		}
	}
	if which == 6 {
		for _, x := range c.w.workers {
			x.revoke()
		}
	}
	if which > 6 {
		c.anyWorker().revoke()
	}
}

// compact forgets the store's history. A watch that is behind by then, because
// its node stands still or cannot hear, has to begin anew.
func (c *chaos) compact() {
	c.w.pass(0)
	if res, err := c.w.mem.Range(c.w.ctx, store.DefaultPrefix, "", kv.RangeOptions{KeysOnly: true}); err == nil {
		_ = c.w.mem.Compact(c.w.ctx, res.Revision)
	}
}

// clock sets a node's clock, or that of who changes jobs: it is a few seconds
// wrong, forwards or back; in wild runs by minutes, which is found out soon.
func (c *chaos) clock() {
	h := c.anyHost()
	if c.chance(20) {
		h = c.w.client
	}
	most := pick(c, 100*time.Millisecond, time.Second, 7*time.Second)
	skew := c.span(-most, most)
	if c.wild && c.chance(50) {
		skew = c.span(-90*time.Second, 90*time.Second)
		if c.chance(10) {
			skew *= 20
		}
		c.later(c.span(0, time.Minute), func() { c.w.setClock(h, 0) })
	}
	c.w.setClock(h, skew)
}

func (c *chaos) trigger() {
	j := c.anyJob()
	for range pick(c, 1, 1, 1, 3) {
		c.nonce++
		// A paused job refuses.
		_, _ = c.w.api.PutPending(c.w.ctx, state.Pending{
			Job: j.id, Run: state.TriggerRunID(time.Now(), c.nonce), Requested: time.Now(), Actor: "chaos",
			AllowOverlap: c.chance(20),
		})
	}
}

// nap pauses a job for a while, after which it resumes by itself.
func (c *chaos) nap() {
	until := c.w.client.wall().Add(c.span(0, pick(c, 5*time.Second, time.Minute, 5*time.Minute)))
	c.w.pauseUntil(c.anyJob(), until)
}

// backfill runs past slots of a job, which may be paused.
func (c *chaos) backfill() {
	j := c.anyJob()
	c.nonce++
	concurrency, override := pick(c, 1, 1, 3), c.chance(20)
	id, err := c.w.backfill(j, c.nonce, longAgo(pick(c, 1, 5, 40)), func(b *state.Backfill) {
		b.Concurrency, b.OverrideOverlap = concurrency, override
	})
	if err == nil { // there may be too many
		c.fills = append(c.fills, fill{j.id, id})
	}
}

// fill is a backfill that a random run made.
type fill struct {
	job state.JobID
	id  state.BackfillID
}

// unfill cancels one of them.
func (c *chaos) unfill() {
	if len(c.fills) > 0 {
		f := pick(c, c.fills...)
		_, _ = c.w.api.CancelBackfill(c.w.ctx, f.job, f.id, "chaos", "", c.nonce%2 == 0, time.Now())
	}
}

// cancel asks for the end of any run that is not over, the oldest of its job.
func (c *chaos) cancel() {
	j := c.anyJob()
	page, err := c.w.api.ListRuns(c.w.ctx, store.ListRuns{
		Namespace: j.id.Namespace, Job: j.id.Name, Limit: 20,
		Match: func(e *store.RunEntry) bool { return e.Pending != nil || len(e.Live) > 0 },
	})
	if err != nil || len(page.Runs) == 0 {
		return
	}
	// One that is over meanwhile is refused.
	_, _ = c.w.api.CancelRun(c.w.ctx, state.Cancel{
		Job: j.id, Run: page.Runs[len(page.Runs)-1].Run, Requested: time.Now(), Actor: "chaos", Reason: state.ReasonRequested,
	})
}

func (c *chaos) edit() {
	j := c.anyJob()
	c.respec(j)
	c.w.put(j)
}

// calendar has a calendar say something else, of which jobs may be in the midst.
func (c *chaos) calendar() {
	from := time.Now().Add(c.span(-time.Minute, time.Minute)).UTC()
	c.w.putCalendar("quiet", period(from, from.Add(c.span(time.Second, 3*time.Minute))))
}

func (c *chaos) deleteJob() {
	if len(c.jobs) == 0 {
		return
	}
	i := c.rng.IntN(len(c.jobs))
	j := c.jobs[i]
	if c.followed(j) {
		return
	}
	c.w.delete(j)
	if c.chance(50) {
		c.w.put(j) // another one of the same name
		return
	}
	c.jobs = slices.Delete(c.jobs, i, i+1)
	c.createJob()
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
				labels:   map[string]string{"zone": pick(c, "a", "b"), "disk": pick(c, "fast", "slow")},
				capacity: pick(c, 2, 10, 1000),
				has:      state.Resources{"gpu": pick(c, 1, 2, 4)},
				grace:    pick(c, time.Second, 10*time.Second),
			})
			c.dirty(x.link)
			return
		}
	}
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

// anyControl prefers the leader.
func (c *chaos) anyControl() *control {
	if n := c.w.leader(); n != nil && c.chance(50) {
		return n
	}
	if len(c.w.controls) == 0 {
		c.startControl()
	}
	names := make([]string, 0, len(c.w.controls))
	for name := range c.w.controls {
		names = append(names, name)
	}
	slices.Sort(names)
	return c.w.controls[pick(c, names...)]
}

func (c *chaos) dirty(l *link) {
	if !c.faulty {
		l.setFaults(nil)
		return
	}
	l.setFaults(&faults{
		rng:    rand.New(rand.NewPCG(c.rng.Uint64(), 1)),
		refuse: c.rng.IntN(60), lose: c.rng.IntN(40), vanish: c.rng.IntN(40), late: c.rng.IntN(40),
		watch: c.rng.IntN(20),
		delay: pick(c, 0, 20*time.Millisecond, 300*time.Millisecond, 2*time.Second),
	})
}

func (c *chaos) setFaults(on bool) {
	c.faulty = on
	for _, name := range []string{"e0", "e1", "e2", "e3", "e4"} {
		if x := c.w.workers[name]; x != nil {
			c.dirty(x.link)
		}
	}
	for i := range c.names + 1 {
		if n := c.w.controls[fmt.Sprint("c", i)]; n != nil {
			c.dirty(n.link)
		}
	}
}
