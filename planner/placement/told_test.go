package placement

import (
	"maps"
	"slices"
)

// move is a change that Rebuild made.
type move struct {
	key string
	// from is the node that held the key. It may have left.
	from string
	// to is the node that holds it now; empty if no node matches.
	to string
}

// rebuild is Rebuild, and answers what it moved, in order of the keys.
func (b *Balancer) rebuild(t *Table) []move {
	before := make(map[string]string, len(b.keys))
	for key := range b.keys {
		before[key], _ = b.Node(key)
	}
	b.Rebuild(t)
	var moves []move
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if to, _ := b.Node(key); to != before[key] {
			moves = append(moves, move{key, before[key], to})
		}
	}
	return moves
}

// adopt puts a key on a node, whatever its bound and labels say; false if there is
// no such node.
func (b *Balancer) adopt(key string, sel Selector, weight int, node string) bool {
	i, ok := b.table.index[node]
	if ok {
		b.Release(key)
		b.put(key, placed{sel: sel, weight: int64(max(weight, 1)), node: i})
	}
	return ok
}

// load is the weight of all keys on a node.
func (b *Balancer) load(node string) int64 { return b.loads[b.table.index[node]] }
