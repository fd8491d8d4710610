package store

import (
	"slices"
	"sort"

	"github.com/leaderd/leaderd/state/kv"
)

// chunkKeys is the most keys of a chunk. An insertion moves at most this many
// pointers and the list of chunks.
const chunkKeys = 512

// index keeps keys in order: sorted chunks of pointers, each within the bounds
// of its neighbours and never empty. What the pointers name is never changed,
// so a reader may keep them. For a key it costs about 9 bytes beside the
// KeyValue itself (80, its key and its value). The zero index is empty.
type index struct {
	chunks [][]*kv.KeyValue
	n      int
}

// load replaces everything by items, which are in order.
func (x *index) load(items []*kv.KeyValue) {
	x.chunks, x.n = nil, len(items)
	for part := range slices.Chunk(items, chunkKeys*3/4) {
		x.chunks = append(x.chunks, slices.Clone(part))
	}
}

// seek is the place of the first key not before key: its chunk, which may be
// behind the last, and its place in that.
func (x *index) seek(key string) (chunk, place int) {
	chunk = sort.Search(len(x.chunks), func(i int) bool {
		c := x.chunks[i]
		return c[len(c)-1].Key >= key
	})
	if chunk == len(x.chunks) {
		return chunk, 0
	}
	c := x.chunks[chunk]
	return chunk, sort.Search(len(c), func(i int) bool { return c[i].Key >= key })
}

func (x *index) get(key string) *kv.KeyValue {
	if c, i := x.seek(key); c < len(x.chunks) && x.chunks[c][i].Key == key {
		return x.chunks[c][i]
	}
	return nil
}

func (x *index) set(item *kv.KeyValue) {
	c, i := x.seek(item.Key)
	if c == len(x.chunks) {
		if c == 0 {
			x.chunks, x.n = [][]*kv.KeyValue{{item}}, 1
			return
		}
		c, i = c-1, len(x.chunks[c-1])
	} else if x.chunks[c][i].Key == item.Key {
		x.chunks[c][i] = item
		return
	}
	x.n++
	grown := slices.Insert(x.chunks[c], i, item)
	if len(grown) <= chunkKeys {
		x.chunks[c] = grown
		return
	}
	half := len(grown) / 2
	left, right := slices.Clone(grown[:half]), slices.Clone(grown[half:])
	x.chunks[c] = left
	x.chunks = slices.Insert(x.chunks, c+1, right)
}

func (x *index) remove(key string) {
	c, i := x.seek(key)
	if c == len(x.chunks) || x.chunks[c][i].Key != key {
		return
	}
	x.n--
	rest := slices.Delete(x.chunks[c], i, i+1)
	x.chunks[c] = rest
	switch {
	case len(rest) == 0:
		x.chunks = slices.Delete(x.chunks, c, c+1)
	case c > 0 && len(x.chunks[c-1])+len(rest) <= chunkKeys/4:
		// Few keys are left here: one chunk is enough for them.
		x.chunks[c-1] = append(x.chunks[c-1], rest...)
		x.chunks = slices.Delete(x.chunks, c, c+1)
	}
}

// ascend calls each for the keys of [from, to) in order, until it answers
// false.
func (x *index) ascend(from, to string, each func(*kv.KeyValue) bool) {
	c, i := x.seek(from)
	for ; c < len(x.chunks); c, i = c+1, 0 {
		for _, item := range x.chunks[c][i:] {
			if item.Key >= to || !each(item) {
				return
			}
		}
	}
}

// all is a copy of the pointers, in order.
func (x *index) all() []*kv.KeyValue {
	items := make([]*kv.KeyValue, 0, x.n)
	for _, c := range x.chunks {
		items = append(items, c...)
	}
	return items
}
