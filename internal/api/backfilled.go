package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/internal/ledger"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// backfilled are the runs for slots in [from, to) of the backfills that are stored, at
// most so many of each, those of newer backfills first.
func (s *timelineService) backfilled(ctx context.Context, id state.JobID, from, to time.Time, most int) ([]store.RunEntry, error) {
	all, _, err := s.cfg.Backfills.ListBackfills(ctx, store.ListBackfills{
		Namespace: id.Namespace, Job: id.Name, Limit: state.MaxBackfillsActive + state.MaxBackfillsKept,
	})
	if err != nil {
		return nil, err
	}
	var out []store.RunEntry
	for i := range all {
		b := &all[i].Backfill
		if all[i].Broken != nil || !b.From.Before(to) || !from.Before(b.To) {
			continue
		}
		if out, err = s.runsOfBackfill(ctx, out, b, from, to, most); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runsOfBackfill adds a backfill's runs for slots in [from, to), at most so many, the
// newest slots first; without their output. They are beside one another in the store.
func (s *timelineService) runsOfBackfill(
	ctx context.Context, out []store.RunEntry, b *state.Backfill, from, to time.Time, most int,
) ([]store.RunEntry, error) {
	l := store.ListRuns{Namespace: b.Job.Namespace, Job: b.Job.Name, AfterJob: b.Job, AfterRun: b.ID.Run(to), Limit: min(most, maxPage)}
	for n := 0; ; {
		page, err := s.cfg.Runs.ListRuns(ctx, l)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Runs {
			if of, slot, ok := e.Run.Backfill(); !ok || of != b.ID || slot.Before(from) || n == most {
				return out, nil
			}
			if n++; e.Record != nil {
				e.Record.Tail = nil
			}
			out = append(out, e)
		}
		if !page.More {
			return out, nil
		}
		l.AfterRun = page.LastRun
	}
}

// addBackfills adds to an explanation what backfills made of the instant.
func (s *timelineService) addBackfills(ctx context.Context, res *leaderdv1.ExplainSlotResponse, id state.JobID, at time.Time) error {
	if at.Nanosecond() != 0 {
		return nil
	}
	runs, err := s.backfilled(ctx, id, at, at.Add(time.Second), 1)
	if err != nil {
		return err
	}
	for i := range runs {
		e := &runs[i]
		words := ledger.Backfilled(e)
		if i == 0 {
			res.Summary += fmt.Sprintf(" It was %s; that is run %s.", words, e.Run)
		}
		res.Events = append(res.Events, &leaderdv1.SlotEvent{Time: backfillTime(e), What: words})
	}
	slices.SortStableFunc(res.GetEvents(), func(a, b *leaderdv1.SlotEvent) int { return a.GetTime().AsTime().Compare(b.GetTime().AsTime()) })
	return nil
}

// backfillTime is when a run of a backfill came to the state that it is in, as far as
// is known.
func backfillTime(e *store.RunEntry) *timestamppb.Timestamp {
	switch {
	case e.Record != nil:
		return timeOf(e.Record.Recorded)
	case len(e.Live) > 0:
		return timeOf(e.Live[0].Claimed)
	case e.Pending != nil:
		return timeOf(e.Pending.Requested)
	}
	made, _, _ := e.Run.Backfill()
	begun, _ := state.RunID(string(made)[:len("20060102T150405Z")]).Slot()
	return timeOf(begun)
}
