package placement

import "math"

// hash is FNV-1a with a finisher. It is the same in every process and release:
// changing it would move every key of a running cluster.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finisher of SplitMix64: every input bit affects every output bit.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// draw returns the number of 53 bits that a node draws for a key; higher is better.
func draw(key, node uint64) uint64 { return mix(key^node) >> 11 }

// cost turns a draw into the node's exponentially distributed number for a key;
// lower is better. It falls strictly with the draw's logarithm.
func cost(draw uint64, capacity float64) float64 {
	return -math.Log((float64(draw)+0.5)*0x1p-53) / capacity
}

// worthless returns a draw up to which a node of this capacity certainly cannot
// cost less than the limit. It saves the logarithm for most nodes of a large
// cluster and is rounded so that it never decides by itself.
func worthless(limit, capacity float64) uint64 {
	const slack = 1 - 1e-9
	return uint64(max(0, math.Exp(-limit*capacity)*0x1p53*slack-1))
}
