package memkv

import (
	"math/bits"

	"github.com/leaderd/leaderd/state/kv"
)

// requestOverhead is what etcd's proposal adds to a transaction, less the tags
// and lengths: a header with the request's id.
const requestOverhead = 3 + 1 + 10

// requestSize is the size of etcd's encoding of a proposal of t, to within ten
// bytes: ids vary in length.
func requestSize(t *kv.Txn) int { return requestOverhead + field(1, txnSize(t)) }

// field is the size of a length-delimited field of n bytes whose tag takes tag.
func field(tag, n int) int { return tag + varint(int64(n)) + n }

// text is the size of a string field, left out when empty.
func text(tag int, s string) int {
	if s == "" {
		return 0
	}
	return field(tag, len(s))
}

func varint(v int64) int { return (bits.Len64(uint64(v)|1) + 6) / 7 }

// number is the size of a varint field with a tag of one byte, left out when 0.
func number(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + varint(v)
}

func flag(b bool) int {
	if b {
		return 2
	}
	return 0
}

func txnSize(t *kv.Txn) int {
	n := 0
	for i := range t.If {
		n += field(1, compareSize(&t.If[i]))
	}
	for i := range t.Then {
		n += field(1, opSize(&t.Then[i]))
	}
	for i := range t.Else {
		n += field(1, opSize(&t.Else[i]))
	}
	return n
}

func compareSize(c *kv.Compare) int {
	n := text(1, c.Key) + text(2, c.End)
	if c.Relation != kv.Equal {
		n += 2
	}
	if c.Target != kv.TargetVersion { // the encoding's zero
		n += 2
	}
	// The right side is a member of a oneof, which is never left out.
	if c.Target == kv.TargetValue {
		return n + field(1, len(c.Value))
	}
	return n + 1 + varint(c.Int)
}

func opSize(op *kv.Op) int {
	n := 0
	switch op.Kind {
	case kv.OpGet:
		n = text(1, op.Key) + text(1, op.End) + number(op.Limit) + flag(op.Keys)
	case kv.OpPut:
		n = text(1, op.Key) + number(int64(op.Lease))
		if len(op.Value) > 0 {
			n += field(1, len(op.Value))
		}
	case kv.OpDelete:
		n = text(1, op.Key) + text(1, op.End)
	case kv.OpTxn:
		n = txnSize(nested(op))
	}
	return field(1, n)
}
