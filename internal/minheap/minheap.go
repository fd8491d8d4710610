// Package minheap is a binary heap of values by a number, the least first.
package minheap

// Heap is such a heap. The zero Heap is empty. No value is moved or removed by itself:
// users drop what has become void when it comes to the top, or, where that may be much, by
// Keep.
type Heap[T any] struct{ items []Item[T] }

// Item is a value and its number.
type Item[T any] struct {
	Key int64
	Val T
}

// Len is how many values there are.
func (h *Heap[T]) Len() int { return len(h.items) }

// Push adds a value.
func (h *Heap[T]) Push(key int64, val T) {
	h.items = append(h.items, Item[T]{})
	s := h.items
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if s[up].Key <= key {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = Item[T]{key, val}
}

// Top is the first item of a heap that is not empty.
func (h *Heap[T]) Top() Item[T] { return h.items[0] }

// Pop removes the first item of a heap that is not empty, and answers it.
func (h *Heap[T]) Pop() Item[T] {
	s := h.items
	first, last := s[0], s[len(s)-1]
	s[len(s)-1] = Item[T]{}
	s = s[:len(s)-1]
	h.items = s
	if len(s) == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(s) {
			break
		}
		if down+1 < len(s) && s[down+1].Key < s[down].Key {
			down++
		}
		if last.Key <= s[down].Key {
			break
		}
		s[i] = s[down]
		i = down
	}
	s[i] = last
	return first
}

// Keep removes all values but those of which keep is true, in a time that grows with how many
// there are.
func (h *Heap[T]) Keep(keep func(T) bool) {
	var kept Heap[T]
	for _, item := range h.items { // each after those above it, so that most stay where they are put
		if keep(item.Val) {
			kept.Push(item.Key, item.Val)
		}
	}
	*h = kept
}
