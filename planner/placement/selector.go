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
	need    map[string]int
	id      string // equal for selectors of equal meaning
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

// Needing returns the selector of those nodes of s that have as much of each resource.
// The map is copied.
func (s Selector) Needing(resources map[string]int) Selector {
	if len(resources) == 0 {
		return s
	}
	with := &rule{need: maps.Clone(resources)}
	if s.rule != nil {
		with.require = s.rule.require
	}
	var id strings.Builder
	id.WriteString(s.id())
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		id.WriteString("+" + strconv.Quote(name) + strconv.Itoa(resources[name]))
	}
	with.id = id.String()
	return Selector{rule: with}
}

// All reports whether s matches every node.
func (s Selector) All() bool { return s.rule == nil }

// Matches reports whether a node with these labels and resources may run the job.
func (s Selector) Matches(labels map[string]string, resources map[string]int) bool {
	if s.rule == nil {
		return true
	}
	for name, n := range s.rule.need {
		if resources[name] < n {
			return false
		}
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
