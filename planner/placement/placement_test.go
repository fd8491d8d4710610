package placement

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var gpu = Require(map[string][]string{"gpu": {"yes"}})

func drawNodes(lo, hi int) *rapid.Generator[[]Node] {
	return rapid.Custom(func(t *rapid.T) []Node {
		var nodes []Node
		for i := range rapid.IntRange(lo, hi).Draw(t, "nodes") {
			nodes = append(nodes, Node{
				ID:       fmt.Sprintf("node-%d", i),
				Capacity: rapid.SampledFrom([]int{1, 1, 1, 2, 8, 16}).Draw(t, "capacity"),
				Labels:   map[string]string{"gpu": rapid.SampledFrom([]string{"yes", "no"}).Draw(t, "gpu"), "zone": fmt.Sprint(i % 3)},
			})
		}
		return nodes
	})
}

func newTable(t require.TestingT, nodes []Node) *Table {
	table, err := New(nodes)
	require.NoError(t, err)
	return table
}

func newBalancer(t require.TestingT, nodes []Node) *Balancer {
	b, err := NewBalancer(newTable(t, nodes), 0)
	require.NoError(t, err)
	return b
}

func TestSelector(t *testing.T) {
	s := Require(map[string][]string{"zone": {"b", "a", "b"}, "gpu": {"yes"}})
	require.True(t, s.Matches(map[string]string{"zone": "a", "gpu": "yes", "x": ""}, nil))
	require.False(t, s.Matches(map[string]string{"zone": "c", "gpu": "yes"}, nil))
	require.False(t, s.Matches(map[string]string{"zone": "a"}, nil))
	require.False(t, Require(map[string][]string{"zone": nil}).Matches(map[string]string{"zone": ""}, nil))
	require.True(t, Selector{}.Matches(nil, nil))
	require.Equal(t, s, Require(map[string][]string{"gpu": {"yes"}, "zone": {"a", "b"}}))
	// No value can be mistaken for another label.
	require.NotEqual(t, Require(map[string][]string{"a": {"b", "c"}}).id(), Require(map[string][]string{"a": {`b"="c`}}).id())
	require.NotEqual(t, Require(map[string][]string{"a": {}, "b": {}}).id(), Require(map[string][]string{`a""b`: {}}).id())
}

func TestNewRefuses(t *testing.T) {
	_, err := New([]Node{{ID: "", Capacity: 1}, {ID: "a", Capacity: -1}, {ID: "b"}, {ID: "b"}})
	require.ErrorContains(t, err, "empty id")
	require.ErrorContains(t, err, "node a: negative capacity")
	require.ErrorContains(t, err, "node b: repeated id")
	for _, epsilon := range []float64{-0.1, math.NaN(), math.Inf(1)} {
		_, err := NewBalancer(newTable(t, nil), epsilon)
		require.ErrorContains(t, err, "epsilon")
	}
}

func TestNoNode(t *testing.T) {
	b := newBalancer(t, []Node{{ID: "off"}, {ID: "a", Capacity: 1}})
	_, ok := b.Assign("k", gpu, 1)
	require.False(t, ok)
	_, ok = b.table.Owner("k", gpu)
	require.False(t, ok)
	require.Empty(t, b.table.Rank(nil, "k", gpu, 3))
	require.Equal(t, []string{"a"}, b.table.Rank(nil, "k", Selector{}, 3))
	require.False(t, b.adopt("k", gpu, 1, "off"))
	require.False(t, b.Release("k"))
	require.Zero(t, b.total)
}

// These pins hold a running cluster's placement across releases.
func TestStableHash(t *testing.T) {
	table := newTable(t, []Node{{ID: "a", Capacity: 1}, {ID: "b", Capacity: 2}, {ID: "c", Capacity: 4}})
	require.Equal(t, uint64(0xf52a15e9a9b5e89b), hash(""))
	got := map[string]string{}
	for _, key := range []string{"ns/one", "ns/two", "ns/three", "ns/four"} {
		got[key], _ = table.Owner(key, Selector{})
	}
	require.Equal(t, map[string]string{"ns/one": "a", "ns/two": "c", "ns/three": "a", "ns/four": "c"}, got)
}

func TestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(0, 30).Draw(t, "cluster")
		table := newTable(t, nodes)
		shuffled := newTable(t, rapid.Permutation(nodes).Draw(t, "shuffled"))
		sel := rapid.SampledFrom([]Selector{{}, gpu}).Draw(t, "selector")
		key := rapid.String().Draw(t, "key")
		all := table.Rank(nil, key, sel, len(nodes))
		matching := map[string]bool{}
		for _, n := range nodes {
			if sel.Matches(n.Labels, n.Resources) {
				matching[n.ID] = true
			}
		}
		require.Len(t, all, len(matching))
		for _, id := range all {
			require.True(t, matching[id])
			delete(matching, id)
		}
		k := rapid.IntRange(0, 12).Draw(t, "k")
		require.Equal(t, append([]string{"kept"}, all[:min(k, len(all))]...), shuffled.Rank([]string{"kept"}, key, sel, k))
		owner, ok := shuffled.Owner(key, sel)
		require.Equal(t, len(all) > 0, ok)
		if !ok {
			return
		}
		require.Equal(t, all[0], owner)
		// Without a node the ranking is the same but for it.
		gone := rapid.SampledFrom(all).Draw(t, "gone")
		var left []Node
		var want []string
		for _, n := range nodes {
			if n.ID != gone {
				left = append(left, n)
			}
		}
		for _, id := range all {
			if id != gone {
				want = append(want, id)
			}
		}
		require.Equal(t, want, newTable(t, left).Rank(nil, key, sel, len(nodes)))
	})
}

func TestSharesFollowCapacity(t *testing.T) {
	var nodes []Node
	for i := range 10 {
		nodes = append(nodes, Node{ID: fmt.Sprintf("node-%d", i), Capacity: 1 + i})
	}
	table := newTable(t, nodes)
	const keys = 100_000
	got := map[string]int{}
	for i := range keys {
		owner, _ := table.Owner(fmt.Sprintf("ns/job-%d", i), Selector{})
		got[owner]++
	}
	for _, n := range nodes {
		require.InEpsilon(t, float64(keys)*float64(n.Capacity)/55, got[n.ID], 0.06, n.ID)
	}
}

func TestNoAllocation(t *testing.T) {
	var nodes []Node
	for i := range 20 {
		nodes = append(nodes, Node{ID: fmt.Sprintf("node-%d", i), Capacity: 1 + i%4, Labels: map[string]string{"gpu": "yes"}})
	}
	table := newTable(t, nodes)
	dst := make([]string, 0, 8)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		table.Owner("ns/job", gpu)
		dst = table.Rank(dst[:0], "ns/job", gpu, 8)
	}))
}
