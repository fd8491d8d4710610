package store

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// TestListRunsNewestFirst pages through runs of several jobs, live, past and
// pending, and wants them in the order of their ids.
func TestListRunsNewestFirst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		s, _ := openMemory(t)
		now := time.Now().UTC().Truncate(time.Second)
		type stored struct {
			id  state.JobID
			run state.RunID
			bad bool
		}
		var all []stored
		for _, key := range []string{"a-b/x", "a/x", "a/y", "b/x"} {
			id, _, err := parseJob(key)
			require.NoError(t, err)
			seen := map[state.RunID]bool{}
			exclusive := rapid.Bool().Draw(rt, "exclusive")
			for i := range rapid.IntRange(0, 25).Draw(rt, "runs") {
				ago := time.Duration(rapid.IntRange(-1, 20).Draw(rt, "ago")) * time.Second
				if rapid.Bool().Draw(rt, "old") {
					ago *= 100_000
				}
				at := now.Add(-ago)
				run := state.SlotRunID(at)
				if rapid.Bool().Draw(rt, "trigger") {
					run = state.TriggerRunID(at, uint32(i))
				}
				if seen[run] {
					continue
				}
				seen[run] = true
				bad := rapid.Bool().Draw(rt, "bad")
				switch kind := rapid.IntRange(0, 3).Draw(rt, "kind"); {
				case kind == 0 && !exclusive:
					bad = false
					writeLive(t, s, state.Live{Job: id, Run: run, State: state.StateRunning})
				case kind == 1:
					bad = false
					write(t, s, s.keys.pendingRun(id, run), codec.RecordToProto(&state.Record{Generation: 1}))
				default:
					to := state.StateSucceeded
					if bad {
						to = state.StateFailed
					}
					if exclusive {
						writeLive(t, s, state.Live{Job: id, Run: run, Exclusive: true, State: state.StateRunning})
					}
					writeRecord(t, s, id, run, state.Record{State: to, Due: at})
				}
				all = append(all, stored{id, run, bad})
			}
		}
		l := ListRuns{
			NewestFirst: true,
			Namespace:   rapid.SampledFrom([]string{"", "a", "c"}).Draw(rt, "namespace"),
			Job:         rapid.SampledFrom([]string{"", "x"}).Draw(rt, "name"),
			Limit:       rapid.IntRange(1, 40).Draw(rt, "limit"),
		}
		if rapid.Bool().Draw(rt, "since") {
			l.Since = now.Add(-time.Duration(rapid.IntRange(0, 30).Draw(rt, "from")) * time.Second)
		}
		onlyBad := rapid.Bool().Draw(rt, "match")
		if onlyBad {
			l.Match = func(e *RunEntry) bool { return e.Record != nil && e.Record.State == state.StateFailed }
		}
		slices.SortFunc(all, func(a, b stored) int {
			return cmp.Or(cmp.Compare(b.run, a.run), cmp.Compare(jobPart(a.id), jobPart(b.id)))
		})
		var want, got []string
		for _, r := range all {
			at, ok := runTime(r.run)
			require.True(t, ok)
			if (l.Namespace == "" || l.Namespace == r.id.Namespace) && (l.Job == "" || l.Job == r.id.Name) &&
				!at.Before(l.Since) && (r.bad || !onlyBad) {
				want = append(want, r.id.String()+" "+string(r.run))
			}
		}
		for pages := 0; ; pages++ {
			require.Less(rt, pages, 300)
			page, err := s.ListRuns(ctx, l)
			require.NoError(rt, err)
			require.LessOrEqual(rt, len(page.Runs), l.Limit)
			for _, e := range page.Runs {
				got = append(got, e.Job.String()+" "+string(e.Run))
			}
			if !page.More {
				break
			}
			require.NotEmpty(rt, page.LastRun)
			l.AfterJob, l.AfterRun = page.LastJob, page.LastRun
		}
		require.Equal(rt, want, got)
	})
}

func TestListRunsNewestFirstOfManyAtOnce(t *testing.T) {
	s, _ := openMemory(t)
	now := time.Now().UTC().Truncate(time.Second)
	const total = recentKeys*3 + 7
	for i := range total {
		at := now.Add(-time.Duration(i) * time.Millisecond).Truncate(time.Second)
		writeRecord(t, s, billing, state.TriggerRunID(at, uint32(i)), state.Record{State: state.StateSucceeded, Due: at})
	}
	l := ListRuns{NewestFirst: true, Limit: 100}
	seen := map[state.RunID]bool{}
	for more := true; more; {
		page, err := s.ListRuns(t.Context(), l)
		require.NoError(t, err)
		for _, e := range page.Runs {
			seen[e.Run] = true
		}
		more, l.AfterJob, l.AfterRun = page.More, page.LastJob, page.LastRun
	}
	require.Len(t, seen, total)
}

func TestListRunsLooksAtABoundedNumber(t *testing.T) {
	s, _ := openMemory(t)
	now := time.Now().UTC().Truncate(time.Second)
	for i := range maxLooked + 100 {
		at := now.Add(-time.Duration(i) * time.Second)
		writeRecord(t, s, billing, state.SlotRunID(at), state.Record{State: state.StateSucceeded, Due: at})
	}
	for _, newest := range []bool{false, true} {
		l := ListRuns{NewestFirst: newest, Limit: 10, Match: func(*RunEntry) bool { return false }}
		pages := 0
		for more := true; more; pages++ {
			page, err := s.ListRuns(t.Context(), l)
			require.NoError(t, err)
			require.Empty(t, page.Runs)
			more, l.AfterJob, l.AfterRun = page.More, page.LastJob, page.LastRun
		}
		require.Greater(t, pages, 1)
	}
}
