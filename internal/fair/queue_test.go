package fair

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// take pops n items and counts them by their values.
func take(t require.TestingT, q *Queue[string, string], n int) map[string]int {
	got := map[string]int{}
	for range n {
		v, ok := q.Pop(nil)
		require.True(t, ok)
		got[v]++
	}
	return got
}

// TestSharesAreTheWeights: of what is taken while all have something waiting, each flow
// gets its weight's part, and one item more or less.
func TestSharesAreTheWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, MaxWeight), 1, 8).Draw(t, "weights")
		const n = 2000
		var q Queue[int, int]
		sum := 0
		for flow, w := range weights {
			sum += w
			for range n {
				q.Push(Flow[int]{Key: flow, Class: 1, Weight: w}, flow)
			}
		}
		got := make([]int, len(weights))
		for range n {
			v, ok := q.Pop(nil)
			require.True(t, ok)
			got[v]++
		}
		for flow, w := range weights {
			want := float64(n) * float64(w) / float64(sum)
			require.LessOrEqual(t, math.Abs(float64(got[flow])-want), 1+0.01*want, "flow %d of %v: %v", flow, weights, got)
		}
	})
}

// TestOneAtATimeGetsItsShare: a flow that never has more than one item waiting, and comes
// back at once, is no better off than one with a stock.
func TestOneAtATimeGetsItsShare(t *testing.T) {
	var q Queue[string, string]
	stock, single := Flow[string]{Key: "stock", Weight: 9}, Flow[string]{Key: "single", Weight: 1}
	for range 2000 {
		q.Push(stock, "stock")
	}
	q.Push(single, "single")
	got := map[string]int{}
	for range 1000 {
		v, _ := q.Pop(nil)
		if got[v]++; v == "single" {
			q.Push(single, "single")
		}
	}
	require.InDelta(t, 100, got["single"], 2)
}

// TestClassesAreStrict: nothing of a class is taken while a higher one waits.
func TestClassesAreStrict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int, int]
		waiting := [Classes]int{}
		for _, class := range rapid.SliceOf(rapid.IntRange(-1, Classes-1)).Draw(t, "ops") {
			if class >= 0 {
				q.Push(Flow[int]{Key: rapid.IntRange(0, 3).Draw(t, "flow"), Class: class, Weight: 1 + class}, class)
				waiting[class]++
				continue
			}
			got, ok := q.Pop(nil)
			want := 0
			for want < Classes && waiting[want] == 0 {
				want++
			}
			require.Equal(t, want < Classes, ok)
			if ok {
				require.Equal(t, want, got)
				waiting[got]--
			}
		}
		n := 0
		for _, w := range waiting {
			n += w
		}
		require.Equal(t, n, q.Len())
	})
}

// TestAFlowIsInOrder: and nothing is lost or doubled, whatever is shed or returned.
func TestAFlowIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int, [2]int]
		var pushed [3]int
		last := [3]int{-1, -1, -1}
		out := map[[2]int]bool{}
		for _, op := range rapid.SliceOf(rapid.IntRange(0, 5)).Draw(t, "ops") {
			switch {
			case op < 3:
				q.Push(Flow[int]{Key: op, Weight: op + 1}, [2]int{op, pushed[op]})
				pushed[op]++
			case op == 3:
				if v, ok := q.Shed(); ok {
					require.False(t, out[v])
					out[v] = true
				}
			default:
				v, ok := q.Pop(nil)
				if !ok {
					continue
				}
				require.False(t, out[v])
				out[v] = true
				require.Greater(t, v[1], last[v[0]])
				last[v[0]] = v[1]
				if op == 5 {
					q.Return(Flow[int]{Key: v[0], Weight: v[0] + 1})
				}
			}
		}
		for q.Len() > 0 {
			v, ok := q.Pop(nil)
			require.True(t, ok)
			out[v] = true
		}
		require.Len(t, out, pushed[0]+pushed[1]+pushed[2])
	})
}

// TestALaneWithoutRoomIsPassedOver: and comes first once there is room.
func TestALaneWithoutRoomIsPassedOver(t *testing.T) {
	var q Queue[string, string]
	for range 10 {
		q.Push(Flow[string]{Key: "gpu", Weight: 1, Lane: "gpu"}, "gpu")
		q.Push(Flow[string]{Key: "plain", Weight: 1}, "plain")
	}
	noGPU := func(lane string) bool { return lane == "" }
	for range 5 {
		v, ok := q.Pop(noGPU)
		require.True(t, ok)
		require.Equal(t, "plain", v)
	}
	require.Equal(t, map[string]int{"gpu": 5}, take(t, &q, 5), "it has been waiting")
	_, ok := q.Pop(func(string) bool { return false })
	require.False(t, ok)
	require.Equal(t, map[string]int{"gpu": 5, "plain": 5}, take(t, &q, 10))
}

// TestReturnedTurns: turns that came to nothing are not counted.
func TestReturnedTurns(t *testing.T) {
	var q Queue[string, string]
	a, b := Flow[string]{Key: "a", Weight: 1}, Flow[string]{Key: "b", Weight: 1}
	for range 1000 {
		q.Push(a, "a")
		q.Push(b, "b")
	}
	got := map[string]int{}
	tries := 0
	for range 600 {
		v, _ := q.Pop(nil)
		if v == "a" {
			if tries++; tries%2 == 0 {
				q.Return(a) // every other one of a's is somebody else's
				continue
			}
		}
		got[v]++
	}
	require.InDelta(t, got["a"], got["b"], 2)
}

// TestIdleFlowsAreForgotten: a crowd that came once takes no memory for ever.
func TestIdleFlowsAreForgotten(t *testing.T) {
	var q Queue[int, int]
	q.Push(Flow[int]{Key: -1, Class: 2, Weight: 1}, -1) // so that it never empties
	for i := range 100_000 {
		q.Push(Flow[int]{Key: i, Class: 1, Weight: 1}, i)
		q.Push(Flow[int]{Key: -2, Class: 1, Weight: 100}, i)
		q.Pop(nil)
		q.Pop(nil)
	}
	require.Less(t, len(q.classes[1].flows), 10_000)
	for q.Len() > 0 {
		q.Pop(nil)
	}
	require.Empty(t, q.classes[1].flows)
}

func BenchmarkQueue(b *testing.B) {
	var q Queue[int, int]
	for i := range 100_000 {
		q.Push(Flow[int]{Key: i, Weight: 1 + i%100}, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		i, _ := q.Pop(nil)
		q.Push(Flow[int]{Key: i, Weight: 1 + i%100}, i)
	}
}
