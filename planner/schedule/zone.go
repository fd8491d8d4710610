package schedule

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leaderd/leaderd/internal/suggest"
	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

const (
	// far stands for "no earlier/later change"; offsets can be added to it freely.
	far int64 = 1 << 60
	// The Gregorian calendar, weekdays included, and every zone rule repeat after
	// 400 years. Zone data holds explicit changes only up to 2087 (Casablanca).
	cycle      int64 = 146097 * daySeconds
	cycleStart int64 = 4102444800         // 2100-01-01T00:00:00Z
	cycleEnd   int64 = cycleStart + cycle // 2500-01-01T00:00:00Z
)

// zone is the table of a time zone's periods of constant UTC offset. Immutable.
type zone struct {
	starts  []int64 // first instant of each period; starts[0] = -far
	offsets []int32 // seconds east of UTC, differing between neighbours
	cyclic  bool    // changes go on for ever: map instants from cycleEnd on back
}

// period is a stretch of time in which the offset is constant.
type period struct {
	start, end int64 // UTC, [start, end)
	off        int64 // seconds east of UTC
	prev, next int64 // offsets of the neighbours; off where there is none
}

// at returns the period that contains t.
func (z *zone) at(t int64) period {
	var shift int64
	if z.cyclic && t >= cycleEnd {
		shift = (t - cycleStart) / cycle * cycle
		t -= shift
	}
	lo, hi := 0, len(z.starts)
	for hi-lo > 1 {
		if mid := int(uint(lo+hi) >> 1); z.starts[mid] <= t {
			lo = mid
		} else {
			hi = mid
		}
	}
	off := int64(z.offsets[lo])
	p := period{start: z.starts[lo] + shift, end: far, off: off, prev: off, next: off}
	if lo > 0 {
		p.prev = int64(z.offsets[lo-1])
	}
	if hi < len(z.starts) {
		p.end = z.starts[hi] + shift
		p.next = int64(z.offsets[hi])
	}
	return p
}

// zones holds the tables of all zones in use, by name. Only names that loaded
// get in, so it is bounded by the zone data.
var zones sync.Map // string -> *zone

// zoneOf returns the table of an IANA zone; it is made on a name's first use.
func zoneOf(name string) (*zone, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil //nolint:errcheck // zones holds no other type
	}
	loc, err := loadLocation(name)
	if err != nil {
		return nil, err
	}
	z, _ := zones.LoadOrStore(name, newZone(loc))
	return z.(*zone), nil //nolint:errcheck // zones holds no other type
}

func newZone(loc *time.Location) *zone {
	z := &zone{}
	t := time.Unix(minSlot-1, 0).In(loc)
	start := -far
	for beyond := 0; beyond < 2; {
		_, off := t.Zone()
		// Zone data also has changes of name or DST flag only; those are no change here.
		if n := len(z.offsets); n == 0 || z.offsets[n-1] != int32(off) {
			z.starts = append(z.starts, start)
			z.offsets = append(z.offsets, int32(off))
			if start >= cycleEnd {
				beyond++
			}
		}
		_, end := t.ZoneBounds()
		if end.IsZero() {
			break
		}
		if !end.After(t) {
			// On the last day of a leap year ZoneBounds ends before it began. Creep on;
			// rule-based changes fall on whole quarter hours.
			end = t.Add(15 * time.Minute)
		}
		t, start = end, end.Unix()
	}
	z.starts, z.offsets = slices.Clip(z.starts), slices.Clip(z.offsets)
	z.cyclic = z.starts[len(z.starts)-1] >= cycleEnd
	return z
}

// loadLocation loads an IANA zone by its exact name.
func loadLocation(name string) (*time.Location, error) {
	const field = "zone"
	loc, err := zoneinfo.Load(name)
	switch {
	case err == nil:
		return loc, nil
	case !errors.Is(err, zoneinfo.ErrUnknown):
		return nil, err
	case strings.EqualFold(name, "local"), strings.EqualFold(name, "localtime"):
		return nil, fault(field, name, "the machine's own zone differs from node to node", "name an IANA zone such as Europe/Berlin")
	}
	e := fault(field, name, "not an IANA time zone", nearZone(name))
	e.Err = err
	return nil, e
}

// nearZone guesses which zone was meant.
func nearZone(name string) string {
	const example = "name a place such as America/Los_Angeles, spelled as in the IANA database"
	if name == "" {
		return example
	}
	names := zoneinfo.Names()
	spelled := strings.ReplaceAll(name, " ", "_")
	for _, n := range names {
		if strings.EqualFold(n, spelled) {
			return "write " + n
		}
	}
	for _, n := range names {
		if _, place, ok := strings.Cut(n, "/"); ok && strings.EqualFold(place, spelled) && !strings.HasPrefix(n, "Etc/") {
			return "write " + n
		}
	}
	if len(name) > 4 && len(name) <= 40 {
		if _, near, ok := strings.Cut(suggest.Nearest(spelled, names), "did you mean "); ok {
			return "did you mean " + strings.TrimSuffix(near, "?")
		}
	}
	return example
}

// Location is an IANA zone by its exact name, for showing slots as local times. An
// unknown name yields a *ParseError, as in Parse.
func Location(zone string) (*time.Location, error) { return loadLocation(zone) }

// ZoneData is the release of the IANA time zone database that all schedules are
// computed with, such as 2025c. It is part of the program; what the machine has
// installed is not used.
func ZoneData() string { return zoneinfo.Version() }
