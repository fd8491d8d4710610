package schedule

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

// The walker below is an independent and slow implementation of the rules in the
// package comment: it looks at every second (or minute) of a window through
// time.Time.In and asks whether a job is due. It shares no code with Schedule. How
// many expressions it is held to is a flag: -rapid.checks=100000.

var walkZones = []string{
	"UTC", "Africa/Casablanca", "Africa/Cairo", "Africa/Monrovia", "Africa/El_Aaiun", "America/Asuncion",
	"America/Caracas", "America/Havana", "America/Los_Angeles", "America/New_York", "America/Nuuk",
	"America/Phoenix", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns",
	"Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza", "Asia/Jerusalem",
	"Asia/Kathmandu", "Asia/Kolkata", "Asia/Manila", "Asia/Pyongyang", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores",
	"Australia/Lord_Howe", "Australia/Melbourne", "Europe/Berlin", "Europe/Dublin", "Europe/Istanbul",
	"Europe/London", "Europe/Moscow", "Europe/Volgograd", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham",
	"Pacific/Kwajalein", "Pacific/Norfolk", "Pacific/Tongatapu", "Etc/GMT+12",
}

// walk returns the slots in (from, until] in order. It reads the clock at every
// step from lead before the window to lead after it.
func (c plainCron) walk(loc *time.Location, o Options, from, until, lead, step int64) (slots []time.Time) {
	var clock []int64 // what it shows at each step
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	for t := from - lead; t <= until+lead; t += step {
		_, off := time.Unix(t, 0).In(loc).Zone()
		l := t + int64(off)
		clock = append(clock, l)
		lowest, highest = min(lowest, l), max(highest, l)
	}
	// The first and last step at which it shows a time, 0 for never.
	first, last := make([]int, (highest-lowest)/step+1), make([]int, (highest-lowest)/step+1)
	for i, l := range clock {
		at := (l - lowest) / step
		if first[at] == 0 {
			first[at] = i
		}
		last[at] = i
	}
	realTime := c.hour.text[0] == '*' || strings.HasPrefix(c.hour.text, "H/")
	for t := from + step; t <= until; t += step {
		i := int((t - from + lead) / step)
		l := clock[i]
		due := c.matches(time.Unix(l, 0).UTC())
		if due && !realTime {
			at := (l - lowest) / step
			due = o.Repeated == RepeatedBoth || o.Repeated == RepeatedFirst && first[at] == i ||
				o.Repeated == RepeatedLast && last[at] == i
		}
		gap := l - clock[i-1] - step
		if !due && !realTime && o.Missing == MissingShift && gap > 0 && gap <= 3*60*60 {
			for lost := l - gap; lost < l && !due; lost += step {
				due = c.matches(time.Unix(lost, 0).UTC())
			}
		}
		if due {
			slots = append(slots, time.Unix(t, 0).UTC())
		}
	}
	return slots
}

// drawTransition returns an instant at which the zone's offset changes, or any
// instant if the zone has no change after the one drawn.
func drawTransition(t *rapid.T, loc *time.Location) time.Time {
	year := rapid.OneOf(rapid.IntRange(1970, 2040), rapid.IntRange(1900, 9990)).Draw(t, "year")
	day := rapid.IntRange(0, 365).Draw(t, "day")
	at := time.Date(year, 1, 1+day, 12, 0, 0, 0, time.UTC)
	for t := at; ; {
		_, before := t.In(loc).Zone()
		_, end := t.In(loc).ZoneBounds()
		if end.IsZero() || end.Year() > year+3 {
			return at
		}
		if !end.After(t) { // ZoneBounds stands still on the last day of a leap year
			end = t.Add(15 * time.Minute)
		}
		if _, after := end.In(loc).Zone(); after != before {
			return end.UTC()
		}
		t = end
	}
}

func TestWalk(t *testing.T) {
	all := zoneinfo.Names()
	seen, specs := map[string]bool{}, 0
	defer func() { t.Logf("%d expressions in %d zones", specs, len(seen)) }()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.OneOf(rapid.SampledFrom(walkZones), rapid.SampledFrom(all)).Draw(t, "zone")
		loc, err := zoneinfo.Load(zone)
		require.NoError(t, err)
		o := Options{
			Zone:     zone,
			Job:      rapid.SampledFrom([]string{"", "default/a", "default/b", "ops/c"}).Draw(t, "job"),
			Missing:  rapid.SampledFrom([]Missing{MissingShift, MissingSkip}).Draw(t, "missing"),
			Repeated: rapid.SampledFrom([]Repeated{RepeatedFirst, RepeatedLast, RepeatedBoth}).Draw(t, "repeated"),
		}
		middle := drawTransition(t, loc).Unix()
		seconds := rapid.Bool().Draw(t, "seconds")
		c := drawCron(seconds, o.Job).Draw(t, "cron")
		step, half, lead := int64(60), int64(8*24*3600), int64(26*3600)
		if seconds || !wholeMinutes(loc, middle-half-lead, middle-1, middle, middle+half+lead) {
			step, half, lead = 1, 4*3600, 4*3600
			_, before := time.Unix(middle-1, 0).In(loc).Zone()
			if _, after := time.Unix(middle, 0).In(loc).Zone(); before-after > 3*3600 {
				lead = 26 * 3600 // Kwajalein had one day twice
			}
		}
		from, until := middle-half-middle%step, middle+half

		s, err := Parse(c.String(), o)
		if err != nil {
			require.Regexp(t, "never fires?", err.Error())
			if !strings.Contains(err.Error(), "might never fire") {
				for day := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2400; day = day.AddDate(0, 0, 1) {
					require.False(t, c.matchesDate(day), "%s fires on %s", c, day)
				}
			}
			return
		}
		seen[zone] = true
		specs++
		want := c.walk(loc, o, from, until, lead, step)
		start, end := time.Unix(from, 0), time.Unix(until, 0)
		var forward []time.Time
		for at := s.Next(start); !at.IsZero() && !at.After(end); at = s.Next(at) {
			forward = append(forward, at)
		}
		requireSame(t, want, forward)
		i := len(want)
		for at := s.Prev(end); at.After(start); at = s.Prev(at.Add(-time.Second)) {
			if i--; i < 0 || want[i] != at {
				require.Fail(t, "backward", "slot %s is none", at)
			}
		}
		require.Zero(t, i)
		require.EqualValues(t, len(want), s.Count(start, end))
		if n := len(want); n > 0 {
			cut := rapid.IntRange(0, n-1).Draw(t, "cut")
			require.EqualValues(t, cut+1, s.Count(start, want[cut]))
			require.EqualValues(t, n-cut-1, s.Count(want[cut], end))
		}
	})
}

func requireSame(t *rapid.T, want, got []time.Time) {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			require.Equal(t, want[i], got[i], "slot %d", i)
		}
	}
	require.Len(t, got, len(want))
}

// wholeMinutes reports whether the zone's clock shows whole minutes at whole
// minutes of UTC at all these instants.
func wholeMinutes(loc *time.Location, at ...int64) bool {
	for _, t := range at {
		if _, off := time.Unix(t, 0).In(loc).Zone(); off%60 != 0 {
			return false
		}
	}
	return true
}
