package state

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Resources are amounts of what an executor has, or a run needs while it runs, by name.
type Resources map[string]int

// Cover tells whether there is all that is needed.
func (r Resources) Cover(need Resources) bool {
	for name, n := range need {
		if r[name] < n {
			return false
		}
	}
	return true
}

// Lack is the first of what is needed, by name, of which there is too little; empty: there
// is enough.
func (r Resources) Lack(need Resources) string {
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if r[name] < need[name] {
			return name
		}
	}
	return ""
}

// String is name=amount, by name, separated by commas. It is equal for equal resources.
func (r Resources) String() string {
	parts := make([]string, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, name+"="+strconv.Itoa(r[name]))
	}
	return strings.Join(parts, ",")
}

// Check adds what is wrong with them to v.
func (r Resources) Check(v *Violations, field string) {
	if n := len(r); n > MaxResources {
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxResources)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if why := CheckName(name); why != "" {
			v.Add(field, "name %s", why)
		} else if n := r[name]; n < 1 || n > MaxResource {
			v.Add(fmt.Sprintf("%s[%s]", field, name), "%d is outside 1–%d", n, MaxResource)
		}
	}
}

func (s *JobSpec) checkPlacing(v *Violations) {
	checkLabels(v, "spec.nodeSelector", s.Selector)
	checkLabels(v, "spec.nodePreference", s.Preference)
	for _, label := range slices.Sorted(maps.Keys(s.Preference)) {
		if must, ok := s.Selector[label]; ok && must != s.Preference[label] {
			v.Add("spec.nodePreference", "prefers %s=%s, and nodeSelector requires %s=%s: no executor has both",
				label, clip(s.Preference[label]), label, clip(must))
		}
	}
	if s.Shards != nil && s.Shards.Broadcast && len(s.Preference) > 0 {
		v.Add("spec.nodePreference", "is not allowed with shards.broadcast, which has a shard on each executor that nodeSelector matches")
	}
	s.Resources.Check(v, "spec.resources")
}
