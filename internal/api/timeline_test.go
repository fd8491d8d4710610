package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// ledger reads the slots of billing in a window by pages of the given size, each in
// one line.
func (s *served) ledger(t *testing.T, from, to time.Time, size int32) (lines []string) {
	t.Helper()
	req := &leaderdv1.ListSlotsRequest{
		Parent: billing, StartTime: timestamppb.New(from), EndTime: timestamppb.New(to), PageSize: size,
	}
	for {
		res, err := s.timeline.ListSlots(t.Context(), req)
		require.NoError(t, err)
		for _, slot := range res.GetSlots() {
			line := slot.GetSlotTime().AsTime().Format("15:04:05")
			if slot.GetUntilTime() != nil {
				line += "-" + slot.GetUntilTime().AsTime().Format("15:04:05")
			}
			line += fmt.Sprintf(" x%d v%d %s", slot.GetSlotCount(), slot.GetJobGeneration(),
				strings.ToLower(strings.TrimPrefix(slot.GetAnswer().String(), "ANSWER_")))
			if r := slot.GetRun(); r != nil {
				line += " " + strings.ToLower(strings.TrimPrefix(r.GetState().String(), "STATE_")) + ":" + r.GetReason()
				require.Empty(t, r.GetOutputTail())
			}
			if by := slot.GetBy(); by != nil {
				line += fmt.Sprintf(" by v%d %s (%s)", by.GetGeneration(), by.GetActor(), by.GetReason())
			}
			lines = append(lines, line)
		}
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			return lines
		}
	}
}

// mark writes the watermark, as of all changes up to now.
func (s *served) mark(t *testing.T, at time.Time) {
	t.Helper()
	s.write(t, "timeline/watermark", &statev1.Watermark{Instant: codec.Micros(at), Term: 7, Written: codec.Micros(at), Jobs: 1 << 40})
}

func (s *served) record(t *testing.T, slot time.Time, rec state.Record) {
	t.Helper()
	rec.Due = slot
	_, err := s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{
		kv.Put(store.DefaultPrefix+"history/default/billing/"+string(state.SlotRunID(slot)), codec.MarshalRecord(&rec), 0),
	}})
	require.NoError(t, err)
}

func minute(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

func TestLedger(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *")) // v1: due from 12:05 on
	s.record(t, minute(5), state.Record{Generation: 1, State: state.StateSucceeded, Tail: []byte("out")})
	s.record(t, minute(10), state.Record{Generation: 1, State: state.StateSkipped, Reason: state.ReasonOverlap})
	s.record(t, minute(15), state.Record{Generation: 1, State: state.StateMissed, Reason: state.ReasonOutage, Until: minute(25), Count: 3})
	// Somebody deleted the records of 12:30 and 12:35.
	s.at(minute(42))
	_, err := s.jobs.PauseJob(t.Context(), &leaderdv1.PauseJobRequest{Name: billing, Reason: "disk swap"}) // v2
	require.NoError(t, err)
	s.record(t, minute(40), state.Record{Generation: 1, State: state.StateSkipped, Reason: state.ReasonPaused})
	s.at(minute(58))
	_, err = s.jobs.ResumeJob(t.Context(), &leaderdv1.ResumeJobRequest{Name: billing}) // v3
	require.NoError(t, err)
	s.at(minute(71))
	s.put(t, billing, spec("0 * * * *", "20,21 * * * *")) // v4
	live := state.Live{Run: state.SlotRunID(minute(60)), Shards: 1, State: state.StateRunning, Attempt: 1, Generation: 3, Due: minute(60)}
	s.write(t, "active/default/billing/~", codec.LiveToProto(&live))
	s.mark(t, minute(66))
	s.at(minute(81))

	want := []string{
		"12:05:00 x1 v1 verdict succeeded:",
		"12:10:00 x1 v1 verdict skipped:overlap",
		"12:15:00-12:25:00 x3 v1 verdict missed:outage",
		"12:30:00-12:35:00 x2 v1 unexplained",
		"12:40:00 x1 v1 verdict skipped:paused",
		"12:45:00-12:55:00 x3 v2 paused by v2 anonymous (disk swap)",
		"13:00:00 x1 v3 live running:",
		"13:05:00 x1 v3 unexplained",
		"13:10:00 x1 v3 open",
		// But for 13:20, 14:00 and 14:20, which are v4's as well.
		"13:15:00-14:25:00 x12 v3 superseded by v4 anonymous ()",
		"13:20:00-13:21:00 x2 v4 open",
		"14:00:00 x1 v4 planned",
		"14:20:00 x1 v4 planned",
		"14:21:00 x1 v4 planned",
	}
	require.Equal(t, want, s.ledger(t, noon, minute(150), 100))
	// A window that begins after the edit does not tell of what it took away, and one
	// that begins in a range has the range.
	require.Equal(t, want[10:11], s.ledger(t, minute(72), minute(100), 100))
	require.Equal(t, want[2:3], s.ledger(t, minute(20), minute(26), 100))
	for size := int32(1); size < 5; size++ {
		var parts []string
		for _, line := range s.ledger(t, noon, minute(150), size) {
			if !strings.Contains(line, "superseded") {
				parts = append(parts, line)
			}
		}
		require.Subset(t, parts, append(want[:3:3], want[6], want[12]), "pages of %d", size)
		slots := 0
		for _, line := range parts {
			var at string
			var n int
			_, err := fmt.Sscanf(line, "%s x%d", &at, &n)
			require.NoError(t, err)
			slots += n
		}
		require.Equal(t, 19, slots, "pages of %d", size)
	}
}

func TestLedgerOfADeletedJob(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("* * * * * *"))
	s.at(noon.Add(2 * time.Second))
	_, err := s.jobs.DeleteJob(t.Context(), &leaderdv1.DeleteJobRequest{Name: billing, Reason: "done"})
	require.NoError(t, err)
	s.at(noon.Add(time.Hour))
	require.Equal(t, []string{
		"12:00:01-12:00:02 x2 v1 open",
		"12:00:03-12:59:59 x3597 v2 deleted by v2 anonymous (done)",
	}, s.ledger(t, noon.Add(-time.Hour), noon.Add(time.Hour), 100))
}

func TestLedgerRefuses(t *testing.T) {
	s := serve(t, nil)
	_, err := s.timeline.ListSlots(t.Context(), &leaderdv1.ListSlotsRequest{Parent: billing})
	requireBadFields(t, err, "startTime", "endTime")
	_, err = s.timeline.ListSlots(t.Context(), &leaderdv1.ListSlotsRequest{
		Parent: "billing", StartTime: timestamppb.New(noon), EndTime: timestamppb.New(noon.Add(367 * 24 * time.Hour)), PageToken: "x",
	})
	requireBadFields(t, err, "parent", "endTime", "pageToken")
	_, err = s.timeline.ListSlots(t.Context(), &leaderdv1.ListSlotsRequest{
		Parent: billing, StartTime: timestamppb.New(time.Time{}), EndTime: timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
	})
	requireBadFields(t, err, "startTime", "endTime")
	require.ErrorContains(t, err, "0001-01-01T00:00:00Z is outside of the years 1900–9998")
	_, err = s.timeline.ListSlots(t.Context(), &leaderdv1.ListSlotsRequest{
		Parent: billing, StartTime: timestamppb.New(noon), EndTime: timestamppb.New(minute(1)),
	})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
}
