package cli

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func (f *fake) ListSlots(_ context.Context, r *leaderdv1.ListSlotsRequest) (*leaderdv1.ListSlotsResponse, error) {
	f.asked = r
	page, _ := strconv.Atoi(r.GetPageToken())
	return f.slots[page], nil
}

func TestLedger(t *testing.T) {
	f, addr := startFake(t)
	const job = "namespaces/default/jobs/billing"
	at := func(n int) *timestamppb.Timestamp { return timestamppb.New(slot.Add(time.Duration(n) * time.Minute)) }
	missed := &leaderdv1.Run{Name: job + "/runs/20261130T020500Z", State: leaderdv1.Run_STATE_MISSED, Reason: "outage", DueTime: at(5)}
	by := &leaderdv1.VersionRef{Generation: 2, Change: leaderdv1.JobVersion_CHANGE_PAUSE, Actor: "alice", Reason: "disk swap", EffectiveTime: at(9)}
	f.slots = []*leaderdv1.ListSlotsResponse{
		{Slots: []*leaderdv1.Slot{
			{SlotTime: at(0), SlotCount: 1, Answer: leaderdv1.Slot_ANSWER_VERDICT, JobGeneration: 1, Run: runOf(job, slot, leaderdv1.Run_STATE_SUCCEEDED, 4*time.Millisecond, time.Second)},
			{SlotTime: at(5), UntilTime: at(7), SlotCount: 3, Answer: leaderdv1.Slot_ANSWER_VERDICT, JobGeneration: 1, Run: missed},
			{SlotTime: at(10), UntilTime: at(20), SlotCount: 11, Answer: leaderdv1.Slot_ANSWER_PAUSED, JobGeneration: 2, By: by},
		}, NextPageToken: "1"},
		{NextPageToken: "2"},
		{Slots: []*leaderdv1.Slot{
			{SlotTime: at(21), SlotCount: 1, Answer: leaderdv1.Slot_ANSWER_PAUSED, JobGeneration: 2, By: by},
			{SlotTime: at(30), SlotCount: 1, Answer: leaderdv1.Slot_ANSWER_PLANNED, JobGeneration: 3},
			{SlotTime: at(40), SlotCount: 1, Answer: leaderdv1.Slot_ANSWER_PLANNED, JobGeneration: 3, Excluded: "calendar", Detail: "it will be skipped:calendar: in calendar holidays: 11-30"},
			{SlotTime: at(50), SlotCount: 1, Answer: leaderdv1.Slot_ANSWER_PAUSED, JobGeneration: 4, By: by, Detail: "run by backfill b1: succeeded"},
		}},
	}
	require.Equal(t, `SLOT                  UNTIL                 SLOTS  ANSWER         VERSION  LATE  NODE  WHY
2026-11-30T02:00:00Z  -                     -      succeeded      1        +4ms  n1    -
2026-11-30T02:05:00Z  2026-11-30T02:07:00Z  3      missed:outage  1        -     -     -
2026-11-30T02:10:00Z  2026-11-30T02:21:00Z  12     paused         2        -     -     version 2, pause by alice: disk swap
2026-11-30T02:30:00Z  -                     -      planned        3        -     -     -
2026-11-30T02:40:00Z  -                     -      excluded       3        -     -     it will be skipped:calendar: in calendar holidays: 11-30
2026-11-30T02:50:00Z  -                     -      paused         4        -     -     version 2, pause by alice: disk swap; run by backfill b1: succeeded
`, succeed(t, addr, "", "job", "ledger", "billing", "--from", "2026-11-30T02:00:00Z", "--to", "2026-11-30T03:00:00Z"))
	require.Equal(t, time.Hour, f.asked.GetEndTime().AsTime().Sub(f.asked.GetStartTime().AsTime()))
	require.Contains(t, succeed(t, addr, "", "job", "ledger", "billing", "-o", "json"), `"answer": "ANSWER_PAUSED"`)
	require.Equal(t, 25*time.Hour, f.asked.GetEndTime().AsTime().Sub(f.asked.GetStartTime().AsTime()))

	code, stdout, stderr := cmdline(t, addr, "", "job", "ledger", "billing", "--limit", "2")
	require.Zero(t, code)
	require.Equal(t, 3, strings.Count(stdout, "\n"), stdout)
	require.Equal(t, "stopped after 2 lines; go on with --from 2026-11-30T02:10:00Z, or raise --limit\n", stderr)
	code, _, stderr = cmdline(t, addr, "", "job", "ledger", "billing", "--from", "yesterday")
	require.Equal(t, 2, code)
	require.Equal(t, "error: --from: \"yesterday\" is neither a duration such as 90m, 24h or 7d, nor a time such as 2026-11-30T02:00:00Z, 2026-11-30T02:00, 2026-11-30 or 18:00\n", stderr)
}

func (f *fake) ExplainSlot(_ context.Context, r *leaderdv1.ExplainSlotRequest) (*leaderdv1.ExplainSlotResponse, error) {
	f.explain = r
	return f.explained, nil
}

func TestExplain(t *testing.T) {
	f, addr := startFake(t)
	const job = "namespaces/default/jobs/billing"
	at := timestamppb.New(slot)
	f.explained = &leaderdv1.ExplainSlotResponse{
		Name: job, Time: at, Summary: "It will be due by version 2 if nothing changes.",
		Slot:      &leaderdv1.Slot{SlotTime: at, SlotCount: 1, Answer: leaderdv1.Slot_ANSWER_PLANNED, JobGeneration: 2},
		Version:   &leaderdv1.VersionRef{Generation: 2, Change: leaderdv1.JobVersion_CHANGE_UPDATE, Actor: "alice", EffectiveTime: at},
		Schedules: []*leaderdv1.ScheduleAnswer{{Schedule: "0 9 * * *", LocalTime: "2026-11-30T02:00:00", ExcludedBy: "hour", Reasons: []string{"hour 2 is not in 9"}}, {Schedule: "@hourly", LocalTime: "2026-11-30T02:00:00", Due: true}},
		NextSlot:  timestamppb.New(slot.Add(time.Hour)),
		Events:    []*leaderdv1.SlotEvent{{Time: at, What: "due"}},
		Obstacles: []*leaderdv1.Obstacle{{Reason: "no_executor", Detail: "no executor is registered"}},
	}
	require.Equal(t, `job:      default/billing
at:       2026-11-30T02:00:00Z
answer:   planned
version:  2, update by alice, in force since 2026-11-30T02:00:00Z
before:   -
after:    2026-11-30T03:00:00Z

It will be due by version 2 if nothing changes.

SCHEDULE   LOCAL TIME           DUE  WHY
0 9 * * *  2026-11-30T02:00:00  no   hour 2 is not in 9
@hourly    2026-11-30T02:00:00  yes  -

TIME                      WHAT
2026-11-30T02:00:00.000Z  due

COULD STOP IT  WHY
no_executor    no executor is registered
`, succeed(t, addr, "", "job", "explain", "billing", "--at", "2026-11-30T02:00:00Z"))
	require.Equal(t, slot, f.explain.GetTime().AsTime())
	require.Contains(t, succeed(t, addr, "", "job", "explain", "billing", "--at", "2026-11-30T02:00", "-o", "yaml"), "excludedBy: hour\n")
	require.Equal(t, "2026-11-30T02:00", f.explain.GetLocalTime())

	code, _, stderr := cmdline(t, addr, "", "job", "explain", "billing")
	require.Equal(t, 2, code)
	require.Equal(t, "error: --at is required\n", stderr)
}
