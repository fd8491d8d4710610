package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestReadTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	now := time.Date(2026, 11, 30, 23, 30, 0, 0, time.UTC) // already the first of December there
	for text, want := range map[string]string{
		"2026-12-01T06:00:00Z":      "2026-12-01T06:00:00Z",
		"2026-12-01T06:00:00+01:00": "2026-12-01T05:00:00Z",
		"2026-12-01":                "2026-11-30T23:00:00Z",
		"2026-12-01T06:00":          "2026-12-01T05:00:00Z",
		"2026-07-01T06:00:30":       "2026-07-01T04:00:30Z",
		"2026-10-25T02:30":          "2026-10-25T00:30:00Z", // it comes twice
		"2026-10-25T03:00":          "2026-10-25T02:00:00Z",
		"18:00":                     "2026-12-01T17:00:00Z",
		"18:00:05":                  "2026-12-01T17:00:05Z",
		"90m":                       "2026-11-30T22:00:00Z",
		"7d":                        "2026-11-23T23:30:00Z",
		"2w":                        "2026-11-16T23:30:00Z",
	} {
		got, err := readTime("--from", text, now, berlin, ago(now))
		require.NoError(t, err, text)
		require.Equal(t, want, got.Format(time.RFC3339), text)
	}
	for text, want := range map[string]string{
		"2027-03-28T02:30": "left out by the clocks of Europe/Berlin",
		"2026-13-01":       "neither a duration",
		"25:00":            "neither a duration",
		"-7d":              "neither a duration",
		"d":                "neither a duration",
		"99999999w":        "neither a duration",
		"":                 "neither a duration",
		"-1h":              "neither a duration",
	} {
		_, err := readTime("--from", text, now, berlin, ago(now))
		require.ErrorContains(t, err, "--from: ", text)
		require.ErrorContains(t, err, want, text)
	}
	_, err = readTime("--anchor", "7d", now, berlin, nil)
	require.ErrorContains(t, err, `--anchor: "7d" is no instant such as`)
}

func TestVerifyTakesDays(t *testing.T) {
	require.Contains(t, succeed(t, goodPast().serve(t), "", "verify", "--since", "1d"), "violations:")
	var s spanValue
	require.NoError(t, s.Set("2w"))
	require.Equal(t, "336h0m0s", s.String())
}

// What has no offset is for the zone of the job, in the forms that all times have.
func TestExplainedTime(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 500, time.Local)
	for at, want := range map[string]string{
		"2026-11-30T02:00":          "2026-11-30T02:00",
		"2026-11-30T02:00:30":       "2026-11-30T02:00:30",
		"2026-12-01":                "2026-12-01T00:00:00",
		"18:00":                     "2026-11-30T18:00:00",
		"18:00:30":                  "2026-11-30T18:00:30",
		"2026-11-30T02:00:00+01:00": "",
		"7d":                        "",
	} {
		req := &leaderdv1.ExplainSlotRequest{}
		require.NoError(t, explainedTime(req, at, now), at)
		require.Equal(t, want, req.GetLocalTime(), at)
		require.Equal(t, want == "", req.GetTime() != nil, at)
	}
	req := &leaderdv1.ExplainSlotRequest{}
	require.NoError(t, explainedTime(req, "90m", now))
	require.Equal(t, now.Add(-90*time.Minute).Truncate(time.Second).UTC(), req.GetTime().AsTime())
	require.ErrorContains(t, explainedTime(req, "", now), "--at is required")
	require.ErrorContains(t, explainedTime(req, "monday", now), `--at: "monday" is neither a duration such as 90m, 24h or 7d, nor a time such as`)
}
