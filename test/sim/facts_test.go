package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	past "github.com/leaderd/leaderd/internal/history"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// facts are what package history judges of what was seen, up to an instant.
func (c *checker) facts(until time.Time, settled bool) *past.Facts {
	f := &past.Facts{
		To: until, OneClock: c.skewed == 0, LogClock: true, KnowsOverrides: true, KnowsWaits: true, Stale: staleWatch + c.skewed,
		Sources: past.WorkLog | past.WorkEnds | past.ClaimLog | past.VerdictLog | past.EndLog | past.CheckpointLog |
			past.RegistrationLog | past.MarkLog,
		Jobs: map[string][]past.Version{},
	}
	if settled {
		f.Now = time.Now()
	}
	c.versionFacts(f)
	c.runFacts(f)
	c.logFacts(f)
	c.backfillFacts(f)
	return f
}

// judge holds the facts against the invariants.
func (c *checker) judge(f *past.Facts) {
	r := past.Check(f)
	for _, v := range r.Violations {
		c.wrong = append(c.wrong, v.String())
	}
	for _, u := range r.Unchecked {
		if u.Job != "" {
			c.wrong = append(c.wrong, u.Job+": not checked: "+u.Why)
		}
	}
}

func (c *checker) versionFacts(f *past.Facts) {
	for id, versions := range c.versions {
		for _, v := range versions {
			spec := v.Spec.WithDefaults()
			gate := spec.Gate()
			x := past.Version{
				Revision: v.revision, Generation: v.Generation, Effective: v.begins(), Anchor: v.Anchor,
				Schedules: spec.Schedules, Zone: spec.TimeZone,
				Start: spec.Start, End: spec.End, Jitter: spec.Jitter, Clock: clockRules(&spec),
				Excluded: calendarFacts(v.Calendars, spec.ExcludedCalendars), Only: calendarFacts(v.Calendars, spec.OnlyCalendars),
				Paused: v.Paused, Deleted: v.deleted, Broken: v.broken, Until: v.PausedUntil,
				RunPlanned: spec.StoreOutage == state.OutageRunPlanned,
				AtMostOnce: spec.Guarantee == state.AtMostOnce, Exclusive: spec.Exclusive(), Deadline: spec.StartDeadline,
				Limit: gate.Limit, Key: gate.Key, Queues: gate.Queues() || len(spec.Limits) > 0,
			}
			for i := range spec.Limits {
				if l := &spec.Limits[i]; l.Max > 0 {
					x.Limits = append(x.Limits, past.Limit{Name: l.ID(id.Namespace, "").Namespace + "/" + l.Name, Max: l.Max, PerKey: l.PerKey})
				}
			}
			if v.Paused && v.PauseActor == state.Leaderd {
				x.PausedAfter = spec.PauseAfterFailures
			}
			if v.broken {
				x.Slack = time.Second + c.skewed // it ended the one before when the leader saw it
			}
			f.Jobs[id.String()] = append(f.Jobs[id.String()], x)
			if f.From.IsZero() || x.Effective.Before(f.From) {
				f.From = x.Effective
			}
		}
	}
}

func (c *checker) backfillFacts(f *past.Facts) {
	at := map[string]int{}
	for i := range c.audit {
		e := &c.audit[i]
		kind, rest := e.part()
		if e.Deleted || kind != "backfills" && kind != "backfillslots" {
			continue
		}
		id, more := jobOf(rest)
		n, ok := at[rest]
		if !ok {
			n, at[rest] = len(f.Backfills), len(f.Backfills)
			f.Backfills = append(f.Backfills, past.Backfill{
				Job: id.String(), Prefix: strings.TrimSuffix(string(state.BackfillID(more).Run(time.Time{})), slotID(time.Time{})),
			})
		}
		b := &f.Backfills[n]
		if kind == "backfillslots" {
			var p statev1.BackfillSlots
			if err := proto.Unmarshal(e.KV.Value, &p); err != nil {
				c.fail(past.Unreadable, runKey{job: id}, "%s: %v", e.KV.Key, err)
			}
			b.Slots = codec.BackfillSlotsFromProto(&p)
			continue
		}
		var p statev1.Backfill
		if err := proto.Unmarshal(e.KV.Value, &p); err != nil {
			c.fail(past.Unreadable, runKey{job: id}, "%s: %v", e.KV.Key, err)
		}
		s := codec.BackfillFromProto(&p)
		b.Concurrency, b.Ended = s.Concurrency, !s.Active()
		b.Succeeded, b.Failed, b.Cancelled = s.Succeeded, s.Failed, s.Cancelled
	}
}

func (c *checker) runFacts(f *past.Facts) {
	attempts := func(all []state.Attempt) []past.Attempt {
		var out []past.Attempt
		for _, a := range all {
			out = append(out, past.Attempt{
				Number: a.Number, Token: a.Token, Term: a.Term, Node: a.Node, State: a.State.String(), Snoozed: a.Snoozed,
				Unclaimed: a.Unclaimed,
				Started:   a.Started, Ended: a.Ended,
			})
		}
		return out
	}
	overrides := map[runKey]bool{}
	for i := range c.claims {
		cl := &c.claims[i]
		k := runKey{cl.Job, cl.Run}
		if cl.Header != 0 {
			continue
		}
		overrides[k] = overrides[k] || !cl.Exclusive
	}
	steps := func(all []state.Attempt) []past.Attempt {
		out := attempts(all)
		for i := range out {
			out[i].Shard = past.ListShard
		}
		return out
	}
	ends := func(all []state.Live) (out []past.Attempt) {
		for i := range all {
			for _, a := range attempts(all[i].Attempts) {
				a.Shard = all[i].Shard
				out = append(out, a)
			}
		}
		return out
	}
	for k, r := range c.records {
		if r.Split != nil {
			f.Runs = append(f.Runs, past.Run{
				Job: k.job.String(), ID: string(k.run), State: r.State.String(), Reason: r.Reason, Generation: r.Generation,
				Due: r.Due, Attempts: append(steps(r.Attempts), ends(r.Ends)...), Shards: len(r.Ends), Needed: r.Split.Needed(), Override: overrides[k],
				Carried: carriedFacts(r.Split),
				Asked:   c.asked[k].Requested, Decided: c.decided[k], Ended: r.Revision, LimitKey: r.LimitKey,
			})
			continue
		}
		f.Runs = append(f.Runs, past.Run{
			Job: k.job.String(), ID: string(k.run), State: r.State.String(), Reason: r.Reason, Generation: r.Generation,
			Due: r.Due, Until: r.Until, Count: r.Count, Attempts: attempts(r.Attempts), Doubles: len(r.Doubles), Override: overrides[k],
			Asked: c.asked[k].Requested, Decided: c.decided[k], Ended: r.Revision, LimitKey: r.LimitKey,
		})
	}
	for k, p := range c.pending {
		_, live := c.live[k]
		if _, over := c.records[k]; !live && !over {
			f.Runs = append(f.Runs, past.Run{Job: k.job.String(), ID: string(k.run), State: "pending", Due: p.Requested, Asked: p.Requested, Decided: c.decided[k]})
		}
	}
	for k, l := range c.live {
		if l.IsHeader() {
			shards := slices.Collect(maps.Values(c.shards[k]))
			slices.SortFunc(shards, func(a, b state.Live) int { return a.Shard - b.Shard })
			f.Runs = append(f.Runs, past.Run{
				Job: k.job.String(), ID: string(k.run), State: l.State.String(), Generation: l.Generation, Due: l.Due,
				Attempts: append(steps(l.Attempts), ends(shards)...), Shards: l.Split.Total(), Needed: l.Split.Needed(), Override: overrides[k],
				Carried: carriedFacts(l.Split),
				Asked:   c.asked[k].Requested, Decided: c.decided[k], LimitKey: l.LimitKey,
			})
			continue
		}
		of := attempts
		if l.Shard == state.ListShard {
			of = steps
		}
		f.Runs = append(f.Runs, past.Run{
			Job: k.job.String(), ID: string(k.run), State: l.State.String(), Generation: l.Generation, Due: l.Due,
			Attempts: of(l.Attempts), Override: overrides[k], Asked: c.asked[k].Requested, Decided: c.decided[k], LimitKey: l.LimitKey,
		})
	}
}

func carriedFacts(s *state.Split) (all []past.Carried) {
	for _, of := range s.Carried {
		all = append(all, past.Carried{Run: string(of.Run), Shards: of.Shards})
	}
	return all
}

func (c *checker) logFacts(f *past.Facts) {
	for i := range c.claims {
		cl := &c.claims[i]
		f.Claims = append(f.Claims, past.Claim{
			Job: cl.Job.String(), Run: string(cl.Run), Shard: cl.Shard, Attempt: cl.Attempt, Token: cl.Token,
			Generation: cl.Generation, Owner: past.Owner{Node: cl.Owner.Node, Revision: cl.Owner.Revision},
			Exclusive: cl.Exclusive, Placed: cl.Place != 0, AtMostOnce: cl.AtMostOnce, At: cl.at,
		})
	}
	standing := map[string]int{}
	begun := map[string]int64{} // by job, run and shard: the revision of the first claim
	written := map[runKey]state.Record{}
	for i := range c.audit {
		e := &c.audit[i]
		switch kind, rest := e.part(); kind {
		case "history":
			v := past.Verdict{Revision: e.revision}
			if e.Deleted {
				continue // see retention: they went by the rules, or the test has failed
			}
			r, _ := e.record()
			if was, ok := written[runKey{r.Job, r.Run}]; ok && hooked(&was, &r) {
				written[runKey{r.Job, r.Run}] = r
				continue
			}
			written[runKey{r.Job, r.Run}] = r
			v.State = r.State.String()
			v.Job, v.Run = r.Job.String(), string(r.Run)
			f.Verdicts = append(f.Verdicts, v)
		case "active":
			if _, ok := begun[rest]; !ok {
				begun[rest] = e.revision
			}
		case "checkpoints":
			if first, ok := begun[rest]; e.Deleted && ok && first == e.revision {
				// A run of one piece was retried that is split by now: its shard has nothing.
				f.Checkpoints = slices.DeleteFunc(f.Checkpoints, func(p past.Checkpoint) bool {
					return fmt.Sprintf("%s/%s/%d", p.Job, p.Run, p.Shard) == rest
				})
			}
			if p, ok := e.checkpoint(); ok {
				f.Checkpoints = append(f.Checkpoints, p)
			}
		case "nodes":
			if i, ok := standing[rest]; ok && (e.Deleted || e.KV.CreateRevision != f.Registrations[i].Revision) {
				f.Registrations[i].EndRevision, f.Registrations[i].Ended = e.revision, e.at
				delete(standing, rest)
			}
			if _, ok := standing[rest]; !ok && !e.Deleted {
				o := past.Owner{Node: rest, Revision: e.KV.CreateRevision}
				standing[rest] = len(f.Registrations)
				f.Registrations = append(f.Registrations, past.Registration{
					Owner: o, Forced: c.revoked[state.Owner{Node: o.Node, Revision: o.Revision}],
				})
			}
		}
	}
	for i := range c.marks {
		m := &c.marks[i]
		f.Marks = append(f.Marks, past.Mark{Instant: m.instant, Revision: m.revision, Term: m.term, Jobs: m.jobs})
	}
	for i := range c.acks {
		a := &c.acks[i]
		f.Ends = append(f.Ends, past.End{
			Job: a.Live.Job.String(), Run: string(a.Live.Run), Shard: a.Live.Shard, Token: a.Live.Token, State: a.Attempt.State.String(), Retry: !a.Retry.IsZero(),
		})
	}
	for i := range c.spans {
		s := &c.spans[i]
		if s.token == 0 && c.unrecorded[runKey{s.job, s.run}] {
			continue // its node has it still
		}
		f.Starts = append(f.Starts, past.Start{
			Job: s.job.String(), Run: string(s.run), Shard: s.shard, Attempt: s.attempt, Token: s.token,
			At: s.begun, Local: s.wall, Ended: s.ended, Resumed: s.resumed,
		})
	}
	slices.SortStableFunc(f.Starts, func(a, b past.Start) int { return a.At.Compare(b.At) })
}

func clockRules(spec *state.JobSpec) past.ClockRules {
	rules := past.ClockRules{Missing: "shift", Repeated: "first"}
	if spec.MissingTime == state.MissingSkip {
		rules.Missing = "skip"
	}
	switch spec.RepeatedTime {
	case state.RepeatedFirst:
	case state.RepeatedLast:
		rules.Repeated = "last"
	case state.RepeatedBoth:
		rules.Repeated = "both"
	}
	return rules
}

// calendarFacts are those of a version's calendars that it names.
func calendarFacts(all []state.JobCalendar, names []string) (out []past.Calendar) {
	for i := range all {
		if !slices.Contains(names, all[i].Name) {
			continue
		}
		c := past.Calendar{Name: all[i].Name, Zone: all[i].Spec.TimeZone}
		for _, e := range all[i].Spec.Entries {
			x := past.CalendarEntry{First: e.First, Last: e.Last, Start: e.Start, End: e.End, Days: e.Days, From: e.From, To: e.To}
			if e.Date != "" {
				x.First, x.Last = e.Date, e.Date
			}
			c.Entries = append(c.Entries, x)
		}
		out = append(out, c)
	}
	return out
}
