package history_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/planner/schedule"
)

// TestOracleIsIndependent: a checker that asked the scheduler when something was
// due would agree with its mistakes.
func TestOracleIsIndependent(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if path == "github.com/leaderd/leaderd/planner/schedule/zoneinfo" {
				continue // data: what clocks show, not when anything is due
			}
			first, _, _ := strings.Cut(path, "/")
			require.NotContains(t, first, ".", "%s imports %s, which is not of the standard library", file, path)
		}
	}
}

func parse(t *testing.T, text, zone string, anchor time.Time) *history.Schedule {
	t.Helper()
	s, err := history.ParseSchedule(text, zone, anchor, history.ClockRules{})
	require.NoError(t, err)
	return s
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		schedule string
		t        time.Time
		want     bool
	}{
		{"@every 2s", at(4), true},
		{"@every 2s", at(5), false},
		{"@every 2s", at(-2), false},
		{"@every 1s", at(0.5), false},
		{"@at 2026-11-30T02:00:04Z, 2026-11-30T03:00:05+01:00", at(5), true},
		{"@at 2026-11-30T02:00:04Z", at(5), false},
		{"* * * * * *", at(7), true},
		{"*/5 * * * * *", at(10), true},
		{"*/5 * * * * *", at(11), false},
		{"3-9/3,20 * * * * *", at(6), true},
		{"3-9/3,20 * * * * *", at(20), true},
		{"3-9/3,20 * * * * *", at(12), false},
		{"7/10 * * * * *", at(27), true},
		{"0 2 * * *", at(0), true},
		{"0 2 * * *", at(1), false},
		{"0 2 30 11 *", at(0), true},
		{"0 2 * NOV mon", at(0), true},
		{"0 2 * * 2", at(0), false},
		{"0 2 1 * 1", at(0), true},
		{"0 2 */29 * 2", at(0), false},
		{"0 2 * * FRI-SUN", t0.AddDate(0, 0, 6), true},
		{"0 2 * * 7", t0.AddDate(0, 0, 6), true},
		{"CRON_TZ=Asia/Tokyo 0 11 * * *", at(0), true},
		{"0 2 L * *", at(0), true},
		{"0 2 L * *", t0.AddDate(0, 0, -1), false},
		{"0 2 L-1 * *", t0.AddDate(0, 0, -1), true},
		{"0 2 lw * *", at(0), true},
		{"0 2 30W * *", at(0), true},
		{"0 2 28W,29W * *", t0.AddDate(0, 0, -3), true},
		{"0 2 31W * *", at(0), false},
		{"0 2 * * 1#5", at(0), true},
		{"0 2 * * MON#4", at(0), false},
		{"0 2 * * monL", at(0), true},
		{"0 2 * * 7L", t0.AddDate(0, 0, -1), true},
		{"H H(2-2) * * *", at(3300), true}, // minute 55 is the empty job's
		{"@hourly", at(0), true},
		{"@daily", at(0), false},
	} {
		require.Equal(t, c.want, parse(t, c.schedule, "", t0).Due(c.t), "%s at %s", c.schedule, c.t)
	}
	for _, bad := range []string{
		"", "* *", "x * * * *", "*/0 * * * *", "1-x * * * *", "@every soon", "@every 1500ms", "0 0 32 * *", "@at noon", "0 0 WW * *", "0 0 * * L", "0 0 * * 1#x", "H(3) * * * *", "H(9-3) * * * *", "H/x * * * *", "0 0 L-x * *", "TZ=UTC",
		"CRON_TZ=No/Where 0 0 * * *", "9-3 * * * *",
	} {
		_, err := history.ParseSchedule(bad, "", t0, history.ClockRules{})
		require.Error(t, err, bad)
	}
}

// TestKnownTraps holds the oracle to the table of slots that was written by hand.
func TestKnownTraps(t *testing.T) {
	content, err := os.ReadFile("../../planner/schedule/testdata/schedules.tsv")
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(content)) {
		cols := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, cols, 6)
		if cols[0] == "id" || strings.Trim(cols[4], "ERONV") == "" {
			continue
		}
		text, err := strconv.Unquote(cols[1])
		require.NoError(t, err)
		from, err := time.Parse(time.RFC3339Nano, cols[3])
		require.NoError(t, err)
		expected := strings.Split(cols[4], ",")
		last, err := time.Parse(time.RFC3339, expected[len(expected)-1])
		require.NoError(t, err)
		if last.Sub(from) > 400*24*time.Hour {
			continue // the oracle looks at every minute
		}
		var got []string
		for _, slot := range parse(t, text, cols[2], from).Slots(from.Add(time.Nanosecond), last) {
			got = append(got, slot.Format(time.RFC3339))
		}
		require.Equal(t, expected, got, "%s: %s in %s", cols[0], text, cols[2])
		n++
	}
	require.Greater(t, n, 50)
}

// TestOracleAgrees compares the oracle with the product, around the clock changes
// of several zones. Neither is the other's test alone: each has tables of its own.
func TestOracleAgrees(t *testing.T) {
	around := []struct{ zone, at string }{
		{"Europe/Berlin", "2027-03-28T01:00:00Z"},
		{"Europe/Berlin", "2027-10-31T01:00:00Z"},
		{"America/New_York", "2027-11-07T06:00:00Z"},
		{"Australia/Lord_Howe", "2027-04-03T15:00:00Z"},
		{"Australia/Lord_Howe", "2027-10-02T15:30:00Z"},
		{"America/Santiago", "2027-09-05T04:00:00Z"},
		{"Africa/Casablanca", "2027-02-07T02:00:00Z"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z"},
		{"Africa/Monrovia", "1972-01-07T00:44:30Z"},
		{"UTC", "2028-02-29T00:00:00Z"},
	}
	special := map[string][]string{
		"second":  {"H", "H/7", "H(10-20)"},
		"minute":  {"H", "H/20", "H(0-29)/4"},
		"hour":    {"H", "H/3", "H(1-3)"},
		"day":     {"L", "LW", "15W", "28W", "1W", "L-2", "30W", "H", "H/4", "3,L"},
		"weekday": {"SUN#1", "6#4", "0L", "1L", "5L,MON#5", "H", "H(1-5)"},
	}
	number := func(t *rapid.T, lo, hi int, name string) string {
		a := rapid.IntRange(lo, hi).Draw(t, name)
		switch rapid.IntRange(0, 5).Draw(t, name+" form") {
		case 0:
			return "*"
		case 1:
			return "*/" + strconv.Itoa(rapid.IntRange(1, hi-lo).Draw(t, name+" step"))
		case 2:
			return strconv.Itoa(a) + "-" + strconv.Itoa(rapid.IntRange(a, hi).Draw(t, name+" end"))
		case 3:
			return strconv.Itoa(lo) + "," + strconv.Itoa(a)
		case 4:
			return rapid.SampledFrom(special[name]).Draw(t, name+" special")
		}
		return strconv.Itoa(a)
	}
	rapid.Check(t, func(t *rapid.T) {
		where := rapid.SampledFrom(around).Draw(t, "where")
		middle, err := time.Parse(time.RFC3339, where.at)
		require.NoError(t, err)
		anchor := middle.Add(-time.Duration(rapid.IntRange(0, 40_000).Draw(t, "anchor")) * time.Second)
		half := 30 * time.Hour
		var text string
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			text = "@every " + (time.Duration(rapid.IntRange(1, 9000).Draw(t, "seconds")) * time.Second).String()
		case 1:
			text, half = number(t, 0, 59, "second")+" "+number(t, 0, 59, "minute")+" "+number(t, 0, 3, "hour")+" * * *", 4*time.Hour
		default:
			text = number(t, 0, 59, "minute") + " " + number(t, 0, 4, "hour") + " " + number(t, 1, 28, "day") + " * " + number(t, 0, 6, "weekday")
		}
		job := rapid.SampledFrom([]string{"default/a", "ops/b"}).Draw(t, "job")
		missing := rapid.SampledFrom([]schedule.Missing{schedule.MissingShift, schedule.MissingSkip}).Draw(t, "missing")
		repeated := rapid.SampledFrom([]schedule.Repeated{schedule.RepeatedFirst, schedule.RepeatedLast, schedule.RepeatedBoth}).Draw(t, "repeated")
		product, err := schedule.Parse(text, schedule.Options{Zone: where.zone, Anchor: anchor, Job: job, Missing: missing, Repeated: repeated})
		if err != nil {
			t.Skip(err)
		}
		oracle, err := history.ParseJobSchedule(job, text, where.zone, anchor, history.ClockRules{
			Missing: [...]string{"shift", "skip"}[missing], Repeated: [...]string{"first", "last", "both"}[repeated],
		})
		require.NoError(t, err)
		from, to := middle.Add(-half), middle.Add(half)
		var want []time.Time
		for slot := product.Next(from); !slot.IsZero() && !slot.After(to); slot = product.Next(slot) {
			want = append(want, slot)
		}
		require.Equal(t, want, oracle.Slots(from.Add(time.Second), to), "%s in %s", text, where.zone)
	})
}

func BenchmarkSlots(b *testing.B) {
	for _, text := range []string{"@every 1s", "*/5 * * * * *", "*/5 * * * *", "30 2 * * *"} {
		b.Run(text, func(b *testing.B) {
			s, err := history.ParseSchedule(text, "Europe/Berlin", t0, history.ClockRules{})
			require.NoError(b, err)
			for b.Loop() {
				s.Slots(t0, t0.Add(time.Hour))
			}
		})
	}
}
