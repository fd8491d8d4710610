package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

func window(from, to int) *leaderdv1.Backfill {
	return &leaderdv1.Backfill{FromTime: timestamppb.New(minute(from)), ToTime: timestamppb.New(minute(to))}
}

// What a backfill made of a slot is told where the slot is told of, also of one that
// lies before the job.
func TestBackfillsAreTold(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *"))
	s.record(t, minute(5), state.Record{Generation: 1, State: state.StateSkipped, Reason: state.ReasonOverlap, Detail: "run x was live"})
	s.record(t, minute(10), state.Record{Generation: 1, State: state.StateMissed, Reason: state.ReasonOutage, Until: minute(20), Count: 3})
	s.at(minute(30))
	s.mark(t, minute(25))
	made, err := s.backfills.CreateBackfill(t.Context(), &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: window(-10, 22)})
	require.NoError(t, err)
	id := state.BackfillID(made.GetBackfill().GetName()[len(billing+"/backfills/"):])
	for n, to := range map[int]state.RunState{-5: state.StateSucceeded, 5: state.StateSucceeded, 10: state.StateSucceeded, 15: state.StateSucceeded, 20: state.StateFailed} {
		s.writeRecord(t, id.Run(minute(n)), to)
	}
	by := "run by backfill " + string(id) + ": "

	x := s.explain(t, minute(5))
	require.Contains(t, x.GetSummary(), "It did not start: skipped:overlap")
	require.Contains(t, x.GetSummary(), "It was "+by+"succeeded; that is run "+string(id.Run(minute(5)))+".")
	require.Contains(t, x.GetEvents()[len(x.GetEvents())-1].GetWhat()+x.GetEvents()[0].GetWhat(), by+"succeeded")
	require.Contains(t, s.explain(t, minute(20)).GetSummary(), by+"failed")
	x = s.explain(t, minute(-5))
	require.Contains(t, x.GetSummary(), "No slot: the job came into being at 2026-11-30T12:00:00Z. It was "+by+"succeeded")
	require.NotContains(t, s.explain(t, minute(25)).GetSummary(), "backfill", "after its window")

	res, err := s.timeline.ListSlots(t.Context(), &leaderdv1.ListSlotsRequest{
		Parent: billing, StartTime: timestamppb.New(minute(-30)), EndTime: timestamppb.New(minute(22)),
	})
	require.NoError(t, err)
	var lines []string
	for _, slot := range res.GetSlots() {
		lines = append(lines, slot.GetSlotTime().AsTime().Format("15:04 ")+slot.GetRun().GetState().String()+" "+slot.GetDetail())
	}
	require.Equal(t, []string{
		"11:55 STATE_SUCCEEDED " + by + "succeeded",
		"12:05 STATE_SKIPPED run x was live; " + by + "succeeded",
		"12:10 STATE_MISSED 1 " + by + "failed; 2 " + by + "succeeded",
	}, lines)
}

// Which slots are missing is said by the dry run, and what is made is just that.
func TestBackfillOverTheAPI(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *"))
	s.record(t, minute(5), state.Record{Generation: 1, State: state.StateSucceeded})
	s.record(t, minute(10), state.Record{Generation: 1, State: state.StateSkipped, Reason: state.ReasonOverlap})
	s.record(t, minute(15), state.Record{Generation: 1, State: state.StateMissed, Reason: state.ReasonOutage, Until: minute(25), Count: 3})
	s.record(t, minute(30), state.Record{Generation: 1, State: state.StateFailed})
	s.at(minute(60))
	s.mark(t, minute(42))

	dry := func(b *leaderdv1.Backfill) (lines []string) {
		res, err := s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: b, ValidateOnly: true})
		require.NoError(t, err)
		require.Empty(t, res.GetBackfill().GetName())
		runs := int32(0)
		for _, slot := range res.GetSlots() {
			do := "leave "
			if slot.GetRun() {
				do = "run "
				runs++
			}
			lines = append(lines, do+slot.GetSlotTime().AsTime().Format("15:04 ")+slot.GetHave())
		}
		require.Equal(t, runs, res.GetBackfill().GetTotal())
		return lines
	}
	require.Equal(t, []string{
		"run 11:55 none", "run 12:00 none", "leave 12:05 succeeded", "run 12:10 skipped:overlap", "run 12:15 missed:outage",
		"run 12:20 missed:outage", "run 12:25 missed:outage", "leave 12:30 failed", "run 12:35 none", "run 12:40 none",
	}, dry(&leaderdv1.Backfill{FromTime: timestamppb.New(minute(-5))}), "up to the watermark")
	_, err := s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: window(-5, 46), ValidateOnly: true})
	requireBadFields(t, err, "backfill.toTime")
	require.ErrorContains(t, err, "the slots from 2026-11-30T12:45:00Z on are the cluster's own to run: the watermark is at 2026-11-30T12:42:00Z; "+
		"leave the end out to have all before, or give that instant")
	require.Len(t, dry(window(-5, 45)), 10, "its end is no part of it")
	all := window(20, 35)
	all.Slots, all.Order = leaderdv1.Backfill_SLOTS_ALL, leaderdv1.Backfill_ORDER_NEWEST
	require.Equal(t, []string{"run 12:30 failed", "run 12:25 missed:outage", "run 12:20 missed:outage"}, dry(all), "up to, but not at, the end")
	list, err := s.backfills.ListBackfills(ctx, &leaderdv1.ListBackfillsRequest{Parent: billing})
	require.NoError(t, err)
	require.Empty(t, list.GetBackfills(), "a dry run changes nothing")

	ask := window(5, 20)
	ask.Reason, ask.Concurrency = "disk swap", 2
	made, err := s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: ask})
	require.NoError(t, err)
	require.EqualValues(t, 2, made.GetBackfill().GetTotal())
	require.EqualValues(t, 2, made.GetBackfill().GetRemaining())
	name := made.GetBackfill().GetName()
	got, err := s.backfills.GetBackfill(ctx, &leaderdv1.GetBackfillRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, made.GetBackfill().String(), got.GetBackfill().String())
	require.Equal(t, leaderdv1.Backfill_STATE_RUNNING, got.GetBackfill().GetState())

	// A run of it that succeeded is not missing any more; one that failed is.
	id := state.BackfillID(name[len(billing+"/backfills/"):])
	s.writeRecord(t, id.Run(minute(10)), state.StateSucceeded)
	s.writeRecord(t, id.Run(minute(15)), state.StateFailed)
	require.Equal(t, []string{"leave 12:10 run " + string(id.Run(minute(10))), "run 12:15 missed:outage"}, dry(window(10, 20)))
	nothing, err := s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: window(5, 14)})
	require.NoError(t, err)
	require.Empty(t, nothing.GetBackfill().GetName())
	require.Equal(t, leaderdv1.Backfill_STATE_DONE, nothing.GetBackfill().GetState())

	for range state.MaxBackfillsActive - 1 {
		_, err = s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: all})
		require.NoError(t, err)
	}
	_, err = s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: billing, Backfill: all})
	requireBadFields(t, err, "parent")
	seen := map[string]bool{}
	page := &leaderdv1.ListBackfillsRequest{Parent: "namespaces/-/jobs/-", PageSize: 3}
	for {
		list, err := s.backfills.ListBackfills(ctx, page)
		require.NoError(t, err)
		for _, b := range list.GetBackfills() {
			require.False(t, seen[b.GetName()])
			seen[b.GetName()] = true
		}
		if page.PageToken = list.GetNextPageToken(); page.GetPageToken() == "" {
			break
		}
	}
	require.Len(t, seen, state.MaxBackfillsActive)

	cancelled, err := s.backfills.CancelBackfill(ctx, &leaderdv1.CancelBackfillRequest{Name: name, Reason: "wrong month"})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Backfill_STATE_CANCELLING, cancelled.GetBackfill().GetState())
	again, err := s.backfills.CancelBackfill(ctx, &leaderdv1.CancelBackfillRequest{Name: name, Reason: "once more"})
	require.NoError(t, err)
	require.Equal(t, "wrong month", again.GetBackfill().GetCancelReason())
	require.False(t, again.GetBackfill().GetCancelRunning())
	for _, running := range []bool{true, false} {
		again, err = s.backfills.CancelBackfill(ctx, &leaderdv1.CancelBackfillRequest{Name: name, CancelRunning: running})
		require.NoError(t, err)
		require.True(t, again.GetBackfill().GetCancelRunning(), "it is not taken back")
		require.Equal(t, "wrong month", again.GetBackfill().GetCancelReason())
	}
}

func (s *served) writeRecord(t *testing.T, run state.RunID, to state.RunState) {
	t.Helper()
	s.write(t, "history/default/billing/"+string(run), codec.RecordToProto(&state.Record{State: to, Shards: 1}))
}

// A window of which the cluster may yet run every slot says that, and who holds them.
func TestBackfillBeforeTheWatermark(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *"))
	s.at(minute(60))
	leader := state.Term{Key: store.DefaultPrefix + "leader/l", Number: s.writeRaw(t, "leader/l", "l")}
	require.NoError(t, s.store.PutWatermark(t.Context(), leader, state.Watermark{
		Instant: minute(42), Written: minute(60),
		Late: state.Late{Runs: 1, Worst: state.JobID{Namespace: "default", Name: "gpu"}, Since: minute(43), Reason: state.ReasonNoMatchingNode},
	}))
	create := func(from, to int) error {
		_, err := s.backfills.CreateBackfill(t.Context(), &leaderdv1.CreateBackfillRequest{
			Parent: billing, Backfill: window(from, to), ValidateOnly: true,
		})
		return err
	}
	for _, from := range []int{41, 45} {
		err := create(from, 100)
		requireBadFields(t, err, "backfill.fromTime")
		require.ErrorContains(t, err, "such as 2026-11-30T12:45:00Z, are still open: the watermark is at 2026-11-30T12:42:00Z, 18m0s behind, "+
			"held by default/gpu, whose run due 2026-11-30T12:43:00Z has not started: no_matching_node")
	}
	require.ErrorContains(t, create(56, 59), "name no slot")
}

func TestBadBackfills(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.at(noon)
	s.put(t, billing, spec("* * * * * *"))
	create := func(parent string, b *leaderdv1.Backfill) error {
		_, err := s.backfills.CreateBackfill(ctx, &leaderdv1.CreateBackfillRequest{Parent: parent, Backfill: b})
		return err
	}
	requireBadFields(t, create("billing", nil), "backfill.fromTime", "parent")
	requireBadFields(t, create(billing, window(5, 10)), "backfill.fromTime")
	requireBadFields(t, create(billing, window(-5, -5)), "backfill.toTime")
	requireBadFields(t, create(billing, window(-1000, 0)), "backfill.toTime") // too many slots
	long := window(0, 0)
	long.FromTime = timestamppb.New(noon.Add(-3661 * 24 * time.Hour))
	requireBadFields(t, create(billing, long), "backfill.toTime")
	bad := window(-5, 0)
	bad.Concurrency, bad.Reason, bad.Slots, bad.Order = 33, "\x01", 7, -1
	requireBadFields(t, create(billing, bad), "backfill.concurrency", "backfill.order", "backfill.reason", "backfill.slots")
	requireFailure(t, create("namespaces/default/jobs/nope", window(-5, 0)), codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
	s.put(t, "namespaces/default/jobs/never", spec())
	requireBadFields(t, create("namespaces/default/jobs/never", window(-5, 0)), "parent")
	s.put(t, "namespaces/default/jobs/once", spec("@at 2099-01-01T00:00:00Z"))
	requireBadFields(t, create("namespaces/default/jobs/once", window(-5, 0)), "backfill.fromTime")
	for _, name := range []string{"", "x", billing + "/backfills/", billing + "/backfills/20261130T020000Z-5F3A9C01", billing + "/backfills/x-5f3a9c01"} {
		_, err := s.backfills.GetBackfill(ctx, &leaderdv1.GetBackfillRequest{Name: name})
		requireBadFields(t, err, "name")
	}
	_, err := s.backfills.GetBackfill(ctx, &leaderdv1.GetBackfillRequest{Name: billing + "/backfills/20261130T020000Z-5f3a9c01"})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_BACKFILL_NOT_FOUND)
	_, err = s.backfills.CancelBackfill(ctx, &leaderdv1.CancelBackfillRequest{Name: billing + "/backfills/20261130T020000Z-5f3a9c01"})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_BACKFILL_NOT_FOUND)
}
