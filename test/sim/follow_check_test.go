package sim

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	past "github.com/leaderd/leaderd/internal/history"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// circuits replays what claims and verdicts do to circuits, by the pure rules, against
// what is stored: no claim was made while a circuit was open, each probe was the only one,
// and every end counted once.
func (c *checker) circuits() {
	model := map[string]state.Circuit{}
	live := map[runKey]state.Live{}
	over := map[runKey]bool{}
	key := func(l *state.Live) string {
		if l.Circuit.Target != "" {
			return l.Job.Namespace + "/target/" + l.Circuit.Target
		}
		return l.Job.Namespace + "/job/" + l.Job.Name
	}
	for from := 0; from < len(c.audit); {
		to := from
		for to < len(c.audit) && c.audit[to].revision == c.audit[from].revision {
			to++
		}
		for i := from; i < to; i++ {
			e := &c.audit[i]
			switch kind, _ := e.part(); {
			case e.Deleted:
			case kind == "active":
				l, err := e.live()
				k := runKey{l.Job, l.Run}
				if err != nil || l.Circuit == nil || l.Header != 0 {
					continue
				}
				if _, begun := live[k]; !begun {
					was := model[key(&l)]
					ok, probe := was.Admits(later(l.Due, l.Claimed))
					if !ok {
						c.fail(past.Unfenced, k, "was claimed with token %d while its circuit was %s: %+v", e.revision, was.State, was)
					} else if probe {
						model[key(&l)] = was.Probed(l.Job.Name, l.Run)
					}
				}
				live[k] = l
			case kind == "history":
				r, err := e.record()
				k := runKey{r.Job, r.Run}
				l, begun := live[k]
				if err != nil || !begun || over[k] {
					continue
				}
				over[k] = true
				was := model[key(&l)]
				model[key(&l)], _ = was.After(l.Circuit, l.Job.Name, l.Run, r.State, r.Recorded)
			}
		}
		for i := from; i < to; i++ {
			e := &c.audit[i]
			kind, rest := e.part()
			switch {
			case kind != "circuits":
			case e.Deleted:
				delete(model, rest) // reset, or by its job, or since it has nothing to tell
			default:
				stored, err := codec.UnmarshalCircuit(e.KV.Value)
				want := model[rest]
				want.Revision = 0
				if err != nil || stored != micros(want) {
					c.fail(past.Changed, runKey{}, "circuit %s is %+v at revision %d, and should be %+v (%v)", rest, stored, e.revision, want, err)
				}
			}
		}
		from = to
	}
}

// micros is a circuit as it can be stored.
func micros(c state.Circuit) state.Circuit {
	c.Opened, c.Until = codec.Time(codec.Micros(c.Opened)), codec.Time(codec.Micros(c.Until))
	return c
}

// hooked tells whether a write of a record only adds what became of a hook to the one
// before.
func hooked(was, is *state.Record) bool {
	if was.Run != is.Run || len(was.Hooks) != len(is.Hooks) {
		return false
	}
	n := 0
	for i := range is.Hooks {
		if was.Hooks[i].State == state.StateNone && is.Hooks[i].State != state.StateNone {
			n++
		}
	}
	a, b := *was, *is
	a.Hooks, b.Hooks = nil, nil
	if len(b.Doubles) == len(a.Doubles)+1 { // an attempt that began without a claim
		b.Doubles = b.Doubles[:len(a.Doubles)]
		n++
	}
	if len(b.Doubles) == 0 {
		a.Doubles, b.Doubles = nil, nil
	}
	return n == 1 && bytes.Equal(codec.MarshalRecord(&a), codec.MarshalRecord(&b))
}

// hooks checks that each ran at most once, after its verdict, and is one of the job's.
func (c *checker) hooks() {
	seen := map[string]bool{}
	for i := range c.hookSpans {
		s := &c.hookSpans[i]
		k := runKey{s.job, s.run}
		name := k.job.String() + " " + string(k.run) + " " + s.hook.String()
		if seen[name] {
			c.fail(past.Twice, k, "hook %s ran twice", s.hook)
		}
		seen[name] = true
		stored := slices.IndexFunc(c.audit, func(e event) bool {
			kind, rest := e.part()
			return kind == "history" && !e.Deleted && rest == k.job.Namespace+"/"+k.job.Name+"/"+string(k.run)
		})
		if stored < 0 || c.audit[stored].at.After(s.begun) {
			c.fail(past.Early, k, "hook %s ran before the verdict was stored", s.hook)
			continue
		}
		r, err := c.audit[stored].record()
		if err != nil || !slices.ContainsFunc(r.Hooks, func(h state.HookRun) bool { return h.Name == s.hook }) {
			c.fail(past.Unclaimed, k, "hook %s ran, and the verdict names %v", s.hook, r.Hooks)
		}
	}
}

// edge is that a job runs after another, between two revisions.
type edge struct {
	upstream, job state.JobID
	from, to      int64
}

// chains checks what runs after others: each end of a job that another one runs after,
// which counts for that, has made one run of it if it is settled, and no other has.
func (c *checker) chains(settled bool) {
	var edges []*edge
	open := map[string]*edge{}
	made := map[runKey]state.Chain{}
	ends := map[state.JobID][]state.Record{}
	first := map[runKey]bool{}
	for i := range c.audit {
		e := &c.audit[i]
		kind, rest := e.part()
		switch {
		case kind == "followers":
			parts := strings.Split(rest, "/")
			switch was := open[rest]; {
			case e.Deleted && was != nil:
				was.to = e.revision
				delete(open, rest)
			case !e.Deleted && was == nil:
				n := &edge{
					upstream: state.JobID{Namespace: parts[0], Name: parts[1]}, job: state.JobID{Namespace: parts[0], Name: parts[2]}, from: e.revision,
				}
				edges, open[rest] = append(edges, n), n
			}
		case kind == "pending" && !e.Deleted:
			var p statev1.Pending
			id, run := jobOf(rest)
			if proto.Unmarshal(e.KV.Value, &p) == nil && state.RunID(run).Kind() == state.KindAfter {
				made[runKey{id, state.RunID(run)}] = codec.ChainFromProto(&p)
			}
		case kind == "history" && !e.Deleted:
			r, err := e.record()
			k := runKey{r.Job, r.Run}
			if err != nil || first[k] {
				continue
			}
			first[k] = true
			if r.Run.Kind() == state.KindAfter {
				made[k] = r.Chain
			}
			ends[r.Job] = append(ends[r.Job], r)
		}
	}
	c.follows(edges, ends, made, settled)
	used := map[string]bool{}
	for k, chain := range made {
		for _, u := range chain.Upstream {
			id := state.JobID{Namespace: k.job.Namespace, Name: u.Job}
			name := k.job.String() + " " + u.Job + "/" + string(u.Run)
			if used[name] {
				c.fail(past.Twice, k, "was made after run %s of %s, as another one was", u.Run, u.Job)
			}
			used[name] = true
			if !slices.ContainsFunc(ends[id], func(r state.Record) bool { return r.Run == u.Run && r.State == u.State }) {
				c.fail(past.Undue, k, "was made after run %s of %s, which has not ended as %s", u.Run, u.Job, u.State)
			}
		}
	}
}

// followed is within how long an end makes its run: a report of it may get lost, and the
// leader looks at all chains each ten seconds.
const followed = 15 * time.Second

// follows checks that every end has made its run, of jobs that always ran after the same.
func (c *checker) follows(edges []*edge, ends map[state.JobID][]state.Record, made map[runKey]state.Chain, settled bool) {
	for _, x := range edges {
		var after *state.After
		steady := true
		for _, v := range c.versions[x.job] {
			switch {
			case v.deleted || v.broken || v.Spec.After == nil:
				steady = false
			case after == nil:
				after = v.Spec.After
			default:
				steady = steady && after.Mode == v.Spec.After.Mode && after.On == v.Spec.After.On && slices.Equal(after.Jobs, v.Spec.After.Jobs)
			}
		}
		if !steady || after == nil || !settled || after.Mode == state.AfterAll && len(after.Jobs) > 1 {
			continue
		}
		for i := range ends[x.upstream] {
			r := &ends[x.upstream][i]
			counts := r.Revision > x.from && r.Count <= 1 && after.Counts(r.State)
			k := runKey{x.job, state.AfterRunID(r.Recorded, []state.Upstream{{Job: x.upstream.Name, Run: r.Run, State: r.State}})}
			if _, there := made[k]; counts && !there && time.Since(r.Recorded) > followed {
				c.fail(past.Unaccounted, k, "was due after run %s of %s, which is %s at revision %d", r.Run, x.upstream.Name, r.State, r.Revision)
			} else if !counts && there {
				c.fail(past.Undue, k, "was made after run %s of %s, which is %s at revision %d", r.Run, x.upstream.Name, r.State, r.Revision)
			}
		}
	}
}
