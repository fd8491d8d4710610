package placement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// Node is an executor as placement sees it.
type Node struct {
	// ID names the node; not empty, unique within a table.
	ID string
	// Capacity is its weight, such as the number of runs it can hold. 0 takes no
	// work; negative is refused.
	Capacity int
	// Labels are what selectors match.
	Labels map[string]string
	// Resources are what they may need, by name.
	Resources map[string]int
}

// member is a node that takes work.
type member struct {
	Node
	seed     uint64
	capacity float64
}

// Table ranks a fixed set of nodes for keys. It is immutable and safe for
// concurrent use; it remembers the matching nodes of each distinct selector it
// was asked about, for as long as it lives.
type Table struct {
	members []member // those that take work, by capacity, then by ID
	index   map[string]int32
	all     []int32
	whole   float64  // capacity of all
	matches sync.Map // Selector.id -> []int32, indexes into members
}

// New returns the table of a set of nodes, which may be empty and in any order.
// The nodes are copied. It reports every node with an empty or repeated ID or a
// negative capacity.
func New(nodes []Node) (*Table, error) {
	t := &Table{index: make(map[string]int32, len(nodes))}
	seen := make(map[string]bool, len(nodes))
	var errs []error
	for i, n := range nodes {
		switch {
		case n.ID == "":
			errs = append(errs, fmt.Errorf("node %d: empty id", i))
		case seen[n.ID]:
			errs = append(errs, fmt.Errorf("node %s: repeated id", n.ID))
		case n.Capacity < 0:
			errs = append(errs, fmt.Errorf("node %s: negative capacity %d", n.ID, n.Capacity))
		}
		seen[n.ID] = true
		if n.Capacity > 0 {
			n.Labels, n.Resources = maps.Clone(n.Labels), maps.Clone(n.Resources)
			t.members = append(t.members, member{Node: n, seed: hash(n.ID), capacity: float64(n.Capacity)})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("placement table: %w", err)
	}
	slices.SortFunc(t.members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.Capacity, b.Capacity), cmp.Compare(a.ID, b.ID))
	})
	for i := range t.members {
		t.index[t.members[i].ID] = int32(i)
		t.all = append(t.all, int32(i))
		t.whole += t.members[i].capacity
	}
	return t, nil
}

// Len returns the number of nodes that take work.
func (t *Table) Len() int { return len(t.members) }

// Owner returns the first node in the ranking for the key; ok is false if no
// node matches. It does not allocate, but for a selector's first use.
func (t *Table) Owner(key string, sel Selector) (node string, ok bool) {
	best := t.best(hash(key), t.match(sel), nil)
	if best < 0 {
		return "", false
	}
	return t.members[best].ID, true
}

// Rank appends the first k nodes in the ranking for the key to dst: the owner,
// then the candidates for hedges. It appends fewer if fewer match. It does not
// allocate if dst has room and k is at most 8.
func (t *Table) Rank(dst []string, key string, sel Selector, k int) []string {
	matches := t.match(sel)
	k = min(k, len(matches))
	if k <= 0 {
		return dst
	}
	type candidate struct {
		cost float64
		i    int32
	}
	var few [8]candidate
	top := few[:0]
	if k > len(few) {
		top = make([]candidate, 0, k)
	}
	h := hash(key)
	for _, i := range matches {
		m := &t.members[i]
		c := candidate{cost(draw(h, m.seed), m.capacity), i}
		if len(top) == k {
			if c.cost >= top[k-1].cost {
				continue
			}
			top = top[:k-1]
		}
		// Equal costs keep the order of members.
		at, _ := slices.BinarySearchFunc(top, c, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.i, b.i))
		})
		top = slices.Insert(top, at, c)
	}
	for _, c := range top {
		dst = append(dst, t.members[c.i].ID)
	}
	return dst
}

// best returns the member of the lowest cost for a key among the matches that
// the filter, if any, lets pass; -1 if there is none.
func (t *Table) best(key uint64, matches []int32, filter *room) int32 {
	best, lowest := int32(-1), math.Inf(1)
	skip, skipFor := uint64(0), -1
	for _, i := range matches {
		m := &t.members[i]
		if filter != nil && !filter.has(i, m.capacity) {
			continue
		}
		d := draw(key, m.seed)
		if m.Capacity == skipFor && d <= skip {
			continue
		}
		if c := cost(d, m.capacity); c < lowest {
			best, lowest = i, c
			skip, skipFor = d, m.Capacity
		} else if m.Capacity != skipFor {
			skip, skipFor = worthless(lowest, m.capacity), m.Capacity
		}
	}
	return best
}

// match returns the members that match a selector.
func (t *Table) match(sel Selector) []int32 {
	if sel.rule == nil {
		return t.all
	}
	if m, ok := t.matches.Load(sel.rule.id); ok {
		return m.([]int32) //nolint:errcheck // matches holds no other type
	}
	matches := []int32{}
	for i := range t.members {
		if m := &t.members[i]; sel.Matches(m.Labels, m.Resources) {
			matches = append(matches, int32(i))
		}
	}
	m, _ := t.matches.LoadOrStore(sel.rule.id, matches)
	return m.([]int32) //nolint:errcheck // matches holds no other type
}

// Any reports whether a node matches.
func (t *Table) Any(sel Selector) bool { return len(t.match(sel)) > 0 }

// Fits reports whether a node is in the table and matches.
func (t *Table) Fits(node string, sel Selector) bool {
	i, ok := t.index[node]
	return ok && sel.Matches(t.members[i].Labels, t.members[i].Resources)
}
