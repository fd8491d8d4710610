package placement

import (
	"cmp"
	"slices"
)

// held is a key during Rebuild.
type held struct {
	placed
	key  string
	hash uint64
	from string
}

// Rebuild goes over to another set of nodes, always in the same way. A key that no
// node matches is forgotten. A key moves only if
//
//   - its node has left or no longer matches its selector,
//   - a node that joined ranks higher for it than its own and is below its bound, or
//   - its node is above its bound by more than its heaviest key explains, another
//     matching node is below, and keys that rank their node lower did not make
//     room enough.
//
// It sorts all keys, so it costs some hundred nanoseconds a key.
func (b *Balancer) Rebuild(t *Table) {
	old := b.table
	keys := make([]held, 0, len(b.keys))
	for key, p := range b.keys {
		keys = append(keys, held{placed: p, key: key, hash: hash(key), from: old.members[p.node].ID})
	}
	slices.SortFunc(keys, func(x, y held) int {
		return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.key, y.key))
	})
	b.table, b.loads, b.total = t, make([]int64, t.Len()), 0
	clear(b.keys)

	var homeless, kept []held
	for _, k := range keys {
		i, ok := t.index[k.from]
		if ok && k.sel.Matches(t.members[i].Labels, t.members[i].Resources) {
			k.node = i
			b.put(k.key, k.placed)
			kept = append(kept, k)
		} else {
			homeless = append(homeless, k)
		}
	}
	for _, k := range homeless {
		b.place(k.key, k.hash, k.placed)
	}
	b.fill(old, kept)
	b.shed(kept)
}

// fill moves keys to nodes that joined and rank higher for them.
func (b *Balancer) fill(old *Table, kept []held) {
	t := b.table
	var joined []int32
	for i := range t.members {
		if _, ok := old.index[t.members[i].ID]; !ok {
			joined = append(joined, int32(i))
		}
	}
	for n := range kept {
		k := &kept[n]
		best, lowest := int32(-1), b.preference(k)
		for _, i := range joined {
			m := &t.members[i]
			if c := cost(draw(k.hash, m.seed), m.capacity); c < lowest && k.sel.Matches(m.Labels, m.Resources) {
				best, lowest = i, c
			}
		}
		if best < 0 {
			continue
		}
		// The move leaves the load of all matches together as it is.
		if r := b.room(k.sel, t.match(k.sel), 0); r.has(best, t.members[best].capacity) {
			b.move(k, best)
		}
	}
}

// shed moves keys off nodes above their bound, those first that prefer it least.
func (b *Balancer) shed(kept []held) {
	t := b.table
	heaviest := make([]int64, len(t.members))
	for _, p := range b.keys {
		heaviest[p.node] = max(heaviest[p.node], p.weight)
	}
	// Assign lets one key pass the bound, so that much is no reason to move.
	isOver := func(i int32, r *room) bool {
		return float64(b.loads[i]-heaviest[i]) >= r.share*t.members[i].capacity
	}
	rooms := map[string]room{} // by selector; loads do not change in the first pass
	var over []*held
	for n := range kept {
		k := &kept[n]
		r, ok := rooms[k.sel.id()]
		if !ok {
			r = b.room(k.sel, t.match(k.sel), 0)
			rooms[k.sel.id()] = r
		}
		if isOver(k.node, &r) {
			over = append(over, k)
		}
	}
	slices.SortStableFunc(over, func(x, y *held) int { return cmp.Compare(b.preference(y), b.preference(x)) })
	for _, k := range over {
		matches := t.match(k.sel)
		r := b.room(k.sel, matches, 0)
		if !isOver(k.node, &r) {
			continue
		}
		if best := t.best(k.hash, matches, &r); best >= 0 && best != k.node {
			b.move(k, best)
		}
	}
}

// preference is the cost of a key's node for it: the lower, the better it ranks.
func (b *Balancer) preference(k *held) float64 {
	m := &b.table.members[k.node]
	return cost(draw(k.hash, m.seed), m.capacity)
}

// move changes the node of a key that is on another.
func (b *Balancer) move(k *held, to int32) {
	b.take(k.key, k.placed)
	k.node = to
	b.put(k.key, k.placed)
}
