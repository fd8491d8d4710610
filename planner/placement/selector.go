package placement

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Selector says which nodes may run a job. It is an immutable value; the zero
// Selector matches every node.
type Selector struct {
	rule *rule // nil matches all
}

// rule is what all copies of a selector share.
type rule struct {
	require []requirement // sorted by label
	id      string        // equal for selectors of equal meaning
}

// requirement is met by a node whose label has one of the values.
type requirement struct {
	label  string
	values []string // sorted, without duplicates
}

// Require returns the selector of the nodes that have, for every label of the
// map, one of its values. A label with no values matches no node. The map is
// copied.
func Require(labels map[string][]string) Selector {
	if len(labels) == 0 {
		return Selector{}
	}
	s := &rule{}
	var id strings.Builder
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		r := requirement{label: label, values: slices.Compact(slices.Sorted(slices.Values(labels[label])))}
		s.require = append(s.require, r)
		id.WriteString(strconv.Quote(label))
		for _, v := range r.values {
			id.WriteByte('=')
			id.WriteString(strconv.Quote(v))
		}
	}
	s.id = id.String()
	return Selector{rule: s}
}

// Matches reports whether a node with these labels may run the job.
func (s Selector) Matches(labels map[string]string) bool {
	if s.rule == nil {
		return true
	}
	for _, r := range s.rule.require {
		v, ok := labels[r.label]
		if !ok {
			return false
		}
		if _, ok := slices.BinarySearch(r.values, v); !ok {
			return false
		}
	}
	return true
}

// id is equal for selectors of equal meaning; empty for the one that matches all.
func (s Selector) id() string {
	if s.rule == nil {
		return ""
	}
	return s.rule.id
}
