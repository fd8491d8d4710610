package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSpecialDays gives the days of one month by hand: August 2026 begins on a
// Saturday and ends on a Monday, May ends on a Sunday, February has 28 days.
func TestSpecialDays(t *testing.T) {
	for _, c := range []struct {
		spec  string
		month time.Month
		want  []int
	}{
		{"0 0 L * *", time.August, []int{31}},
		{"0 0 L * *", time.February, []int{28}},
		{"0 0 L-3 * *", time.August, []int{28}},
		{"0 0 L-27 * *", time.February, []int{1}},
		{"0 0 L-28 * *", time.February, nil},
		{"0 0 L-30 * *", time.August, []int{1}},
		{"0 0 L-30 * *", time.June, nil},
		{"0 0 LW * *", time.August, []int{31}},
		{"0 0 LW * *", time.May, []int{29}},
		{"0 0 LW * *", time.February, []int{27}},
		{"0 0 1W * *", time.August, []int{3}},
		{"0 0 2W * *", time.August, []int{3}},
		{"0 0 15W * *", time.August, []int{14}},
		{"0 0 16W * *", time.August, []int{17}},
		{"0 0 31W * *", time.May, []int{29}},
		{"0 0 30W * *", time.May, []int{29}},
		{"0 0 31W * *", time.June, nil},
		{"0 0 29W * *", time.February, nil},
		{"0 0 1W,2W * *", time.August, []int{3}},
		{"0 0 1,15W,L * *", time.August, []int{1, 14, 31}},
		{"0 0 * * 6#1", time.August, []int{1}},
		{"0 0 * * SAT#5", time.August, []int{29}},
		{"0 0 * * 1#5", time.August, []int{31}},
		{"0 0 * * 2#5", time.August, nil},
		{"0 0 * * MON#1,MON#3", time.August, []int{3, 17}},
		{"0 0 * * 5L", time.August, []int{28}},
		{"0 0 * * 7L", time.May, []int{31}},
		{"0 0 * * SUN#5", time.May, []int{31}},
		{"0 0 * * FRIL,TUE", time.February, []int{3, 10, 17, 24, 27}},
		{"0 0 L * MON#1", time.August, []int{3, 31}},                      // either
		{"0 0 */2 * MON#1,MON#2", time.August, []int{3}},                  // both
		{"0 0 ? * FRI#2", time.August, []int{14}},                         // both
		{"0 0 13 * FRI#2", time.August, []int{13, 14}},                    // either
		{"0 0 L 2,8 *", time.May, nil},                                    // another month
		{"0 0 28-31,LW * SAT#1,SUNL", time.May, []int{2, 28, 29, 30, 31}}, // either
	} {
		s, err := Parse(c.spec, Options{})
		require.NoError(t, err, c.spec)
		from := time.Date(2026, c.month, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
		end := from.Add(time.Second).AddDate(0, 1, 0)
		var got []int
		for at := s.Next(from); at.Before(end); at = s.Next(at) {
			got = append(got, at.Day())
		}
		require.Equal(t, c.want, got, "%s in %s", c.spec, c.month)
		require.EqualValues(t, len(c.want), s.Count(from, end.Add(-time.Second)))
	}
}

// TestHash fixes the values of H for ever: other values would move every job that
// uses it. They can be computed anew by hand:
//
//	printf 'default/report\nminute' | sha256sum
func TestHash(t *testing.T) {
	for _, c := range []struct{ spec, same string }{
		{"H H * * *", "17 18 * * *"},
		{"H * * * * *", "1 * * * * *"},
		{"0 0 H * *", "0 0 18 * *"},
		{"0 0 1 H *", "0 0 1 11 *"},
		{"0 0 * * H", "0 0 * * 1"},
		{"H/15 * * * *", "2,17,32,47 * * * *"},
		{"H(0-29) H(0-5) * * *", "17 0 * * *"},
	} {
		a, err := Parse(c.spec, Options{Job: "default/report"})
		require.NoError(t, err)
		b, err := Parse(c.same, Options{})
		require.NoError(t, err)
		from := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
		for at, n := from, 0; n < 100; n++ {
			require.Equal(t, b.Next(at), a.Next(at), c.spec)
			at = a.Next(at)
		}
	}
}

// Jobs whose names are alike are spread evenly nonetheless.
func TestHashSpreads(t *testing.T) {
	const jobs = 6000
	var minutes [60]int
	together := 0
	for i := range jobs {
		x, err := parseExpression("H H * * *", hash{fmt.Sprintf("default/report-%d", i)})
		require.NoError(t, err)
		minute, hour := x.elements[atMinute][0].lo, x.elements[atHour][0].lo
		minutes[minute]++
		if minute/5 == hour/2 {
			together++
		}
	}
	for minute, n := range minutes {
		require.InDelta(t, jobs/60, n, 50, "minute %d", minute) // five standard deviations
	}
	require.InDelta(t, jobs/12, together, 110, "fields are chosen apart from each other")
}

// H/n in hours keeps to real time, as */n does; H alone is one local time.
func TestHashAndClock(t *testing.T) {
	from := instant(t, "2027-10-30T22:00:00Z") // midnight; at 01:00Z the clock goes from 03:00 to 02:00
	count := func(spec string) int64 {
		s, err := Parse(spec, Options{Zone: "Europe/Berlin", Job: "default/report"})
		require.NoError(t, err)
		return s.Count(from.Add(-time.Second), from.Add(25*time.Hour-time.Second))
	}
	require.EqualValues(t, 1, count("0 H(2-2) * * *"))
	require.EqualValues(t, 25, count("0 H/1 * * *"))
	require.EqualValues(t, 24, count("0 H(0-23)/1 * * *"))
}

// Whether a text is refused must not depend on the job: the API asks without one.
func TestRefusalIsTheSameForAllJobs(t *testing.T) {
	for _, spec := range []string{
		"0 0 H * *", "0 0 29,H 2 H", "0 0 30 H *", "0 0 31 H(7-8) *", "0 0 29 H *", "0 0 */30 H H", "0 0 31W H *", "0 0 L-30 H *",
		"0 0 31 2,H(1-3)/2 *", "0 0 */30 H 2#3", "0 0 H 2 2#5", "0 0 31 H/6 *", "0 0 31 H/7 *",
	} {
		_, first := Parse(spec, Options{})
		for i := range 300 {
			_, err := Parse(spec, Options{Job: fmt.Sprint(i)})
			require.Equal(t, first, err, spec)
		}
	}
}
