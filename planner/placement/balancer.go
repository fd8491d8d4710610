package placement

import (
	"fmt"
	"math"
)

// DefaultEpsilon is the slack of a node's bound over its fair share.
const DefaultEpsilon = 0.25

// Balancer keeps track of which key is on which node and keeps loads bounded. It
// is not safe for concurrent use: it belongs to the one goroutine that plans.
type Balancer struct {
	table   *Table
	epsilon float64
	loads   []int64 // by member of the table
	total   int64
	keys    map[string]placed
}

// placed is one key on a node.
type placed struct {
	sel    Selector
	weight int64
	node   int32
}

// NewBalancer returns an empty balancer over the nodes of a table. An epsilon of
// 0 means DefaultEpsilon; negative ones and those that are no finite number are refused.
func NewBalancer(t *Table, epsilon float64) (*Balancer, error) {
	if !(epsilon >= 0) || math.IsInf(epsilon, 1) {
		return nil, fmt.Errorf("placement balancer: epsilon %v, must be finite and not negative", epsilon)
	}
	if epsilon == 0 {
		epsilon = DefaultEpsilon
	}
	return &Balancer{table: t, epsilon: epsilon, loads: make([]int64, t.Len()), keys: map[string]placed{}}, nil
}

// room knows which nodes of a set of matches may take more load.
type room struct {
	loads []int64
	// share is (1+epsilon) times the load, with the new key, per unit of capacity.
	share float64
}

func (r *room) has(i int32, capacity float64) bool { return float64(r.loads[i]) < r.share*capacity }

// room returns the room on the matches of a selector if they are to carry extra load.
func (b *Balancer) room(sel Selector, matches []int32, extra int64) room {
	if sel.rule == nil {
		return room{loads: b.loads, share: (1 + b.epsilon) * float64(b.total+extra) / b.table.whole}
	}
	load, capacity := extra, 0.0
	for _, i := range matches {
		load += b.loads[i]
		capacity += b.table.members[i].capacity
	}
	return room{loads: b.loads, share: (1 + b.epsilon) * float64(load) / capacity}
}

// Assign puts a key on the best-ranked matching node below its bound and returns
// the node; ok is false if no node matches. A key that is already on a node stays
// there, with the selector and weight it came with. A weight below 1 counts as 1.
func (b *Balancer) Assign(key string, sel Selector, weight int) (node string, ok bool) {
	if p, ok := b.keys[key]; ok {
		return b.table.members[p.node].ID, true
	}
	p := placed{sel: sel, weight: int64(max(weight, 1))}
	i := b.place(key, hash(key), p)
	if i < 0 {
		return "", false
	}
	return b.table.members[i].ID, true
}

// place chooses a node for a key that is on none and returns it, or -1.
func (b *Balancer) place(key string, h uint64, p placed) int32 {
	matches := b.table.match(p.sel)
	r := b.room(p.sel, matches, p.weight)
	p.node = b.table.best(h, matches, &r)
	if p.node >= 0 {
		b.put(key, p)
	}
	return p.node
}

// Release forgets a key and reports whether it was on a node.
func (b *Balancer) Release(key string) bool {
	p, ok := b.keys[key]
	if ok {
		b.take(key, p)
	}
	return ok
}

// Node returns the node that a key is on.
func (b *Balancer) Node(key string) (node string, ok bool) {
	p, ok := b.keys[key]
	if !ok {
		return "", false
	}
	return b.table.members[p.node].ID, true
}

func (b *Balancer) put(key string, p placed) {
	b.keys[key] = p
	b.loads[p.node] += p.weight
	b.total += p.weight
}

func (b *Balancer) take(key string, p placed) {
	delete(b.keys, key)
	b.loads[p.node] -= p.weight
	b.total -= p.weight
}
