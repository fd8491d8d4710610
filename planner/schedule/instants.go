package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxInstants bounds the memory of one @at.
const maxInstants = 1000

// instants is @at: a sorted list without duplicates.
type instants []int64

func (r instants) next(t int64) int64 {
	if i := r.upTo(t); i < len(r) {
		return r[i]
	}
	return none
}

func (r instants) prev(t int64) int64 {
	if i := r.upTo(t); i > 0 {
		return r[i-1]
	}
	return none
}

func (r instants) count(after, until int64) int64 {
	return int64(r.upTo(until) - r.upTo(after))
}

// upTo returns the number of instants <= t.
func (r instants) upTo(t int64) int {
	i, found := slices.BinarySearch(r, t)
	if found {
		i++
	}
	return i
}

func parseInstants(text string) (instants, error) {
	const field = "instant"
	if text == "" {
		return nil, fault(field, text, "@at needs one or more instants", `write "@at 2026-12-01T09:00:00Z"`)
	}
	if n := strings.Count(text, ",") + 1; n > maxInstants {
		return nil, fault(field, "", fmt.Sprintf("%d instants, at most %d are allowed", n, maxInstants), "")
	}
	var r instants
	for part := range strings.SplitSeq(text, ",") {
		part = strings.Trim(part, " \t")
		if part == "" {
			return nil, fault(field, text, "empty element in the list", "")
		}
		t, err := time.Parse(time.RFC3339, part)
		if err == nil && t.Nanosecond() != 0 {
			return nil, fault(field, part, "an instant must be a whole second", "")
		}
		// Package time also reads what is no RFC 3339, such as an hour of one digit.
		if err != nil || t.Format(time.RFC3339) != strings.Replace(part, "+00:00", "Z", 1) {
			e := fault(field, part, "not an RFC 3339 instant with an offset, such as 2026-12-01T09:00:00Z", "")
			e.Err = err
			return nil, e
		}
		if u := t.Unix(); u < minSlot || u > maxSlot {
			return nil, fault(field, part, "an instant must lie in the years 1 to 9999, in UTC", "")
		}
		r = append(r, t.Unix())
	}
	slices.Sort(r)
	return slices.Clip(slices.Compact(r)), nil
}
