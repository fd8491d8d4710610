package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The walker below is an independent and slow implementation of the rules in the
// package comment: it looks at every second (or minute) of a window through
// time.Time.In and asks whether a job is due. It shares no code with Schedule.

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

// plainField is a field as text and, computed apart, as values.
type plainField struct {
	text   string
	values map[int]bool
}

func drawField(lo, hi int, usual []int) *rapid.Generator[plainField] {
	return rapid.Custom(func(t *rapid.T) plainField {
		f := plainField{values: map[int]bool{}}
		add := func(a, b, step int) {
			for v := a; v <= b; v += step {
				f.values[v] = true
			}
		}
		var parts []string
		for range rapid.IntRange(1, 3).Draw(t, "elements") {
			a := rapid.SampledFrom(usual).Draw(t, "a")
			b := rapid.IntRange(a, hi).Draw(t, "b")
			step := rapid.IntRange(1, hi-lo).Draw(t, "step")
			switch rapid.IntRange(0, 5).Draw(t, "form") {
			case 0:
				parts = append(parts, "*")
				add(lo, hi, 1)
			case 1:
				parts = append(parts, fmt.Sprintf("*/%d", step))
				add(lo, hi, step)
			case 2:
				parts = append(parts, fmt.Sprintf("%d-%d", a, b))
				add(a, b, 1)
			case 3:
				parts = append(parts, fmt.Sprintf("%d-%d/%d", a, b, step))
				add(a, b, step)
			case 4:
				parts = append(parts, fmt.Sprintf("%d/%d", a, step))
				add(a, hi, step)
			default:
				parts = append(parts, fmt.Sprint(a))
				add(a, a, 1)
			}
		}
		f.text = strings.Join(parts, ",")
		return f
	})
}

func upTo(lo, hi int) (all []int) {
	for v := lo; v <= hi; v++ {
		all = append(all, v)
	}
	return all
}

type plainCron struct {
	second, minute, hour, dom, month, dow plainField
}

func drawCron(seconds bool) *rapid.Generator[plainCron] {
	return rapid.Custom(func(t *rapid.T) plainCron {
		c := plainCron{
			second: plainField{text: "0", values: map[int]bool{0: true}},
			minute: drawField(0, 59, upTo(0, 59)).Draw(t, "minute"),
			hour:   drawField(0, 23, []int{0, 1, 2, 3, 4, 12, 22, 23}).Draw(t, "hour"),
			dom:    plainField{text: "*"}, month: plainField{text: "*"}, dow: plainField{text: "*"},
		}
		c.dom.values, c.month.values, c.dow.values = set(1, 31), set(1, 12), set(0, 6)
		if seconds {
			c.second = drawField(0, 59, upTo(0, 59)).Draw(t, "second")
		} else {
			if rapid.Bool().Draw(t, "some days of month") {
				c.dom = drawField(1, 31, upTo(1, 31)).Draw(t, "dom")
			}
			if rapid.Bool().Draw(t, "some weekdays") {
				c.dow = drawField(0, 6, upTo(0, 6)).Draw(t, "dow")
			}
			if rapid.IntRange(0, 3).Draw(t, "some months") == 0 {
				c.month = drawField(1, 12, upTo(1, 12)).Draw(t, "month")
			}
		}
		return c
	})
}

func set(lo, hi int) map[int]bool {
	s := map[int]bool{}
	for v := lo; v <= hi; v++ {
		s[v] = true
	}
	return s
}

func (c plainCron) String() string {
	return strings.Join([]string{c.second.text, c.minute.text, c.hour.text, c.dom.text, c.month.text, c.dow.text}, " ")
}

// GoString keeps rapid's reports short.
func (c plainCron) GoString() string { return c.String() }

func (c plainCron) matches(l time.Time) bool {
	if !c.hour.values[l.Hour()] || !c.minute.values[l.Minute()] || !c.second.values[l.Second()] || !c.month.values[int(l.Month())] {
		return false
	}
	dom, dow := c.dom.values[l.Day()], c.dow.values[int(l.Weekday())]
	if c.dom.text[0] == '*' || c.dow.text[0] == '*' {
		return dom && dow
	}
	return dom || dow
}

// walk returns the slots in (from, until] in order.
func (c plainCron) walk(loc *time.Location, o Options, from, until, lead, step int64) (slots []time.Time) {
	local := func(t int64) int64 {
		_, off := time.Unix(t, 0).In(loc).Zone()
		return t + int64(off)
	}
	realTime := c.hour.text[0] == '*'
	first, last := map[int64]int64{}, map[int64]int64{}
	for t := from - lead; t <= until+lead; t += step {
		l := local(t)
		if _, ok := first[l]; !ok {
			first[l] = t
		}
		last[l] = t
	}
	for t := from + step; t <= until; t += step {
		l := local(t)
		due := c.matches(time.Unix(t, 0).In(loc))
		if due && !realTime {
			due = o.Repeated == RepeatedBoth || o.Repeated == RepeatedFirst && first[l] == t ||
				o.Repeated == RepeatedLast && last[l] == t
		}
		gap := l - local(t-step) - step
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
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(walkZones).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		o := Options{
			Zone:     zone,
			Missing:  rapid.SampledFrom([]Missing{MissingShift, MissingSkip}).Draw(t, "missing"),
			Repeated: rapid.SampledFrom([]Repeated{RepeatedFirst, RepeatedLast, RepeatedBoth}).Draw(t, "repeated"),
		}
		middle := drawTransition(t, loc).Unix()
		seconds := rapid.Bool().Draw(t, "seconds")
		c := drawCron(seconds).Draw(t, "cron")
		step, half, lead := int64(60), int64(8*24*3600), int64(26*3600)
		if seconds || !wholeMinutes(loc, middle-half-lead, middle-1, middle, middle+half+lead) {
			step, half, lead = 1, 4*3600, 4*3600
		}
		from, until := middle-half-middle%step, middle+half

		s, err := Parse(c.String(), o)
		if err != nil {
			require.ErrorContains(t, err, "never fires")
			return
		}
		want := c.walk(loc, o, from, until, lead, step)
		start, end := time.Unix(from, 0), time.Unix(until, 0)
		var forward []time.Time
		for at := s.Next(start); !at.IsZero() && !at.After(end); at = s.Next(at) {
			forward = append(forward, at)
		}
		requireSame(t, want, forward)
		i := len(want)
		for at := s.Prev(end); at.After(start); at = s.Prev(at.Add(-time.Second)) {
			i--
			require.GreaterOrEqual(t, i, 0, "slot %s only found backward", at)
			require.Equal(t, want[i], at)
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
		require.Equal(t, want[i], got[i], "slot %d", i)
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
