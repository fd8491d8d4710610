package placement

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// checkBooks compares the balancer's loads with its keys.
func checkBooks(t require.TestingT, b *Balancer) {
	loads := make([]int64, b.table.Len())
	var total int64
	for _, p := range b.keys {
		loads[p.node] += p.weight
		total += p.weight
	}
	require.Equal(t, loads, b.loads)
	require.Equal(t, total, b.total)
}

// checkBounds holds every node to its bound: (1+epsilon) fair shares, rounded up,
// and beyond it at most the part of one key.
func checkBounds(t require.TestingT, b *Balancer, heaviest int) {
	capacity := 0.0
	for _, m := range b.table.members {
		capacity += m.capacity
	}
	for _, m := range b.table.members {
		bound := math.Ceil((1+b.epsilon)*float64(b.total)*m.capacity/capacity) + float64(heaviest-1)
		require.LessOrEqual(t, float64(b.load(m.ID)), bound, m.ID)
	}
}

// TestBalancerModel runs random calls and changes of the cluster against a plain
// map, with selectors and weights.
func TestBalancerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(0, 8).Draw(t, "cluster")
		b, twin := newBalancer(t, nodes), newBalancer(t, nodes)
		model := map[string]Selector{}
		t.Repeat(map[string]func(*rapid.T){
			"assign": func(t *rapid.T) {
				key := fmt.Sprintf("key-%d", rapid.IntRange(0, 200).Draw(t, "key"))
				sel := rapid.SampledFrom([]Selector{{}, gpu}).Draw(t, "selector")
				weight := rapid.IntRange(0, 5).Draw(t, "weight")
				before, had := b.Node(key)
				load, matches := b.room(sel, b.table.match(sel), int64(max(1, weight))), b.table.match(sel)
				loads := slices.Clone(load.loads)
				node, ok := b.Assign(key, sel, weight)
				again, okAgain := twin.Assign(key, sel, weight)
				require.Equal(t, node, again)
				require.Equal(t, ok, okAgain)
				if had {
					require.Equal(t, before, node)
					return
				}
				require.Equal(t, len(matches) > 0, ok)
				if ok {
					model[key] = sel
					i := b.table.index[node]
					require.Contains(t, matches, i)
					require.Less(t, float64(loads[i]), load.share*b.table.members[i].capacity)
				}
			},
			"release": func(t *rapid.T) {
				key := fmt.Sprintf("key-%d", rapid.IntRange(0, 200).Draw(t, "key"))
				_, had := model[key]
				require.Equal(t, had, b.Release(key))
				twin.Release(key)
				delete(model, key)
			},
			"adopt": func(t *rapid.T) {
				key := fmt.Sprintf("key-%d", rapid.IntRange(0, 200).Draw(t, "key"))
				node := fmt.Sprintf("node-%d", rapid.IntRange(0, 7).Draw(t, "node"))
				ok := b.adopt(key, Selector{}, 1, node)
				require.Equal(t, ok, twin.adopt(key, Selector{}, 1, node))
				if ok {
					model[key] = Selector{}
					got, _ := b.Node(key)
					require.Equal(t, node, got)
				}
			},
			"rebuild": func(t *rapid.T) {
				before := map[string]string{}
				for key := range model {
					before[key], _ = b.Node(key)
				}
				nodes = drawNodes(0, 8).Draw(t, "cluster")
				moves := b.rebuild(newTable(t, nodes))
				require.Equal(t, moves, twin.rebuild(newTable(t, nodes)))
				for _, m := range moves {
					require.NotEqual(t, m.from, m.to)
					require.Equal(t, before[m.key], m.from)
					before[m.key] = m.to
					if m.to == "" {
						require.Empty(t, b.table.match(model[m.key]))
						delete(model, m.key)
						delete(before, m.key)
					}
				}
				for key, want := range before {
					got, ok := b.Node(key)
					require.True(t, ok)
					require.Equal(t, want, got)
					require.True(t, model[key].Matches(b.table.members[b.table.index[got]].Labels, nil))
				}
			},
			"": func(t *rapid.T) {
				checkBooks(t, b)
				require.Len(t, b.keys, len(model))
			},
		})
	})
}

func fill(b *Balancer, keys, weight int) {
	for i := range keys {
		b.Assign(fmt.Sprintf("ns/job-%d", i), Selector{}, 1+i%weight)
	}
}

// Properties of a change of one node: bounds hold before and after, a leaving
// node moves only its own keys, a joining one only keys that come to it.
func TestFewMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(2, 12).Draw(t, "cluster")
		b := newBalancer(t, nodes)
		weight := rapid.SampledFrom([]int{1, 4}).Draw(t, "heaviest")
		fill(b, rapid.IntRange(0, 600).Draw(t, "keys"), weight)
		checkBounds(t, b, weight)

		gone := rapid.IntRange(0, len(nodes)-1).Draw(t, "gone")
		id := nodes[gone].ID
		load := b.load(id)
		left := slices.Delete(slices.Clone(nodes), gone, gone+1)
		var moved int64
		for _, m := range b.rebuild(newTable(t, left)) {
			require.Equal(t, id, m.from)
			moved += b.keys[m.key].weight
		}
		require.Equal(t, load, moved)
		checkBounds(t, b, weight)
		checkBooks(t, b)

		for _, m := range b.rebuild(newTable(t, nodes)) {
			if m.to != id {
				// Its old node's bound shrank.
				require.NotEqual(t, m.from, id)
			}
		}
		checkBounds(t, b, weight)
		checkBooks(t, b)
		require.Empty(t, b.rebuild(newTable(t, nodes)), "the same nodes move nothing")
	})
}

func TestJoinMovesItsShare(t *testing.T) {
	var nodes []Node
	for i := range 11 {
		nodes = append(nodes, Node{ID: fmt.Sprintf("node-%d", i), Capacity: 10})
	}
	b := newBalancer(t, nodes[:10])
	const keys = 20_000
	fill(b, keys, 1)
	moves := b.rebuild(newTable(t, nodes))
	elsewhere := 0
	for _, m := range moves {
		if m.to != "node-10" {
			elsewhere++
		}
	}
	t.Logf("moved %d, of which not to the new node %d; share %d", len(moves), elsewhere, keys/11)
	require.InEpsilon(t, keys/11, len(moves), 0.25)
	require.LessOrEqual(t, elsewhere, keys/100)
}

// After many releases the rest can be badly spread; Rebuild repairs it.
func TestRebuildSheds(t *testing.T) {
	nodes := []Node{{ID: "a", Capacity: 1}, {ID: "b", Capacity: 1}, {ID: "c", Capacity: 1}}
	b := newBalancer(t, nodes)
	for i := range 90 {
		require.True(t, b.adopt(fmt.Sprint(i), Selector{}, 1, "a"))
	}
	moves := b.rebuild(newTable(t, nodes))
	require.Len(t, moves, 90-38, "down to 1.25 times 30, rounded up")
	checkBounds(t, b, 1)
	// The keys that stay are those that rank the node best.
	moved := map[string]bool{}
	for _, m := range moves {
		moved[m.key] = true
	}
	worst, best := 0.0, math.Inf(1)
	for i := range 90 {
		c := cost(draw(hash(fmt.Sprint(i)), hash("a")), 1)
		if moved[fmt.Sprint(i)] {
			best = min(best, c)
		} else {
			worst = max(worst, c)
		}
	}
	require.Less(t, worst, best)
}

func BenchmarkAssign(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		var nodes []Node
		for i := range size {
			nodes = append(nodes, Node{ID: fmt.Sprintf("node-%d", i), Capacity: 10 + i%3})
		}
		keys := make([]string, 100_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("namespace/some-job-%d", i)
		}
		table := newTable(b, nodes)
		b.Run(fmt.Sprintf("100k/%d", size), func(b *testing.B) {
			for b.Loop() {
				balancer, err := NewBalancer(table, 0)
				require.NoError(b, err)
				for _, key := range keys {
					balancer.Assign(key, Selector{}, 1)
				}
			}
		})
		b.Run(fmt.Sprintf("rebuild/%d", size), func(b *testing.B) {
			balancer, err := NewBalancer(table, 0)
			require.NoError(b, err)
			for _, key := range keys {
				balancer.Assign(key, Selector{}, 1)
			}
			fewer := newTable(b, nodes[1:])
			for b.Loop() {
				balancer.Rebuild(fewer)
				balancer.Rebuild(table)
			}
		})
		b.Run(fmt.Sprintf("owner/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Owner(keys[i%len(keys)], Selector{})
			}
		})
	}
}
