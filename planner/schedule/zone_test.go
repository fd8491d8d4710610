package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

// The tables must agree with package time everywhere, also where they map back
// by 400 years.
func TestZoneTable(t *testing.T) {
	for _, name := range walkZones {
		loc, err := zoneinfo.Load(name)
		require.NoError(t, err)
		z, err := zoneOf(name)
		require.NoError(t, err)
		check := func(t require.TestingT, at int64) period {
			p := z.at(at)
			_, off := time.Unix(at, 0).In(loc).Zone()
			if at < p.start || at >= p.end || int64(off) != p.off { // millions of times
				require.Fail(t, "period", "%s at %s: %+v, want offset %d", name, time.Unix(at, 0).UTC(), p, off)
			}
			return p
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := check(t, rapid.Int64Range(minSlot, maxSlot).Draw(t, "at"))
				if p.start > -far {
					require.Equal(t, p.prev, check(t, p.start-1).off)
				}
				if p.end < far {
					require.Equal(t, p.next, check(t, p.end).off)
				}
			})
			// Every hour of some years: before, at and after the border of the table.
			for _, year := range []int{2024, 2028, 2086, 2099, 2100, 2499, 2500, 2501, 2900, 9996, 9999} {
				at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
				for end := at.AddDate(1, 0, 2); at.Before(end); at = at.Add(time.Hour) {
					check(t, at.Unix())
				}
			}
		})
	}
}

func TestCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := rapid.Int64Range(floorDiv(minSlot, daySeconds)-366, floorDiv(maxSlot, daySeconds)+366).Draw(t, "day")
		want := time.Unix(day*daySeconds, 0).UTC()
		year, month, dom := civil(day)
		require.Equal(t, [3]int{want.Year(), int(want.Month()), want.Day()}, [3]int{year, month, dom})
		require.Equal(t, int(want.Weekday()), weekday(day))
		require.Equal(t, day-int64(dom-1), firstOf(year, month))
		require.Equal(t, want.AddDate(0, 1, 1-dom).AddDate(0, 0, -1).Day(), monthLength(year, month))
	})
}

// Every zone is taken by its name, and by no other spelling of it; the hint has the
// right one.
func TestEveryZoneByItsName(t *testing.T) {
	for _, name := range zoneinfo.Names() {
		_, err := Parse("0 0 * * *", Options{Zone: name})
		require.NoError(t, err)
		for _, other := range []string{strings.ToLower(name), strings.ToUpper(name)} {
			if other != name {
				_, err = Parse("0 0 * * *", Options{Zone: other})
				require.ErrorContains(t, err, "; write "+name)
			}
		}
	}
	require.Equal(t, zoneinfo.Version(), ZoneData())
	loc, err := Location("Asia/Tokyo")
	require.NoError(t, err)
	require.Equal(t, "Asia/Tokyo", loc.String())
}

func TestZoneNames(t *testing.T) {
	for _, name := range []string{"UTC", "Etc/GMT-14", "EST5EDT", "GB-Eire", "America/Port-au-Prince", "America/Argentina/ComodRivadavia", "W-SU", "Antarctica/DumontDUrville"} {
		_, err := Parse("0 0 * * *", Options{Zone: name})
		require.NoError(t, err)
	}
	for name, hint := range map[string]string{
		"Local": "differs from node to node", "local": "differs from node to node", "localtime": "differs from node to node",
		"america/new_york": "write America/New_York", "AMERICA/NEW_YORK": "write America/New_York", "utc": "write UTC",
		"America/New York": "write America/New_York", "PST": "name a place", "+02:00": "name a place", "right/UTC": "not an IANA",
		"posix/UTC": "not an IANA", "posixrules": "not an IANA", "Factory": "not an IANA", "../etc/passwd": "not an IANA", "Mars/Phobos": "not an IANA",
		"Berlin": "write Europe/Berlin", "new york": "write America/New_York", "Europe/Berln": "did you mean Europe/Berlin", "": "name a place",
		"gb-eire": "write GB-Eire", "Etc/gmt-14": "write Etc/GMT-14", "america/port-au-prince": "write America/Port-au-Prince",
		"America/": "not an IANA", "/UTC": "not an IANA",
	} {
		_, err := Parse("CRON_TZ="+name+" 0 0 * * *", Options{})
		if !strings.Contains(name, " ") {
			require.ErrorContains(t, err, hint, name)
		}
		if name == "" {
			continue // as an option, the default
		}
		_, err = Parse("0 0 * * *", Options{Zone: name})
		require.ErrorContains(t, err, hint, name)
		var refused *ParseError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "zone", refused.Field)
	}
}
