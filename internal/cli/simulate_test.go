package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func (f *fake) SimulateJob(context.Context, *leaderdv1.SimulateJobRequest) (*leaderdv1.SimulateJobResponse, error) {
	return f.simulated, nil
}

const nightly = `name: billing
spec:
  schedules: ["30 2 * * *"]
  timeZone: Europe/Berlin
  noop: {}
`

func TestSimulateOffline(t *testing.T) {
	nobody := "127.0.0.1:1"
	window := []string{"job", "simulate", "-f", "-", "--offline", "--from", "2027-03-27T00:00:00Z", "--to", "2027-03-30T00:00:00Z"}
	require.Equal(t, `job:     default/billing
window:  2027-03-27T00:00:00Z to 2027-03-30T00:00:00Z
slots:   3

CLOCK CHANGE          SCHEDULE    EFFECT   WHAT
2027-03-28T01:00:00Z  30 2 * * *  shifted  the clock is set from 02:00:00 to 03:00:00: 2027-03-28T02:30:00 left out, run once right after

SLOT                  LOCAL                      STARTS  SKIPPED
2027-03-27T01:30:00Z  2027-03-27T02:30:00+01:00  +0s     -
2027-03-28T01:00:00Z  2027-03-28T03:00:00+02:00  +0s     -
2027-03-29T00:30:00Z  2027-03-29T02:30:00+02:00  +0s     -
`, succeed(t, nobody, nightly, window...))

	for stdin, want := range map[string]string{
		`{"name": "billing", "spec": {"schedules": ["*/60 * * * *"], "noop": {}}}`:                              "spec.schedules[0]: schedule \"*/60 * * * *\": minute",
		`{"name": "billing", "spec": {"schedules": ["@daily"], "excludedCalendars": ["holidays"], "noop": {}}}`: "calendar holidays: calendars are in the cluster",
		twoJobs: "the files have 2 jobs: choose one with --job",
	} {
		code, _, stderr := cmdline(t, nobody, stdin, window...)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, want)
	}
	require.Contains(t, succeed(t, nobody, twoJobs, append(window, "--job", "ops/cleanup")...), "job:     ops/cleanup\n")
	code, _, stderr := cmdline(t, nobody, nightly, append(window, "--to", "2029-03-30T00:00:00Z")...)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "at most 8784h0m0s are allowed")
}

func TestSimulateAgainstACluster(t *testing.T) {
	f, addr := startFake(t)
	at := func(n int) *timestamppb.Timestamp { return timestamppb.New(slot.Add(time.Duration(n) * time.Minute)) }
	f.simulated = &leaderdv1.SimulateJobResponse{
		StartTime: at(0), EndTime: at(60), ComputedUntil: at(50), SlotCount: 3, SkippedCount: 1,
		Slots: []*leaderdv1.SimulatedSlot{
			{SlotTime: at(5), LocalTime: "2026-11-30T02:05:00Z", DueTime: timestamppb.New(slot.Add(301 * time.Second))},
			{SlotTime: at(6), LocalTime: "2026-11-30T02:06:00Z", DueTime: at(6), OverlapP50: "skipped", OverlapP95: "skipped"},
			{SlotTime: at(8), LocalTime: "2026-11-30T02:08:00Z", DueTime: at(8), OverlapP95: "skipped"},
			{SlotTime: at(10), LocalTime: "2026-11-30T02:10:00Z", DueTime: at(10), Skipped: "calendar: in calendar holidays: 2026-11-30"},
		},
		Diff:       &leaderdv1.SlotDiff{Generation: 3, Added: 1, Removed: 2, Unchanged: 1, FirstAdded: []*timestamppb.Timestamp{at(10)}, FirstRemoved: []*timestamppb.Timestamp{at(7), at(14)}},
		Forecast:   &leaderdv1.DurationForecast{Runs: 20, P50: durationpb.New(time.Minute), P95: durationpb.New(6 * time.Minute), OverlapsP50: 1, OverlapsP95: 2, FirstOverlap: at(6), Policy: "skip"},
		Collisions: &leaderdv1.Collisions{Jobs: 40, Slots: 1, Worst: []*leaderdv1.BusySecond{{Time: at(5), Others: 7, Names: []string{"namespaces/ops/jobs/cleanup"}}}},
	}
	require.Equal(t, `job:         default/billing
window:      2026-11-30T02:00:00Z to 2026-11-30T03:00:00Z
computed:    up to 2026-11-30T02:50:00Z; what follows is about that time
slots:       3, of which 1 would be skipped
against:     version 3: 1 added, 2 removed, 1 unchanged
took:        p50 1m0s, p95 6m0s in 20 runs
overlaps:    1 at p50, 2 at p95, the first at 2026-11-30T02:06:00Z
policy:      skip
collisions:  looked at 1 slots and 40 other jobs

FIRST CHANGES         WHAT
2026-11-30T02:07:00Z  removed
2026-11-30T02:10:00Z  added
2026-11-30T02:14:00Z  removed

BUSY SECOND           OTHERS  SUCH AS
2026-11-30T02:05:00Z  7       ops/cleanup

SLOT                  LOCAL                 STARTS  SKIPPED                                     OVERLAP
2026-11-30T02:05:00Z  2026-11-30T02:05:00Z  +1s     -                                           -
2026-11-30T02:06:00Z  2026-11-30T02:06:00Z  -       -                                           p50: skipped
2026-11-30T02:08:00Z  2026-11-30T02:08:00Z  +0s     -                                           p95: skipped
2026-11-30T02:10:00Z  2026-11-30T02:10:00Z  -       calendar: in calendar holidays: 2026-11-30  -
`, succeed(t, addr, nightly, "job", "simulate", "-f", "-"))
	require.Contains(t, succeed(t, addr, nightly, "job", "simulate", "-f", "-", "-o", "json"), `"generation": "3"`)
}
