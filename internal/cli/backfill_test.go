package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const fillName = "namespaces/default/jobs/report/backfills/20261130T070954Z-5f3a9c01"

func (f *fake) CreateBackfill(_ context.Context, r *leaderdv1.CreateBackfillRequest) (*leaderdv1.CreateBackfillResponse, error) {
	b := r.GetBackfill()
	b.Total, b.Remaining, b.State, b.Actor, b.CreateTime = 1, 1, leaderdv1.Backfill_STATE_RUNNING, "ada", timestamppb.New(slot)
	res := &leaderdv1.CreateBackfillResponse{Backfill: b}
	if r.GetValidateOnly() {
		res.Slots = []*leaderdv1.BackfillSlot{
			{SlotTime: b.GetFromTime(), Run: true, Have: "missed:outage"}, {SlotTime: timestamppb.New(slot), Have: "succeeded"},
		}
		return res, nil
	}
	b.Name = fillName
	f.fill = b
	return res, nil
}

func (f *fake) GetBackfill(context.Context, *leaderdv1.GetBackfillRequest) (*leaderdv1.GetBackfillResponse, error) {
	return &leaderdv1.GetBackfillResponse{Backfill: f.fill}, nil
}

func (f *fake) ListBackfills(context.Context, *leaderdv1.ListBackfillsRequest) (*leaderdv1.ListBackfillsResponse, error) {
	return &leaderdv1.ListBackfillsResponse{Backfills: []*leaderdv1.Backfill{f.fill}}, nil
}

func (f *fake) CancelBackfill(_ context.Context, r *leaderdv1.CancelBackfillRequest) (*leaderdv1.CancelBackfillResponse, error) {
	f.fill.State, f.fill.CancelReason = leaderdv1.Backfill_STATE_CANCELLING, r.GetReason()
	f.fill.CancelRunning = r.GetCancelRunning()
	f.fill.CancelTime, f.fill.CancelActor = timestamppb.New(slot), "ben"
	return &leaderdv1.CancelBackfillResponse{Backfill: f.fill}, nil
}

func TestBackfillCommands(t *testing.T) {
	f, addr := startFake(t)
	from := []string{"--from", "2026-11-28T02:00:00Z", "--to", "2026-11-30T00:00:00Z"}
	dry := succeed(t, addr, "", append([]string{"job", "backfill", "report", "--dry-run"}, from...)...)
	require.Contains(t, dry, "2026-11-28T02:00:00Z  missed:outage  run\n")
	require.Contains(t, dry, "default/report would run 1 of 2 slots (dry run)\n")
	require.Nil(t, f.fill)
	require.Equal(t, "default/report backfill 20261130T070954Z-5f3a9c01 of 1 slots\n", succeed(t, addr, "",
		append([]string{"job", "backfill", "report", "--all", "--order", "newest", "--concurrency", "4", "--override-overlap", "--reason", "swap"}, from...)...))
	require.Equal(t, leaderdv1.Backfill_SLOTS_ALL, f.fill.GetSlots())
	require.Equal(t, leaderdv1.Backfill_ORDER_NEWEST, f.fill.GetOrder())
	require.EqualValues(t, 4, f.fill.GetConcurrency())
	require.True(t, f.fill.GetOverrideOverlap())
	require.Contains(t, succeed(t, addr, "", "backfill", "list", "--job", "report"), "default/report  20261130T070954Z-5f3a9c01  running  1")
	require.Equal(t, "default/report backfill 20261130T070954Z-5f3a9c01 cancelling\n",
		succeed(t, addr, "", "backfill", "cancel", "report", "20261130T070954Z-5f3a9c01", "--reason", "wrong month"))
	require.Equal(t, "default/report backfill 20261130T070954Z-5f3a9c01 cancelling\n",
		succeed(t, addr, "", "backfill", "cancel", "report", "20261130T070954Z-5f3a9c01", "--reason", "wrong month", "--running"))
	shown := succeed(t, addr, "", "backfill", "get", "report", "20261130T070954Z-5f3a9c01")
	require.Contains(t, shown, "slots:      all, newest first, 4 at a time, beside live runs\n")
	require.Contains(t, shown, "by ben: wrong month; with the runs that were under way\n")
	require.Contains(t, shown, "remaining:  1\n")

	require.Contains(t, succeed(t, addr, "", "job", "backfill", "report", "--from", "2026-11-28T02:00:00Z"), " of 1 slots up to ")
	require.Nil(t, f.fill.GetToTime(), "where it ends is the cluster's to say")

	for want, args := range map[string][]string{
		"--from is missing":                           {},
		`--from: "monday" is neither a duration`:      {"--from", "monday"},
		`--to: "-1h" is neither a duration`:           {"--from", "24h", "--to", "-1h"},
		`--order: "random" is neither oldest nor`:     {"--from", "24h", "--order", "random"},
		"--concurrency: 0 is less than 1":             {"--from", "24h", "--concurrency", "0"},
		"--all and --only-missing exclude each other": {"--from", "24h", "--all", "--only-missing"},
	} {
		code, _, stderr := cmdline(t, addr, "", append([]string{"job", "backfill", "report"}, args...)...)
		require.Equal(t, 2, code, want)
		require.Contains(t, stderr, want)
	}
	at, err := pastTime("from", "24h", slot.Add(24*time.Hour))
	require.NoError(t, err)
	require.Equal(t, slot.UTC(), at.AsTime())
}
