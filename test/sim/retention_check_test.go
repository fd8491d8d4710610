package sim

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	past "github.com/leaderd/leaderd/internal/history"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

// removal is a verdict that went from history, or from a segment.
type removal struct {
	runKey
	revision int64
}

func (c *checker) sweptAway(e *event, rest string) {
	id, run := jobOf(rest)
	k := runKey{id, state.RunID(run)}
	if _, ok := c.records[k]; !ok {
		c.fail(past.Lost, k, "its verdict vanished at revision %d, and was never there: %s", e.revision, e.KV.Key)
		return
	}
	c.swept = append(c.swept, removal{k, e.revision})
}

// retention checks that each verdict that went from where it was is packed by the
// same transaction, as it was, or lies behind the floor that the job has from then
// on; and that floors keep behind the watermark, so that no undecided slot does.
func (c *checker) retention() {
	type packed struct {
		k        runKey
		revision int64
	}
	inSegment := map[packed]bool{}
	floors := map[state.JobID][]state.Floor{}
	segments := map[string][]runKey{}
	var marked time.Time
	gone := c.swept
	for i := range c.audit {
		e := &c.audit[i]
		kind, rest := e.part()
		id, _ := jobOf(rest)
		switch kind {
		case "timeline":
			if m, err := e.watermark(); rest == "watermark" && err == nil && !e.Deleted {
				marked = later(marked, m.instant)
			}
		case "swept":
			if e.Deleted {
				continue
			}
			var p statev1.Swept
			if err := proto.Unmarshal(e.KV.Value, &p); err != nil {
				c.fail(past.Unreadable, runKey{job: id}, "%s at revision %d: %v", e.KV.Key, e.revision, err)
			}
			f := state.Floor{Instant: codec.Time(p.GetFloor()), Removed: p.GetRemoved(), Revision: e.revision}
			if n := len(floors[id]); n > 0 && f.Instant.Before(floors[id][n-1].Instant) {
				c.fail(past.Lost, runKey{job: id}, "its floor went back at revision %d", e.revision)
			}
			if f.Instant.After(marked) {
				c.fail(past.Lost, runKey{job: id}, "its floor is %s at revision %d, and the watermark %s", f.Instant, e.revision, marked)
			}
			floors[id] = append(floors[id], f)
		case "segments":
			if e.Deleted {
				for _, k := range segments[e.KV.Key] {
					gone = append(gone, removal{k, e.revision})
				}
				continue
			}
			of, err := codec.UnmarshalSegment(e.KV.Value)
			if err != nil {
				c.fail(past.Unreadable, runKey{job: id}, "%s at revision %d: %v", e.KV.Key, e.revision, err)
				continue
			}
			segments[e.KV.Key] = nil
			for j := range of {
				k := runKey{id, of[j].Run}
				segments[e.KV.Key] = append(segments[e.KV.Key], k)
				inSegment[packed{k, e.revision}] = true
				r := codec.RecordFromProto(of[j].Record)
				r.Job, r.Run, r.Revision = id, of[j].Run, of[j].Revision
				if was := c.records[k]; !sameRecord(&was, &r) {
					c.fail(past.Changed, k, "is packed at revision %d as %+v, and was %+v", e.revision, r, was)
				}
			}
		}
	}
	for _, g := range gone {
		r := c.records[g.runKey]
		begin, _, _ := strings.Cut(string(g.run), "-")
		at, _ := state.RunID(begin).Slot()
		at = later(at, r.Until)
		ok := inSegment[packed{g.runKey, g.revision}]
		for _, f := range floors[g.job] {
			ok = ok || f.Revision <= g.revision && !f.Instant.Before(at)
		}
		if !ok {
			c.fail(past.Lost, g.runKey, "its verdict vanished at revision %d", g.revision)
		}
	}
}

// readable checks that each verdict that was given is answered, or lies behind its
// job's floor.
func (w *world) readable(c *checker) (wrong []string) {
	floors := map[state.JobID]state.Floor{}
	for k, r := range c.records {
		if _, err := w.api.GetJob(w.ctx, k.job); errors.Is(err, store.ErrNotFound) {
			continue
		}
		f, known := floors[k.job]
		if !known {
			var err error
			if f, err = w.api.Floor(w.ctx, k.job); err != nil {
				return append(wrong, violation(past.Unreadable, runKey{job: k.job}, "its floor: %v", err))
			}
			floors[k.job] = f
		}
		e, err := w.api.GetRun(w.ctx, k.job, k.run)
		switch begin, _, _ := strings.Cut(string(k.run), "-"); {
		case err == nil && e.Record != nil && sameRecord(e.Record, &r):
		case err != nil && errors.Is(err, store.ErrNotFound) && state.RunID(begin) <= state.SlotRunID(f.Instant):
		default:
			wrong = append(wrong, violation(past.Lost, k, "the verdict is %+v, and it is answered as %+v, %v", r, e.Record, err))
		}
	}
	return wrong
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sameRecord tells whether two verdicts are the same in all that is stored of them.
func sameRecord(a, b *state.Record) bool {
	return a.Job == b.Job && a.Run == b.Run && a.Revision == b.Revision && bytes.Equal(codec.MarshalRecord(a), codec.MarshalRecord(b))
}
