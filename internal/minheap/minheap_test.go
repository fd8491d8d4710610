package minheap

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHeapIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[int64]
		var model []int64
		for _, v := range rapid.SliceOf(rapid.Int64Range(-1, 20)).Draw(t, "ops") {
			if v < 0 && len(model) > 0 {
				slices.Sort(model)
				require.Equal(t, Item[int64]{model[0], model[0]}, h.Top())
				require.Equal(t, model[0], h.Pop().Val)
				model = model[1:]
			} else {
				h.Push(v, v)
				model = append(model, v)
			}
			require.Equal(t, len(model), h.Len())
		}
		slices.Sort(model)
		for _, want := range model {
			require.Equal(t, want, h.Pop().Key)
		}
		require.Zero(t, h.Len())
	})
}

func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[int64]
		var model []int64
		for _, v := range rapid.SliceOf(rapid.Int64Range(0, 50)).Draw(t, "values") {
			if h.Push(v, v); v%3 == 0 {
				model = append(model, v)
			}
		}
		h.Keep(func(v int64) bool { return v%3 == 0 })
		slices.Sort(model)
		require.Equal(t, len(model), h.Len())
		for _, v := range model {
			require.Equal(t, v, h.Pop().Val)
		}
	})
}
