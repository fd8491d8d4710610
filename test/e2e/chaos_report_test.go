package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

const (
	// punctual is how late a start may be without a cause.
	punctual = 250 * time.Millisecond
	// aftermath is how long after it was mended a fault counts as a cause.
	aftermath = 3 * time.Second
)

// report judges a history, prints the figures, and fails the test where a rule
// is broken.
func report(n *nemesis, m *mix, h *history.Facts, from, to time.Time) {
	t := n.t
	t.Helper()
	found := violations(t, h, from, to)
	broken := map[history.Rule]int{}
	for _, v := range found {
		broken[v.Rule]++
	}
	ends := map[history.Holder]time.Time{}
	for _, e := range n.ended() {
		ends[history.Holder{Job: e.Job, Token: e.Token}] = e.At
	}
	unended, crossed := works(h, ends)

	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...any) { fmt.Fprintf(w, strings.Repeat("%v\t", len(cells))+"\n", cells...) }
	row("seed", *chaosSeed)
	row("length", to.Sub(from))
	row("nodes / members of etcd / jobs", fmt.Sprintf("%d / %d / %d", len(n.nodes), n.members(), m.size))
	row("faults", len(n.past))
	row("changes of jobs and triggers", total(m.asked))
	row("slots decided", slotsOf(h))
	row("starts", len(h.Starts))
	row("slots without a verdict", broken[history.Unaccounted])
	row("slots with two verdicts", broken[history.Doubled])
	row("attempts started twice", broken[history.Twice]+broken[history.Again])
	row("starts before their slot", broken[history.Early])
	row("starts after a pause, edit or delete", broken[history.Unfenced])
	row("starts of no known attempt", broken[history.Unclaimed])
	row("overlapping runs of exclusive jobs", broken[history.Overlap]+len(crossed))
	row("checkpoints that went back", fmt.Sprintf("%d of %d", broken[history.Backward], len(h.Checkpoints)))
	row("successes without work", broken[history.Silent]+len(unended))
	row("verdicts on slots that were not due", broken[history.Undue])
	row("nodes that ended by themselves", n.died)
	require.NoError(t, w.Flush())
	t.Logf("figures\n%s", out.String())
	t.Logf("verdicts %v; changes %v; refused or without an answer %v", h.Count(), m.asked, m.told)
	t.Logf("lateness by cause\n%s", lateness(n, h, from, to))

	for _, v := range found[:min(len(found), 20)] {
		t.Error(v)
	}
	for _, text := range append(unended, crossed...) {
		t.Error(text)
	}
	if t.Failed() {
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "violations.txt"), []byte(fmt.Sprintln(found)), 0o600))
		facts, err := json.Marshal(h)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "history.json"), facts, 0o600))
	}
	require.Zero(t, n.died, "nodes ended by themselves")
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// slotsOf is how many slots the runs stand for.
func slotsOf(h *history.Facts) (n int64) {
	for i := range h.Runs {
		if _, ok := history.Slot(h.Runs[i].ID); ok || h.Runs[i].Count > 1 {
			n += max(h.Runs[i].Count, 1)
		}
	}
	return n
}

// works compares what the work wrote down at its ends with the records: what
// succeeded must have ended, and the work of exclusive jobs must not overlap,
// but for attempts whose node was lost: a stopped one cannot stop its work.
func works(h *history.Facts, ends map[history.Holder]time.Time) (unended, crossed []string) {
	type attempt struct {
		run, state string
	}
	known := map[history.Holder]attempt{}
	for i := range h.Runs {
		for _, a := range h.Runs[i].Attempts {
			known[history.Holder{Job: h.Runs[i].Job, Token: a.Token}] = attempt{h.Runs[i].ID, a.State}
		}
	}
	byJob := map[string][]history.Start{}
	for _, s := range h.Starts {
		at := history.Holder{Job: s.Job, Token: s.Token}
		if _, ended := ends[at]; !ended && known[at].state == "succeeded" {
			unended = append(unended, fmt.Sprintf("job %s run %s succeeded, but its work wrote down no end", s.Job, s.Run))
		}
		byJob[s.Job] = append(byJob[s.Job], s)
	}
	for job, starts := range byJob {
		slices.SortFunc(starts, func(a, b history.Start) int { return a.At.Compare(b.At) })
		for i := 1; i < len(starts); i++ {
			before, s := starts[i-1], starts[i]
			at := history.Holder{Job: job, Token: before.Token}
			end, ended := ends[at]
			if !exclusive(h.Jobs[job], before.Token) || !exclusive(h.Jobs[job], s.Token) || known[at].state == "lost" || !ended {
				continue
			}
			if end.After(s.At) {
				crossed = append(crossed, fmt.Sprintf("job %s: work of %s began at %s, that of %s ended at %s",
					job, s.Run, s.At.UTC().Format(clockLayout), before.Run, end.UTC().Format(clockLayout)))
			}
		}
	}
	return unended, crossed
}

// exclusive tells whether the version that a claim relied on was.
func exclusive(versions []history.Version, token int64) bool {
	for _, v := range slices.Backward(versions) {
		if v.Revision < token {
			return v.Exclusive
		}
	}
	return false
}

// lateness is a table of the faults and of how late slots started while each was
// under way or just mended: at all, and where no other was.
func lateness(n *nemesis, h *history.Facts, from, to time.Time) string {
	type cause struct {
		late       int
		max, alone time.Duration
	}
	causes := map[string]*cause{"none": {}}
	for kind := range n.counts() {
		causes[kind] = &cause{}
	}
	for _, s := range h.Starts {
		slot, ok := history.Slot(s.Run)
		if !ok || s.Attempt != 1 || slot.Before(from) || slot.After(to) {
			continue
		}
		late := s.At.Sub(slot)
		kinds := n.during(slot, s.At, aftermath)
		if len(kinds) == 0 {
			kinds = []string{"none"}
		}
		for _, kind := range kinds {
			c := causes[kind]
			c.max = max(c.max, late)
			if late > punctual {
				c.late++
			}
			if len(kinds) == 1 {
				c.alone = max(c.alone, late)
			}
		}
	}
	counts := n.counts()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "fault\tfaults\tstarts late by > %s\tgreatest\tgreatest alone\t\n", punctual)
	for _, kind := range slices.Sorted(maps.Keys(causes)) {
		c := causes[kind]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t\n", kind, counts[kind], c.late, c.max.Round(time.Millisecond), c.alone.Round(time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		return err.Error()
	}
	return out.String()
}
