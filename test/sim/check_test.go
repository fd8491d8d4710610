package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	past "github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/state"
)

const clockLayout = "15:04:05"

// staleWatch is how long after a change a leader may yet give verdicts to slots
// of the version before: a silent watch is begun anew after that.
const staleWatch = 45 * time.Second

type runKey struct {
	job state.JobID
	run state.RunID
}

// claimed is a claim that was committed.
type claimed struct {
	state.Live
	at time.Time
}

// checker replays the audit and gathers what is wrong. Package history judges what
// was seen by its rules; here is what the audit alone shows: places and pending keys
// as they change, and that nothing is left over or held up when all is quiet.
type checker struct {
	skewed   time.Duration // the greatest error of a clock
	audit    []event
	versions map[state.JobID][]*version
	revoked  map[state.Owner]bool
	spans    []span
	// hookSpans are the hooks that ran.
	hookSpans []span
	acks      []state.Finish
	wrong     []string
	gone      []runKey // whose pending keys vanished at the revision before

	claims  []claimed
	live    map[runKey]state.Live         // of a run that is split its header
	shards  map[runKey]map[int]state.Live // of such a run
	listed  map[runKey]*state.Split       // what a first step has listed
	pending map[runKey]state.Pending
	asked   map[runKey]state.Pending // of all that ever were
	holds   map[string]runKey        // the run whose live record a key holds
	records map[runKey]state.Record
	swept   []removal        // verdicts that went from where they were written
	decided map[runKey]int64 // revision of the first record, live or verdict
	marks   []mark
	buckets map[state.LimitID]state.Bucket // the tokens of rates
	nodes   map[string]int64               // registered at the end
	// unrecorded is what executors began without a claim and have on their disks still.
	unrecorded map[runKey]bool
}

type mark struct {
	instant  time.Time
	revision int64
	term     int64
	jobs     int64
}

// check answers all violations of the invariants, so far. With settled every
// due slot up to now must be decided, and nothing may be without an owner.
func (w *world) check(settled bool) []string {
	w.t.Helper()
	c := w.replay()
	c.unrecorded = w.unrecorded()
	c.given()
	c.retention()
	c.circuits()
	c.hooks()
	c.chains(settled)
	cutoff := time.Time{}
	if len(c.marks) > 0 {
		cutoff = c.marks[len(c.marks)-1].instant
	}
	if now := time.Now(); cutoff.After(now) {
		cutoff = now // the leader's clock was fast
	}
	f := c.facts(cutoff, settled)
	if settled {
		c.leftovers()
		c.owners()
		c.lag(f, cutoff, time.Now())
		c.wrong = append(c.wrong, w.ghosts()...)
		c.wrong = append(c.wrong, w.readable(c)...)
	}
	c.judge(f)
	return c.wrong
}

// verify fails the test on violations.
func (w *world) verify(settled bool) {
	w.t.Helper()
	if wrong := w.check(settled); len(wrong) > 0 {
		more := ""
		if len(wrong) > 25 {
			wrong, more = wrong[:25], fmt.Sprintf("\n… and %d more", len(wrong)-25)
		}
		require.FailNow(w.t, "invariants are broken", "%s%s", strings.Join(wrong, "\n"), more)
	}
}

// fail notes what is wrong, in the form of package history.
func (c *checker) fail(rule past.Rule, k runKey, format string, args ...any) {
	c.wrong = append(c.wrong, violation(rule, k, format, args...))
}

func violation(rule past.Rule, k runKey, format string, args ...any) string {
	v := past.Violation{Invariant: rule.Invariant(), Rule: rule, Run: string(k.run), Text: fmt.Sprintf(format, args...)}
	if k.job != (state.JobID{}) {
		v.Job = k.job.String()
	}
	return v.String()
}

// replay goes through the store's events in order.
func (w *world) replay() *checker {
	w.t.Helper()
	c := &checker{
		skewed: w.skewed, audit: w.audit.all(), spans: w.history.all(), revoked: map[state.Owner]bool{},
		live:    map[runKey]state.Live{},
		shards:  map[runKey]map[int]state.Live{},
		listed:  map[runKey]*state.Split{},
		pending: map[runKey]state.Pending{},
		asked:   map[runKey]state.Pending{},
		holds:   map[string]runKey{},
		records: map[runKey]state.Record{},
		decided: map[runKey]int64{},
		nodes:   map[string]int64{},
		buckets: map[state.LimitID]state.Bucket{},
	}
	var err error
	c.versions, err = storedVersions(w.audit, c.audit)
	require.NoError(w.t, err)
	w.audit.mu.Lock()
	for owner := range w.audit.revoked {
		c.revoked[owner] = true
	}
	w.audit.mu.Unlock()
	w.history.mu.Lock()
	c.acks, c.hookSpans = slices.Clone(w.history.acks), slices.Clone(w.history.hooks)
	w.history.mu.Unlock()
	for i := range c.audit {
		e := &c.audit[i]
		if i > 0 && e.revision != c.audit[i-1].revision {
			c.dropped(e.revision)
		}
		c.take(i)
	}
	return c
}

// take takes event i in.
func (c *checker) take(i int) {
	e := &c.audit[i]
	kind, rest := e.part()
	switch kind {
	case "active":
		if e.Deleted {
			c.deleteLive(e)
			return
		}
		l, err := e.live()
		if err != nil {
			c.fail(past.Unreadable, runKey{}, "%s at revision %d: %v", e.KV.Key, e.revision, err)
			return
		}
		k := runKey{l.Job, l.Run}
		if _, ok := c.decided[k]; !ok {
			c.decided[k] = e.revision
		}
		c.holds[e.KV.Key] = k
		if l.Header != 0 {
			c.shard(e, l)
			return
		}
		if listing := c.list(e, l); !listing && l.State == state.StateRunning {
			c.claims = append(c.claims, claimed{l, e.at})
			if v := c.inForce(l.Job, e.revision); v != nil && l.Attempt == 1 {
				c.gated(&l, v)
			}
		}
		c.again(e, c.live[k], l)
		c.live[k] = l
	case "history":
		if e.Deleted {
			c.sweptAway(e, rest)
			return
		}
		r, err := e.record()
		if err != nil {
			c.fail(past.Unreadable, runKey{}, "%s at revision %d: %v", e.KV.Key, e.revision, err)
			return
		}
		k := runKey{r.Job, r.Run}
		if _, ok := c.decided[k]; !ok {
			c.decided[k] = e.revision
		}
		if was, ok := c.records[k]; ok { // what became of its hooks is noted in it
			c.noted(k, &was, &r)
			c.records[k] = r
			return
		}
		c.records[k] = r
		if was, ok := c.live[k]; ok && (was.DeadLetter && r.State.Dead()) != c.buried(i, rest) {
			c.fail(past.Changed, k, "has the verdict %s at revision %d with a dead letter %t, and was claimed with %t", r.State, e.revision,
				c.buried(i, rest), was.DeadLetter)
		}
		c.concluded(k, &r)
		delete(c.live, k)
		delete(c.shards, k)
	case "pending":
		c.wait(e)
	case "nodes":
		if e.Deleted {
			delete(c.nodes, rest)
		} else {
			c.nodes[rest] = e.KV.CreateRevision
		}
	case "timeline":
		if rest == "watermark" && !e.Deleted {
			m, err := e.watermark()
			if err != nil {
				c.fail(past.Unreadable, runKey{}, "the watermark at revision %d: %v", e.revision, err)
			}
			c.marks = append(c.marks, m)
		}
	}
}

func (c *checker) deleteLive(e *event) {
	k := c.holds[e.KV.Key]
	delete(c.holds, e.KV.Key)
	if _, ok := c.records[k]; ok || c.becameHeader(e, k) {
		return
	}
	// The verdict of the same transaction may come behind it.
	for i := range c.audit {
		o := &c.audit[i]
		if kind, rest := o.part(); o.revision == e.revision && kind == "history" && rest == k.job.Namespace+"/"+k.job.Name+"/"+string(k.run) {
			return
		}
	}
	c.fail(past.Lost, k, "its live record vanished at revision %d without a verdict", e.revision)
}

// again checks what follows one record of a run: a further attempt is not claimed
// before its time, and what counts against the job's policy is counted one by one.
func (c *checker) again(e *event, was, l state.Live) {
	if was.Run == "" || was.Shard != l.Shard {
		return
	}
	k := runKey{l.Job, l.Run}
	// The owner of the one before has set the time, and a leader has looked at it,
	// each by its own clock.
	if l.State == state.StateRunning && e.at.Before(was.NextTry.Add(-2*c.skewed)) {
		c.fail(past.Early, k, "attempt %d was claimed with token %d at %s, before its time, %s", l.Attempt, e.revision,
			e.at.UTC().Format(time.RFC3339Nano), was.NextTry.Format(time.RFC3339Nano))
	}
	used := l.Tries + l.Snoozes - was.Tries - was.Snoozes
	if used < 0 || used > 1 || used == 1 && l.State == state.StateRunning || l.Handovers() < 0 {
		c.fail(past.Again, k, "attempt %d has %d tries and %d snoozes at revision %d, after %d and %d", l.Attempt, l.Tries, l.Snoozes,
			e.revision, was.Tries, was.Snoozes)
	}
	if v := c.of(l.Job, l.Generation); v != nil && l.State == state.StateWaiting && l.Tries > was.Tries &&
		(v.Spec.Retry == nil || l.Tries >= v.Spec.Retry.MaxAttempts) {
		c.fail(past.Again, k, "waits after %d tries, though its job's policy is %+v", l.Tries, v.Spec.Retry)
	}
}

// owners checks that nothing is left to an owner that is gone.
func (c *checker) owners() {
	for k, shards := range c.shards {
		for _, l := range shards {
			if l.State == state.StateRunning && c.nodes[l.Owner.Node] != l.Owner.Revision {
				c.fail(past.Late, k, "shard %d is running on %s, which is gone", l.Shard, l.Owner.Node)
			}
		}
	}
	for k, l := range c.live {
		if l.State == state.StateRunning && c.nodes[l.Owner.Node] != l.Owner.Revision {
			c.fail(past.Late, k, "is running on %s, which is gone", l.Owner.Node)
		}
	}
}

// lag checks that the watermark is behind only where a slot that may yet start
// holds it.
func (c *checker) lag(f *past.Facts, mark, now time.Time) {
	first := now.Add(-time.Second) // that is due and has no record
	// What was decided just before the last mark may be news to the leader that wrote it.
	var heard int64
	if n := len(c.marks); n > 1 {
		heard = c.marks[n-2].revision
	}
	var jitter time.Duration
	for _, versions := range f.Jobs {
		for i := range versions {
			jitter = max(jitter, versions[i].Jitter)
		}
	}
	for _, o := range past.Owes(f, mark.Add(-jitter), first) {
		if !o.At.After(mark) || o.Decided != 0 && o.Decided <= heard {
			continue
		}
		if o.At.Before(first) {
			first = o.At
		}
		if late := now.Sub(o.At); o.Decided == 0 && late > o.Deadline+10*time.Second {
			c.wrong = append(c.wrong, past.Violation{
				Invariant: past.Overdue.Invariant(), Rule: past.Overdue, Job: o.Job, Run: slotID(o.Slot),
				Text: fmt.Sprintf("was due %s ago, might start for %s, and has no record", late, o.Deadline),
			}.String())
		}
	}
	if first.Sub(mark) > 3*time.Second {
		c.fail(past.Watermark, runKey{}, "the watermark is at %s, while the first slot without a record is %s",
			mark.Format(clockLayout), first.Format(clockLayout))
	}
}
