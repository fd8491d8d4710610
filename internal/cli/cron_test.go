package cli

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/planner/schedule"
)

// nowhere is an address that nobody may ask: these commands work offline.
const nowhere = "invalid.invalid:1"

// TestCronNextKnowsTheTraps runs the table of known traps through the command.
func TestCronNextKnowsTheTraps(t *testing.T) {
	content, err := os.ReadFile("../../planner/schedule/testdata/schedules.tsv")
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(string(content)), "\n")[1:]
	require.Greater(t, len(rows), 90)
	for _, row := range rows {
		cols := strings.Split(row, "\t")
		spec, err := strconv.Unquote(cols[1])
		require.NoError(t, err)
		want := strings.Split(cols[4], ",")
		code, stdout, stderr := cmdline(t, nowhere, "", "cron", "next", spec,
			"--zone", cols[2], "--from", cols[3], "-n", strconv.Itoa(len(want)), "-o", "json")
		if cols[4] == "ERROR" {
			require.Equal(t, exitUsage, code, row)
			require.Empty(t, stdout, row)
			require.Regexp(t, `^error: schedule "`, stderr)
			require.Equal(t, 1, strings.Count(stderr, "\n"), row)
			continue
		}
		require.Zero(t, code, stderr)
		require.Empty(t, stderr, row)
		if cols[4] == "NEVER" {
			want = []string{}
		}
		var got []string
		require.NoError(t, json.Unmarshal([]byte(stdout), &got), row)
		require.Equal(t, want, got, row)
	}
}

func TestCronNext(t *testing.T) {
	next := func(args ...string) string {
		return succeed(t, nowhere, "", append([]string{"cron", "next"}, args...)...)
	}
	require.Equal(t, `[
  "2026-11-30T12:00:00Z",
  "2026-11-30T18:00:00Z",
  "2026-12-01T00:00:00Z",
  "2026-12-01T12:00:00Z"
]
`, next("0 */12 * * *", "0 18 30 * *", "--from", "2026-11-30T01:00:00+01:00", "-n", "4", "-o", "json"), "an instant that two schedules name is one slot")
	require.Equal(t, "- \"2026-11-30T03:30:00Z\"\n", next("@every 1h30m", "--from", "2026-11-30T03:00:00Z", "--anchor", "2026-11-30T02:00:00Z", "--count", "1", "-o", "yaml"))
	require.Equal(t, "[]\n", next("@at 2026-11-30T00:00:00Z", "--from", "2026-11-30T00:00:00Z", "-o", "json"))
	require.Equal(t, ""+
		"SLOT                  LOCAL                      DAY\n"+
		"2026-11-30T23:30:00Z  2026-12-01T08:30:00+09:00  Tuesday\n",
		next("CRON_TZ=Asia/Tokyo 30 8 * * *", "--from", "2026-11-30T12:00:00Z", "-n", "1"))
	require.Equal(t, "- \"2026-11-30T18:17:00Z\"\n", next("H H * * *", "--job", "report", "--from", "2026-11-30T00:00:00Z", "-n", "1", "-o", "yaml"))
	require.Equal(t, next("H H * * *", "--job", "report", "-n", "1"), next("H H * * *", "--job", "namespaces/default/jobs/report", "-n", "1"))

	before := time.Now()
	var fromNow []time.Time
	require.NoError(t, json.Unmarshal([]byte(next("* * * * * *", "-o", "json")), &fromNow))
	require.Len(t, fromNow, 5)
	require.True(t, fromNow[0].After(before))
}

func TestCronMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"next"}, []string{"leaderd cron next: SCHEDULE is missing"}},
		{[]string{"next", "*/5", "*", "*", "*", "*"}, []string{"leaderd cron next: put each schedule in quotes"}},
		{[]string{"describe", "0", "0", "*", "*", "*"}, []string{"leaderd cron describe: put each schedule in quotes"}},
		{[]string{"describe", "0 0 * * *", "0 1 * * *"}, []string{"takes SCHEDULE, but got"}},
		{[]string{"describe", "0 22-2 * * *"}, []string{`write "22-23,0-2"`}},
		{[]string{"next", "0 22-2 * * *", "0 0 * * *", "@reboot"}, []string{`write "22-23,0-2"`, "no meaning for a fleet"}},
		{[]string{"next", "0 0 * * *", "--zone", "europe/berlin"}, []string{"write Europe/Berlin"}},
		{[]string{"next", "0 0 * * *", "--zone", ""}, []string{"--zone: an empty name"}},
		{[]string{"next", "0 0 * * *", "--from", "today"}, []string{`--from: "today" is no instant such as`}},
		{[]string{"next", "0 0 * * *", "--anchor", "today"}, []string{`--anchor: "today" is no instant such as`}},
		{[]string{"next", "0 0 * * *", "-n", "0"}, []string{"--count: 0 is outside 1–100000"}},
		{[]string{"next", "0 0 * * *", "--job", "a/b/c"}, []string{`"a/b/c" is not a job's name`}},
		{[]string{"next", ""}, []string{"empty, expected a cron expression"}},
	} {
		code, stdout, stderr := cmdline(t, nowhere, "", append([]string{"cron"}, c.args...)...)
		require.Equal(t, exitUsage, code, "%q", c.args)
		require.Empty(t, stdout)
		lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
		require.Len(t, lines, len(c.want), "%q", c.args)
		for i, want := range c.want {
			require.Contains(t, lines[i], want)
		}
	}
}

func TestCronDescribe(t *testing.T) {
	describe := func(args ...string) string {
		return succeed(t, nowhere, "", append([]string{"cron", "describe"}, args...)...)
	}
	require.Equal(t, ""+
		"at 02:30, on Monday to Friday\n"+
		"zone:           Europe/Berlin (zone data "+schedule.ZoneData()+")\n"+
		"clock changes:  each local time counts once: one that is left out runs right after, one that comes twice runs the first time\n",
		describe("30 2 * * MON-FRI", "--zone", "Europe/Berlin"))
	require.Equal(t, "every hour\nzone:  UTC (zone data "+schedule.ZoneData()+")\n", describe("@hourly"))
	require.Contains(t, describe("CRON_TZ=Asia/Tokyo 0 * * * *"), "clock changes:  keeps to real time\n")
	require.Equal(t, "once at 2026-12-01T09:00:00Z\n", describe("@at 2026-12-01T09:00:00Z"))
	require.Equal(t, "at 18:17, every day", strings.Split(describe("H H * * *", "--job", "report"), "\n")[0])
	require.JSONEq(t, `{"schedule": "0 0 L * *", "description": "at 00:00, on the last day of the month",
		"zone": "UTC", "realTime": false, "zoneData": "`+schedule.ZoneData()+`"}`, describe("0 0 L * *", "-o", "json"))
}
