package codec

import (
	"time"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// BackfillToProto is a backfill in its stored form. Job, ID and Revision are the
// key's to tell.
func BackfillToProto(b *state.Backfill) *statev1.Backfill {
	p := &statev1.Backfill{
		From:            Micros(b.From),
		To:              Micros(b.To),
		All:             b.All,
		Newest:          b.Newest,
		Concurrency:     int32(b.Concurrency), //nolint:gosec // bounded by state.MaxBackfillConcurrency
		OverrideOverlap: b.OverrideOverlap,
		Actor:           b.Actor,
		Reason:          b.Reason,
		Created:         Micros(b.Created),
		JobUid:          b.JobUID,
		Total:           int32(b.Total),     //nolint:gosec // bounded by state.MaxBackfillSlots
		Next:            int32(b.Next),      //nolint:gosec // at most Total
		Succeeded:       int32(b.Succeeded), //nolint:gosec // at most Total
		Failed:          int32(b.Failed),    //nolint:gosec // at most Total
		Cancelled:       int32(b.Cancelled), //nolint:gosec // at most Total
		Ended:           Micros(b.Ended),
		CancelTime:      Micros(b.CancelTime),
		CancelActor:     b.CancelActor,
		CancelReason:    b.CancelReason,
		CancelRunning:   b.CancelRunning,
	}
	for _, i := range b.Open {
		p.Open = append(p.Open, int32(i)) //nolint:gosec // below Total
	}
	return p
}

// BackfillFromProto is the inverse of BackfillToProto.
func BackfillFromProto(p *statev1.Backfill) state.Backfill {
	b := state.Backfill{
		From:            Time(p.GetFrom()),
		To:              Time(p.GetTo()),
		All:             p.GetAll(),
		Newest:          p.GetNewest(),
		Concurrency:     int(p.GetConcurrency()),
		OverrideOverlap: p.GetOverrideOverlap(),
		Actor:           p.GetActor(),
		Reason:          p.GetReason(),
		Created:         Time(p.GetCreated()),
		JobUID:          p.GetJobUid(),
		Total:           int(p.GetTotal()),
		Next:            int(p.GetNext()),
		Succeeded:       int(p.GetSucceeded()),
		Failed:          int(p.GetFailed()),
		Cancelled:       int(p.GetCancelled()),
		Ended:           Time(p.GetEnded()),
		CancelTime:      Time(p.GetCancelTime()),
		CancelActor:     p.GetCancelActor(),
		CancelReason:    p.GetCancelReason(),
		CancelRunning:   p.GetCancelRunning(),
	}
	for _, i := range p.GetOpen() {
		b.Open = append(b.Open, int(i))
	}
	return b
}

// BackfillSlotsToProto is the slots of a backfill in their stored form.
func BackfillSlotsToProto(slots []time.Time) *statev1.BackfillSlots {
	p, before := &statev1.BackfillSlots{}, int64(0)
	for _, slot := range slots {
		p.Steps = append(p.Steps, slot.Unix()-before)
		before = slot.Unix()
	}
	return p
}

// BackfillSlotsFromProto is the inverse of BackfillSlotsToProto.
func BackfillSlotsFromProto(p *statev1.BackfillSlots) []time.Time {
	slots, at := make([]time.Time, 0, len(p.GetSteps())), int64(0)
	for _, step := range p.GetSteps() {
		at += step
		slots = append(slots, time.Unix(at, 0).UTC())
	}
	return slots
}
