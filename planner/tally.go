package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

// tally is where the shards of a run are that is split. It is pure.
type tally struct {
	split *state.Split
	// shards are the records by number, nil where there is none.
	shards []*state.Live
	// gone are those without a record that will have none, with why.
	gone map[int]fate

	running, waiting, missing, succeeded, failed int
}

// newTally sorts the records of a run. lost tells for which node a broadcast's shard can
// no longer start.
func newTally(split *state.Split, shards []state.Live, lost func(node string) bool) *tally {
	t := &tally{split: split, shards: make([]*state.Live, split.Total())}
	for i := range shards {
		if n := shards[i].Shard; n >= 0 && n < len(t.shards) {
			t.shards[n] = &shards[i]
		}
	}
	for i, l := range t.shards {
		switch {
		case l == nil && t.carried(i):
			t.succeeded++
		case l == nil && lost(split.Part(i).Node):
			t.leave(i, fate{state: state.StateMissed, reason: state.ReasonNodeGone})
		case l == nil:
			t.missing++
		case l.State == state.StateSucceeded:
			t.succeeded++
		case l.State.Verdict():
			t.failed++
		case l.State == state.StateWaiting:
			t.waiting++
		default:
			t.running++
		}
	}
	return t
}

// carried tells whether a shard succeeded in an earlier run, and is not made again.
func (t *tally) carried(shard int) bool { return t.split.CarriedFrom(shard) != "" }

// leave gives a shard that has no record up.
func (t *tally) leave(shard int, why fate) {
	if t.gone == nil {
		t.gone = make(map[int]fate)
	}
	t.gone[shard] = why
	t.failed++
}

// leaveMissing gives up all that have no record.
func (t *tally) leaveMissing(why fate) {
	for i, l := range t.shards {
		if _, left := t.gone[i]; l == nil && !left && !t.carried(i) {
			t.leave(i, why)
		}
	}
	t.missing = 0
}

// hopeless tells whether the run cannot succeed any more.
func (t *tally) hopeless() bool { return t.failed > len(t.shards)-t.split.Needed() }

// ended tells whether nothing of the run is to come.
func (t *tally) ended() bool { return t.running == 0 && t.waiting == 0 && t.missing == 0 }

// verdict is the run's, once all have ended. wish is set where somebody asked for its
// end, deleted where its job is gone.
func (t *tally) verdict(wish *state.Cancel, deleted bool) fate {
	has := func(s state.RunState) bool {
		for i, l := range t.shards {
			if l != nil && l.State == s || l == nil && t.gone[i].state == s {
				return true
			}
		}
		return false
	}
	needed := t.split.Needed()
	switch {
	case t.succeeded >= needed:
		f := fate{state: state.StateSucceeded}
		if t.failed > 0 {
			f.detail = t.detail(needed)
		}
		return f
	case wish != nil:
		return fate{state.StateCancelled, wish.Reason, wish.Detail}
	case has(state.StateFailed):
		return fate{state: state.StateFailed, detail: t.detail(needed)}
	case has(state.StateTimedOut):
		return fate{state: state.StateTimedOut, detail: t.detail(needed)}
	case has(state.StateLost):
		return fate{state: state.StateLost, detail: t.detail(needed)}
	case deleted:
		return fate{state.StateCancelled, state.ReasonDeleted, t.detail(needed)}
	case has(state.StateInterrupted):
		return fate{state: state.StateInterrupted, detail: t.detail(needed)}
	case has(state.StateCancelled):
		return fate{state.StateCancelled, t.reason(state.StateCancelled), t.detail(needed)}
	}
	return fate{state: state.StateFailed, detail: t.detail(needed)} // for want of nodes
}

// reason is that of the first shard in a state.
func (t *tally) reason(s state.RunState) string {
	for i, l := range t.shards {
		switch {
		case l != nil && l.State == s && l.End != nil:
			return l.End.Reason
		case l == nil && t.gone[i].state == s:
			return t.gone[i].reason
		}
	}
	return ""
}

// maxNamed is how many shards a verdict names.
const maxNamed = 10

func (t *tally) detail(needed int) string {
	var which []string
	for i, l := range t.shards {
		if l != nil && l.State == state.StateSucceeded || l == nil && t.carried(i) {
			continue
		}
		if len(which) == maxNamed {
			which = append(which, "…")
			break
		}
		which = append(which, fmt.Sprint(i))
	}
	return fmt.Sprintf("%d of %d shards succeeded, %d were needed; not %s", t.succeeded, len(t.shards), needed, strings.Join(which, ", "))
}

// maxEndBytes is about how much the ends of all shards take in a verdict. A dead letter
// holds it a second time, in the same request, and what else is in it has limits of its
// own: so it fits.
const maxEndBytes = 320 << 10

// record is the run's verdict.
func (t *tally) record(header *state.Live, f fate, now time.Time) state.Record {
	rec := state.Record{
		Job: header.Job, Run: header.Run, Generation: header.Generation, State: f.state, Reason: f.reason, Detail: f.detail,
		Due: header.Due, Recorded: now, Attempts: header.Attempts, Shards: len(t.shards), Origin: header.Origin, Chain: header.Chain, LimitKey: header.LimitKey, Split: t.split, Ends: make([]state.Live, len(t.shards)),
	}
	for i, l := range t.shards {
		end := &rec.Ends[i]
		end.Shard = i
		if l == nil && t.carried(i) {
			end.State = state.StateSucceeded
			continue
		}
		if l == nil {
			why := t.gone[i]
			end.State, end.End = why.state, &state.ShardEnd{Reason: why.reason, Detail: why.detail, Recorded: now}
			continue
		}
		end.State, end.Attempt, end.Generation, end.Attempts = l.State, l.Attempt, l.Generation, l.Attempts
		if l.End == nil {
			continue
		}
		rec.OutputBytes += l.End.OutputBytes
		if rec.Tail == nil && l.State != state.StateSucceeded {
			rec.Tail = l.End.Tail
		}
		kept := *l.End
		kept.Tail = nil
		end.End = &kept
	}
	shrink(rec.Ends)
	return rec
}

// shrink takes from ends that are too large together what is missed least: of the
// attempts at each shard those between the first and the last, then the rest of long
// texts, then the first attempts. It leaves what the ends share with others as it is.
func shrink(ends []state.Live) {
	if endBytes(ends) > maxEndBytes {
		for i := range ends {
			if as := ends[i].Attempts; len(as) > 2 {
				ends[i].Attempts = slices.Concat(as[:1], as[len(as)-1:])
			}
		}
	}
	for most := state.MaxErrorBytes / 2; most >= leastText && endBytes(ends) > maxEndBytes; most /= 2 {
		for i := range ends {
			end := &ends[i]
			end.Attempts = slices.Clone(end.Attempts)
			for j := range end.Attempts {
				a := &end.Attempts[j]
				a.Error, a.Message = cut(a.Error, most), cut(a.Message, most)
			}
			if end.End != nil {
				kept := *end.End
				kept.Reason, kept.Detail = cut(kept.Reason, most), cut(kept.Detail, most)
				end.End = &kept
			}
		}
	}
	if endBytes(ends) > maxEndBytes {
		for i := range ends {
			if as := ends[i].Attempts; len(as) > 1 {
				ends[i].Attempts = as[len(as)-1:]
			}
		}
	}
}

// leastText is as short as texts are cut.
const leastText = 32

// cut shortens a text that is longer than most bytes, and shows that.
func cut(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(strings.TrimSuffix(text, more)[:most-len(more)], "") + more
}

// endBytes is about how much ends take.
func endBytes(ends []state.Live) int {
	const endEach, attemptEach = 32, 80
	n := 0
	for i := range ends {
		if n += endEach; ends[i].End != nil {
			n += len(ends[i].End.Reason) + len(ends[i].End.Detail)
		}
		for j := range ends[i].Attempts {
			a := &ends[i].Attempts[j]
			n += attemptEach + len(a.Node) + len(a.Error) + len(a.Message)
		}
	}
	return n
}
