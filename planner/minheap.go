package planner

// minheap is a binary heap of values by an int64 key, the least first. Values
// are not moved or removed in place: what has become void is dropped when it
// comes to the top.
type minheap[T any] struct{ items []keyed[T] }

type keyed[T any] struct {
	key int64
	val T
}

func (h *minheap[T]) len() int { return len(h.items) }

func (h *minheap[T]) push(key int64, val T) {
	h.items = append(h.items, keyed[T]{key, val})
	for i := len(h.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if h.items[parent].key <= h.items[i].key {
			return
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

func (h *minheap[T]) top() (int64, T) { return h.items[0].key, h.items[0].val }

func (h *minheap[T]) pop() T {
	top := h.items[0].val
	end := len(h.items) - 1
	h.items[0] = h.items[end]
	h.items[end] = keyed[T]{}
	h.items = h.items[:end]
	for i := 0; ; {
		child := 2*i + 1
		if child >= end {
			return top
		}
		if right := child + 1; right < end && h.items[right].key < h.items[child].key {
			child = right
		}
		if h.items[i].key <= h.items[child].key {
			return top
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
}
