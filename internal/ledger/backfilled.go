package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// Backfilled tells of a backfill's run of a slot, such as "run by backfill
// 20261130T020000Z-5f3a9c01: succeeded"; empty for any other run.
func Backfilled(e *store.RunEntry) string {
	of, _, ok := e.Run.Backfill()
	if !ok {
		return ""
	}
	return fmt.Sprintf("run by backfill %s: %s", of, stateOf(e))
}

func stateOf(e *store.RunEntry) string {
	switch {
	case e.Broken != nil:
		return "its record cannot be read"
	case e.Record != nil:
		return verdict(e.Record)
	case len(e.Live) > 0:
		return e.Live[0].State.String()
	}
	return state.StatePending.String()
}

// WithBackfills adds to the entries of a List what backfills made of their slots. runs
// are runs of backfills for slots of the same window, those of newer backfills first;
// of several runs of a slot the first counts. A slot that has no entry, since the job
// was not there then, gets one that has the backfill's run.
func WithBackfills(entries []Entry, runs []store.RunEntry) []Entry {
	seen := map[time.Time]bool{}
	told := make([]map[string]int, len(entries)) // of ranges: what happened, and how often
	var own []Entry
	for i := range runs {
		e := &runs[i]
		_, slot, ok := e.Run.Backfill()
		if !ok || seen[slot] {
			continue
		}
		seen[slot] = true
		words := Backfilled(e)
		at := entryOf(entries, slot)
		switch {
		case at < 0:
			one := Entry{Answer: leaderdv1.Slot_ANSWER_VERDICT, First: slot, Last: slot, Count: 1, Run: e, Detail: words}
			if e.Record == nil && e.Broken == nil {
				one.Answer = leaderdv1.Slot_ANSWER_LIVE
			}
			own = append(own, one)
		case told[at] == nil:
			told[at] = map[string]int{words: 1}
		default:
			told[at][words]++
		}
	}
	for i, of := range told {
		e := &entries[i]
		var parts []string
		for words, n := range of {
			if e.Count != 1 {
				words = fmt.Sprintf("%d %s", n, words)
			}
			parts = append(parts, words)
		}
		if len(parts) == 0 {
			continue
		}
		slices.Sort(parts)
		if e.Detail == "" && e.Run != nil && e.Run.Record != nil {
			e.Detail = e.Run.Record.Detail // which this would hide
		}
		if e.Detail != "" {
			parts = append([]string{e.Detail}, parts...)
		}
		e.Detail = strings.Join(parts, "; ")
	}
	if len(own) == 0 {
		return entries
	}
	entries = append(entries, own...)
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.First.Unix(), b.First.Unix()) })
	return entries
}

// entryOf is the index of the entry of a slot: its own, or else a range that it is in.
func entryOf(entries []Entry, slot time.Time) int {
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Count == 1 && e.First.Equal(slot) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(entries, func(e Entry) bool {
		return e.Count != 1 && !slot.Before(e.First) && !slot.After(e.Last)
	})
}
