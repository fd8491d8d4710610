package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

const (
	daySeconds = 24 * 3600
	// around is how far from a local time another pass of it may be: the longest
	// change of offset there is, and more.
	around = 26 * 3600
	// quarter is how close offsets are looked at; none lasts shorter.
	quarter = 15 * 60
)

// zone answers what a clock shows. It may be used by several goroutines.
type zone struct {
	loc *time.Location

	mu sync.Mutex
	// days are the offsets around each day of UTC that was asked for.
	days map[int64][]int64
}

// zones are those that were loaded, by name.
var zones sync.Map

func loadZone(name string) (*zone, error) {
	if name == "" {
		name = "UTC"
	}
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil //nolint:errcheck // zones holds no other type
	}
	loc, err := zoneinfo.Load(name)
	if err != nil {
		return nil, fmt.Errorf("zone: %w", err)
	}
	z, _ := zones.LoadOrStore(name, &zone{loc: loc, days: map[int64][]int64{}})
	return z.(*zone), nil //nolint:errcheck // zones holds no other type
}

// offset is how far the zone's clock is ahead of UTC at t.
func (z *zone) offset(t int64) int64 {
	_, seconds := time.Unix(t, 0).In(z.loc).Zone()
	return int64(seconds)
}

// offsets are all that the clock has around the day of t.
func (z *zone) offsets(t int64) []int64 {
	start := t - ((t%daySeconds)+daySeconds)%daySeconds
	z.mu.Lock()
	defer z.mu.Unlock()
	found, ok := z.days[start]
	if ok {
		return found
	}
	for at := start - around; at <= start+daySeconds+around; at += quarter {
		if o := z.offset(at); !slices.Contains(found, o) {
			found = append(found, o)
		}
	}
	if len(z.days) > 10_000 {
		clear(z.days) // a bound, for who looks at decades
	}
	z.days[start] = found
	return found
}

// passes tells whether the clock shows the time that it shows at t at an earlier
// and at a later instant as well.
func (z *zone) passes(t int64) (before, after bool) {
	local := t + z.offset(t)
	for _, o := range z.offsets(t) {
		other := local - o
		if other == t || z.offset(other) != o {
			continue
		}
		before = before || other < t
		after = after || other > t
	}
	return before, after
}
