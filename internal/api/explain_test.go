package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

func (s *served) explain(t *testing.T, at time.Time) *leaderdv1.ExplainSlotResponse {
	t.Helper()
	res, err := s.timeline.ExplainSlot(t.Context(), &leaderdv1.ExplainSlotRequest{
		Name: billing, At: &leaderdv1.ExplainSlotRequest_Time{Time: timestamppb.New(at)},
	})
	require.NoError(t, err)
	return res
}

func (s *served) explainLocal(t *testing.T, local string) *leaderdv1.ExplainSlotResponse {
	t.Helper()
	res, err := s.timeline.ExplainSlot(t.Context(), &leaderdv1.ExplainSlotRequest{
		Name: billing, At: &leaderdv1.ExplainSlotRequest_LocalTime{LocalTime: local},
	})
	require.NoError(t, err)
	return res
}

func TestExplainWhatHappened(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *", "0 13 * * *"))
	first := state.Attempt{
		Number: 1, Node: "n1", Token: 5, Term: 3, Claimed: minute(5).Add(-time.Second), Started: minute(5).Add(4 * time.Millisecond),
		Ended: minute(5).Add(time.Second), State: state.StateLost,
	}
	second := first
	second.Number, second.Node, second.Token, second.Term, second.State = 2, "n2", 9, 8, state.StateFailed
	second.Claimed, second.Started, second.Ended = minute(5).Add(8*time.Second), minute(5).Add(8*time.Second), minute(6)
	second.ExitCode, second.HasCode = 2, true
	second.Ended = minute(11)
	s.record(t, minute(5), state.Record{Generation: 1, State: state.StateFailed, Attempts: []state.Attempt{first, second}, Recorded: minute(11)})
	s.record(t, minute(10), state.Record{Generation: 1, State: state.StateSkipped, Reason: state.ReasonOverlap, Recorded: minute(10)})
	s.record(t, minute(15), state.Record{Generation: 1, State: state.StateMissed, Reason: state.ReasonOutage, Until: minute(25), Count: 3, Recorded: minute(30)})
	s.at(minute(40))

	x := s.explain(t, minute(5))
	require.Equal(t, "It ran: failed on n2, planned in term 8, started 8s after it was due and took 5m52s. It took 2 attempts; the first, on n1, ended lost.", x.GetSummary())
	require.Equal(t, leaderdv1.Slot_ANSWER_VERDICT, x.GetSlot().GetAnswer())
	require.EqualValues(t, 1, x.GetVersion().GetGeneration())
	require.Equal(t, minute(10), x.GetNextSlot().AsTime())
	require.Nil(t, x.GetPreviousSlot(), "12:00 is not after the instant of the version")
	var events []string
	for _, e := range x.GetEvents() {
		events = append(events, e.GetTime().AsTime().Format("15:04:05.000 ")+e.GetWhat())
	}
	require.Equal(t, []string{
		"12:00:00.000 version 1 came into force (create by anonymous)",
		"12:04:59.000 attempt 1 claimed by n1, planned in term 3, token 5",
		"12:05:00.000 due",
		"12:05:00.004 attempt 1 started, 4ms after it was due",
		"12:05:01.000 attempt 1 ended: lost",
		"12:05:08.000 attempt 2 claimed by n2, planned in term 8, token 9",
		"12:05:08.000 attempt 2 started, 8s after it was due",
		"12:11:00.000 attempt 2 ended: failed, code 2",
		"12:11:00.000 verdict failed stored",
	}, events)
	require.Equal(t, "It did not start: skipped:overlap, since an earlier run of the job was still live, and its overlap policy is skip."+
		" Make the work shorter or the schedule wider, set a timeout, or choose another overlap policy."+
		" Run 20261130T120500Z was live from 2026-11-30T12:04:59Z to 2026-11-30T12:11:00Z.", s.explain(t, minute(10)).GetSummary())
	require.Contains(t, s.explain(t, minute(20)).GetSummary(), "missed:outage, since no node led for longer than the horizon, or all were down."+
		" It shares this verdict with 2 others, from 2026-11-30T12:15:00Z to 2026-11-30T12:25:00Z.")
	require.Equal(t, `No slot: of "*/5 * * * *" minute 21 is not in */5; of "0 13 * * *" hour 12 is not in 13.`, s.explain(t, minute(21)).GetSummary(),
		"between the slots of a range")
	require.Contains(t, s.explain(t, minute(30)).GetSummary(), "It is due and has not started.")
	s.mark(t, minute(35))
	require.Contains(t, s.explain(t, minute(30)).GetSummary(), "it has no record")
}

// Where the executor was lost nobody knows how far the work came.
func TestExplainLost(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	once := spec("*/5 * * * *")
	once.Guarantee = leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE
	s.put(t, billing, once)
	lost := state.Attempt{
		Number: 1, Node: "n1", Token: 5, Term: 3, Claimed: minute(5).Add(-time.Second), Ended: minute(5).Add(8 * time.Second),
		State: state.StateLost, Error: "the executor's registration ended",
	}
	s.record(t, minute(5), state.Record{Generation: 1, State: state.StateLost, Attempts: []state.Attempt{lost}, Recorded: minute(6)})
	s.record(t, minute(10), state.Record{
		Generation: 1, State: state.StateMissed, Reason: state.ReasonDeadline, Detail: "no executor matches the nodeSelector and the resources", Recorded: minute(11),
	})
	s.record(t, minute(15), state.Record{Generation: 1, State: state.StateCancelled, Reason: state.ReasonDeleted, Attempts: []state.Attempt{lost}, Recorded: minute(16)})
	s.at(minute(20))
	require.Equal(t, "It was claimed by n1 (token 5), planned in term 3; its executor was lost; the work may have run in part or in full: lost."+
		" Look at what the work did; trigger a run if it is to be done again.", s.explain(t, minute(5)).GetSummary())
	require.Equal(t, "It did not start: missed:deadline, since it had not started when its start deadline was over; the detail says what kept it"+
		" (no executor matches the nodeSelector and the resources). Do away with what kept it. A longer startDeadline lets it start later.", s.explain(t, minute(10)).GetSummary())
	require.Contains(t, s.explain(t, minute(15)).GetSummary(), "the work may have run in part or in full: cancelled:deleted.", "it was not tried again")
}

// A slot that another run kept from starting is told with the policy that its own
// version had.
func TestExplainOverlap(t *testing.T) {
	s := serve(t, nil)
	summary := func(n int, detail string, change func(*leaderdv1.JobSpec)) string {
		s.at(minute(n - 1))
		sp := spec("*/5 * * * *")
		change(sp)
		version := s.put(t, billing, sp).GetJob().GetGeneration()
		s.record(t, minute(n), state.Record{
			Generation: version, State: state.StateSkipped, Reason: state.ReasonOverlap, Detail: detail, Recorded: minute(n),
		})
		s.at(minute(n + 1))
		return s.explain(t, minute(n)).GetSummary()
	}
	require.Contains(t, summary(5, "the queue is full: 3 of at most 3 runs wait", func(sp *leaderdv1.JobSpec) {
		sp.Overlap, sp.QueueLimit = leaderdv1.Overlap_OVERLAP_QUEUE, 3
	}), "since an earlier run of the job was still live, and its overlap policy is queue with a queueLimit of 3 (the queue is full: 3 of at most 3 runs wait).")
	require.Contains(t, summary(10, "2 runs were live", func(sp *leaderdv1.JobSpec) {
		sp.Overlap, sp.MaxConcurrent = leaderdv1.Overlap_OVERLAP_ALLOW, 2
	}), "since 2 runs of the job were live, as many as its maxConcurrent, and its overlap policy is allow (2 runs were live).")
	require.Contains(t, summary(15, "run 20261130T121000Z of default/other was live", func(sp *leaderdv1.JobSpec) {
		sp.ConcurrencyKey = "db"
	}), "since another run of its concurrencyKey db was live, and its overlap policy is skip (run 20261130T121000Z of default/other was live).")

	// The run that a newer one had stopped names that one, not one before itself.
	earlier := state.Attempt{Number: 1, Node: "n1", Claimed: minute(15), Started: minute(15), Ended: minute(25), State: state.StateSucceeded}
	s.record(t, minute(16), state.Record{Generation: 4, State: state.StateSucceeded, Attempts: []state.Attempt{earlier}, Recorded: minute(25)})
	s.at(minute(16))
	sp := spec("*/5 * * * *")
	sp.Overlap = leaderdv1.Overlap_OVERLAP_CANCEL
	s.put(t, billing, sp)
	victim := state.Attempt{Number: 1, Node: "n1", Term: 3, Claimed: minute(20), Started: minute(20), Ended: minute(25), State: state.StateCancelled}
	s.record(t, minute(20), state.Record{
		Generation: 4, State: state.StateCancelled, Reason: state.ReasonOverlap, Detail: "run 20261130T122500Z of default/billing was due",
		Attempts: []state.Attempt{victim}, Recorded: minute(25),
	})
	s.at(minute(30))
	require.Equal(t, "It ran: cancelled:overlap on n1, planned in term 3, started 0s after it was due and took 5m0s."+
		" It ended so since a newer run was due while this one was live, and the overlap policy of that run's job is cancel"+
		" (run 20261130T122500Z of default/billing was due).", s.explain(t, minute(20)).GetSummary())
}

func TestExplainWhatIsNoSlot(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	berlin := spec("30 2 * * *", "0 9 * * MON-FRI")
	berlin.TimeZone = "Europe/Berlin"
	s.put(t, billing, berlin)

	x := s.explain(t, time.Date(2026, 12, 1, 1, 7, 0, 0, time.UTC))
	require.Nil(t, x.GetSlot())
	require.Equal(t, `No slot: of "30 2 * * *" minute 7 is not in 30; of "0 9 * * MON-FRI" hour 2 is not in 9.`, x.GetSummary())
	require.Equal(t, "minute", x.GetSchedules()[0].GetExcludedBy())
	require.Equal(t, "2026-12-01T02:07:00", x.GetSchedules()[0].GetLocalTime())
	require.Equal(t, []string{"hour 2 is not in 9", "minute 7 is not in 0"}, x.GetSchedules()[1].GetReasons())
	require.Nil(t, x.GetPreviousSlot(), "there was no job then")
	require.Equal(t, "2026-12-01T01:30:00Z", x.GetNextSlot().AsTime().Format(time.RFC3339))

	require.Equal(t, "No slot: the job came into being at 2026-11-30T12:00:00Z.", s.explain(t, time.Date(2026, 11, 30, 1, 30, 0, 0, time.UTC)).GetSummary())
	require.Contains(t, s.explain(t, noon.Add(time.Millisecond)).GetSummary(), "a slot is a whole second")

	// The clock leaves 02:30 out in the night of 28 March and repeats it in October.
	x = s.explainLocal(t, "2027-03-28T02:30")
	require.Equal(t, "The local time 2027-03-28T02:30 does not exist in Europe/Berlin; this is about the first instant after the gap,"+
		" 2027-03-28T01:00:00Z. It will be due by version 1 if nothing changes.", x.GetSummary())
	require.Equal(t, []string{"it stands for the local time 02:30, which does not exist that day"}, x.GetSchedules()[0].GetReasons())
	x = s.explain(t, time.Date(2027, 10, 31, 1, 30, 0, 0, time.UTC))
	require.Nil(t, x.GetSlot())
	require.Equal(t, "clock", x.GetSchedules()[0].GetExcludedBy())
	require.Contains(t, s.explainLocal(t, "2027-10-31T02:30").GetSummary(), "occurs twice in Europe/Berlin, at 2027-10-31T00:30:00Z and at 2027-10-31T01:30:00Z")

	_, err := s.timeline.ExplainSlot(t.Context(), &leaderdv1.ExplainSlotRequest{Name: billing})
	requireBadFields(t, err, "at")
	_, err = s.timeline.ExplainSlot(t.Context(), &leaderdv1.ExplainSlotRequest{Name: billing, At: &leaderdv1.ExplainSlotRequest_LocalTime{LocalTime: "02:30"}})
	requireBadFields(t, err, "localTime")
}

func TestExplainChanges(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *"))
	s.at(minute(11))
	s.put(t, billing, spec("@hourly"))
	s.at(minute(70))
	_, err := s.jobs.PauseJob(t.Context(), &leaderdv1.PauseJobRequest{Name: billing, Reason: "disk swap"})
	require.NoError(t, err)
	s.at(minute(71))
	edited := spec("@hourly")
	edited.Description = "while it is paused"
	s.put(t, billing, edited)

	x := s.explain(t, minute(15))
	require.Equal(t, "It was a slot of version 1, which version 2 superseded before it was due: by anonymous at 2026-11-30T12:11:00Z.", x.GetSummary())
	require.Equal(t, leaderdv1.Slot_ANSWER_SUPERSEDED, x.GetSlot().GetAnswer())
	require.EqualValues(t, 2, x.GetVersion().GetGeneration())
	require.Contains(t, s.explain(t, minute(10)).GetSummary(), "It is due and has not started")
	x = s.explain(t, minute(120))
	require.Equal(t, "It did not count: the job was paused, by anonymous at 2026-11-30T13:10:00Z (disk swap). Slots of a pause are not caught up.", x.GetSummary())
	require.EqualValues(t, 3, x.GetSlot().GetBy().GetGeneration())
	require.Contains(t, s.explain(t, minute(121)).GetSummary(), "minute 1 is not in 0")
}

func TestExplainWhatCouldStopIt(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.at(noon)
	picky := spec("*/5 * * * *")
	picky.NodeSelector = map[string]string{"disk": "ssd", "arch": "arm64"}
	s.put(t, billing, picky)
	reasons := func() (out []string) {
		x := s.explain(t, minute(5))
		require.Equal(t, leaderdv1.Slot_ANSWER_PLANNED, x.GetSlot().GetAnswer())
		for _, o := range x.GetObstacles() {
			require.NotEmpty(t, o.GetDetail())
			out = append(out, o.GetReason())
		}
		return out
	}
	require.Equal(t, []string{"behind", "no_executor"}, reasons())
	s.mark(t, noon.Add(-time.Second))
	_, err := s.store.Register(ctx, state.Node{Name: "n1", Executor: true, Capacity: 3}, time.Minute)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(reasons()) == 1 && reasons()[0] == "no_matching_node" }, 10*time.Second, time.Millisecond)
	require.Equal(t, "none of 1 executors has the labels of the nodeSelector and the resources: arch=arm64, disk=ssd", s.explain(t, minute(5)).GetObstacles()[0].GetDetail())
	_, err = s.store.Register(ctx, state.Node{Name: "n2", Executor: true, Capacity: 3, Labels: picky.GetNodeSelector()}, time.Minute)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(reasons()) == 0 }, 10*time.Second, time.Millisecond)
	live := state.Live{
		Run: state.SlotRunID(noon), Shards: 1, State: state.StateRunning, Attempt: 1, Owner: state.Owner{Node: "n2", Revision: 4}, Due: noon, Claimed: noon,
	}
	s.write(t, "active/default/billing/~", codec.LiveToProto(&live))
	require.Equal(t, []string{"overlap"}, reasons())
	require.Equal(t, "run 20261130T120000Z is running on n2 since 2026-11-30T12:00:00Z; while it is live no other run of the job starts",
		s.explain(t, minute(5)).GetObstacles()[0].GetDetail())
	_, err = s.db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+"active/default/billing/~", []byte("\xff"), 0)}})
	require.NoError(t, err)
	require.Equal(t, []string{"unreadable_record"}, reasons())
}

// What keeps a slot of a schedule from running is told before and after.
func TestExplainRules(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	winter := spec("30 2 * * *")
	winter.TimeZone = "Europe/Berlin"
	winter.StartTime, winter.EndTime = timestamppb.New(noon.AddDate(0, 0, 2)), timestamppb.New(noon.AddDate(0, 6, 0))
	winter.Jitter = durationpb.New(10 * time.Minute)
	winter.MissingTime = leaderdv1.MissingTime_MISSING_TIME_SKIP
	s.put(t, billing, winter)

	x := s.explain(t, time.Date(2026, 12, 1, 1, 30, 0, 0, time.UTC))
	require.Nil(t, x.GetSlot())
	require.Equal(t, "No slot: the job's window begins at 2026-12-02T12:00:00Z.", x.GetSummary())
	require.Equal(t, "window", x.GetSchedules()[0].GetExcludedBy())
	require.Equal(t, "No slot: the job's window ended at 2027-05-30T12:00:00Z.", s.explain(t, time.Date(2027, 6, 1, 0, 30, 0, 0, time.UTC)).GetSummary())

	slot := time.Date(2026, 12, 3, 1, 30, 0, 0, time.UTC)
	late := state.Jitter(state.JobID{Namespace: "default", Name: "billing"}, slot, 10*time.Minute)
	require.Equal(t, "It will be due by version 1 if nothing changes; its jitter has it start "+late.String()+" later.", s.explain(t, slot).GetSummary())
	require.Contains(t, s.explainLocal(t, "2027-03-28T02:30").GetSummary(), "it will be skipped:dst: stands for local times that the clock left out")

	// At the instant at which its jitter has it due there is no slot, but it is named.
	dueAt := slot.Add(late)
	require.Contains(t, s.explain(t, dueAt.Truncate(time.Second)).GetSummary(),
		" Slot 2026-12-03T01:30:00Z was due just then, at "+dueAt.Format("2006-01-02T15:04:05.000Z")+", by its jitter of "+late.String()+".")
	require.Contains(t, s.explain(t, dueAt).GetSummary(), "was due just then")
	require.Contains(t, s.explain(t, dueAt.Truncate(time.Second).Add(2*time.Second)).GetSummary(), "The slot before it, 2026-12-03T01:30:00Z, was due at ")
	require.NotContains(t, s.explain(t, slot.Add(11*time.Minute)).GetSummary(), "jitter")

	// An edit while a slot waits for its jitter takes it away.
	s.at(slot.Add(late / 2))
	s.put(t, billing, spec("@hourly"))
	require.Contains(t, s.explain(t, slot).GetSummary(), "It was a slot of version 1, which version 2 superseded before it was due")
}

// A pause that ends by itself is known to end.
func TestExplainAPauseThatEnds(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *"))
	s.at(minute(6))
	_, err := s.jobs.PauseJob(t.Context(), &leaderdv1.PauseJobRequest{Name: billing, Until: timestamppb.New(minute(16))})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Slot_ANSWER_PAUSED, s.explain(t, minute(15)).GetSlot().GetAnswer())
	require.Equal(t, leaderdv1.Slot_ANSWER_PLANNED, s.explain(t, minute(20)).GetSlot().GetAnswer())
	require.Equal(t, []string{
		"12:05:00 x1 v1 open", "12:10:00-12:15:00 x2 v2 paused by v2 anonymous ()", "12:20:00 x1 v2 planned",
	}, s.ledger(t, noon, minute(25), 10))
}
