package kvtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
)

var txnTests = map[string]func(*testing.T, *env){
	"Compares": func(t *testing.T, e *env) {
		created := e.put(t, "a", "m")
		mod := e.put(t, "a", "n")
		lease := e.grant(t, patience)
		leased := e.do(t, kv.Put(e.k("l"), nil, lease)).Revision
		require.Greater(t, leased, mod)
		for _, c := range []struct {
			key     string
			target  kv.Target
			holds   int64 // what the store holds
			numbers bool
		}{
			{"a", kv.TargetCreateRevision, created, true},
			{"a", kv.TargetModRevision, mod, true},
			{"a", kv.TargetVersion, 2, true},
			{"a", kv.TargetLease, 0, true},
			{"l", kv.TargetLease, int64(lease), true},
			{"absent", kv.TargetCreateRevision, 0, true},
			{"absent", kv.TargetModRevision, 0, true},
			{"absent", kv.TargetVersion, 0, true},
			{"absent", kv.TargetLease, 0, true},
		} {
			for given := c.holds - 1; given <= c.holds+1; given++ {
				for rel, want := range map[kv.Relation]bool{
					kv.Equal: c.holds == given, kv.NotEqual: c.holds != given,
					kv.Less: c.holds < given, kv.Greater: c.holds > given,
				} {
					r := e.txn(t, kv.Txn{If: []kv.Compare{{Key: e.k(c.key), Target: c.target, Relation: rel, Int: given}}})
					require.Equal(t, want, r.Succeeded, "%+v, relation %d to %d", c, rel, given)
				}
			}
		}
		for _, given := range []string{"", "m", "n", "nn", "o"} {
			for rel, want := range map[kv.Relation]bool{
				kv.Equal: "n" == given, kv.NotEqual: "n" != given, kv.Less: "n" < given, kv.Greater: "n" > given,
			} {
				c := kv.Compare{Key: e.k("a"), Target: kv.TargetValue, Relation: rel, Value: given}
				require.Equal(t, want, e.txn(t, kv.Txn{If: []kv.Compare{c}}).Succeeded, "relation %d to %q", rel, given)
				c.Key = e.k("absent")
				require.False(t, e.txn(t, kv.Txn{If: []kv.Compare{c}}).Succeeded, "the value of an absent key")
			}
		}
	},

	"ComparesOfRanges": func(t *testing.T, e *env) {
		first := e.put(t, "a1", "x")
		e.put(t, "a2", "x")
		e.put(t, "b", "y")
		holds := func(key, end string, target kv.Target, rel kv.Relation, n int64, v string) bool {
			c := kv.Compare{Key: e.k(key), Target: target, Relation: rel, Int: n, Value: v}
			if end != "" {
				c.End = e.k(end)
			}
			return e.txn(t, kv.Txn{If: []kv.Compare{c}}).Succeeded
		}
		require.True(t, holds("a", "b", kv.TargetValue, kv.Equal, 0, "x"))
		require.False(t, holds("a", "c", kv.TargetValue, kv.Equal, 0, "x"))
		require.True(t, holds("a", "c", kv.TargetVersion, kv.Equal, 1, ""))
		require.False(t, holds("a", "c", kv.TargetModRevision, kv.Equal, first, ""))
		require.True(t, holds("a", "c", kv.TargetModRevision, kv.Less, first+3, ""))
		// An empty range is one absent key.
		require.True(t, holds("c", "d", kv.TargetModRevision, kv.Equal, 0, ""))
		require.False(t, holds("c", "d", kv.TargetValue, kv.NotEqual, 0, "x"))
		require.True(t, holds("b", "a", kv.TargetCreateRevision, kv.Equal, 0, ""))
	},

	"AllComparesMustHold": func(t *testing.T, e *env) {
		e.put(t, "a", "")
		yes := kv.Compare{Key: e.k("a"), Target: kv.TargetVersion, Int: 1}
		no := kv.Compare{Key: e.k("b"), Target: kv.TargetVersion, Int: 1}
		r := e.txn(t, kv.Txn{
			If:   []kv.Compare{yes, no},
			Then: []kv.Op{kv.Put(e.k("then"), nil, 0)},
			Else: []kv.Op{kv.Put(e.k("else"), nil, 0), kv.Get(e.k("a"))},
		})
		require.False(t, r.Succeeded)
		require.Len(t, r.Results, 2)
		require.Len(t, r.Results[1].KVs, 1)
		require.Nil(t, e.get(t, "then"))
		require.NotNil(t, e.get(t, "else"))
	},

	"NestedTransactions": func(t *testing.T, e *env) {
		e.put(t, "a", "1")
		has := func(name string) []kv.Compare {
			return []kv.Compare{{Key: e.k(name), Target: kv.TargetCreateRevision, Relation: kv.Greater}}
		}
		r := e.do(t,
			kv.Nested(&kv.Txn{
				If:   has("a"),
				Then: []kv.Op{kv.Put(e.k("x"), []byte("then"), 0), kv.Get(e.k("a"))},
				Else: []kv.Op{kv.Put(e.k("x"), []byte("else"), 0)},
			}),
			kv.Nested(&kv.Txn{
				If:   has("b"),
				Then: []kv.Op{kv.Put(e.k("y"), []byte("then"), 0)},
				Else: []kv.Op{
					kv.Nested(&kv.Txn{If: has("c"), Else: []kv.Op{kv.Get(e.k("a")), kv.Delete(e.k("a"))}}),
					kv.Put(e.k("y"), []byte("else"), 0),
					kv.Nested(&kv.Txn{If: has("a"), Then: []kv.Op{kv.Get(e.k("a"))}}),
				},
			}),
			kv.Get(e.k("y")),
		)
		require.True(t, r.Succeeded)
		first, second := r.Results[0].Txn, r.Results[1].Txn
		require.True(t, first.Succeeded)
		require.Equal(t, "1", string(first.Results[1].KVs[0].Value))
		require.False(t, second.Succeeded)
		require.Len(t, second.Results, 3)
		require.False(t, second.Results[0].Txn.Succeeded)
		require.Equal(t, int64(1), second.Results[0].Txn.Results[1].Deleted)
		require.True(t, second.Results[2].Txn.Succeeded, "decided before the deletion")
		require.Empty(t, second.Results[2].Txn.Results[0].KVs, "read after the deletion")
		require.Equal(t, "else", string(r.Results[2].KVs[0].Value))
		require.Zero(t, first.Revision)
		require.Equal(t, "then", string(e.get(t, "x").Value))
	},

	"ComparesSeeTheStateBefore": func(t *testing.T, e *env) {
		absent := []kv.Compare{{Key: e.k("a"), Target: kv.TargetCreateRevision}}
		r := e.do(t,
			kv.Put(e.k("a"), nil, 0),
			kv.Nested(&kv.Txn{If: absent, Then: []kv.Op{kv.Put(e.k("b"), nil, 0)}}),
		)
		require.True(t, r.Results[1].Txn.Succeeded)
		r = e.do(t,
			kv.Nested(&kv.Txn{If: absent, Then: []kv.Op{kv.Put(e.k("b"), nil, 0)}}),
			kv.Delete(e.k("a")),
		)
		require.False(t, r.Results[0].Txn.Succeeded)
	},

	"ReadsSeeTheWritesBefore": func(t *testing.T, e *env) {
		e.put(t, "a", "old")
		key, end := e.all()
		r := e.do(t,
			kv.GetRange(key, end, 0),
			kv.Put(e.k("b"), []byte("new"), 0),
			kv.GetRange(key, end, 0),
			kv.Nested(&kv.Txn{Then: []kv.Op{kv.Put(e.k("c"), nil, 0), kv.GetRange(key, end, 2)}}),
			kv.Delete(e.k("a")),
			kv.GetRange(key, end, 0),
		)
		require.Equal(t, []string{"a"}, e.names(r.Results[0].KVs))
		require.Equal(t, []string{"a", "b"}, e.names(r.Results[2].KVs))
		require.Equal(t, r.Revision, r.Results[2].KVs[1].ModRevision)
		inner := r.Results[3].Txn.Results[1]
		require.Equal(t, []string{"a", "b"}, e.names(inner.KVs))
		require.True(t, inner.More)
		require.Equal(t, []string{"b", "c"}, e.names(r.Results[5].KVs))
	},
}

var limitTests = map[string]func(*testing.T, *env){
	"OperationsLimit": func(t *testing.T, e *env) {
		puts := func(from, n int) []kv.Op {
			var ops []kv.Op
			for i := range n {
				ops = append(ops, kv.Put(e.k(fmt.Sprint(from+i)), nil, 0))
			}
			return ops
		}
		compares := func(n int) (out []kv.Compare) {
			for i := range n {
				out = append(out, kv.Compare{Key: e.k(fmt.Sprint(i)), Target: kv.TargetVersion, Relation: kv.NotEqual, Int: -1})
			}
			return out
		}
		// nest puts inner among n outer operations.
		nest := func(n int, inner kv.Txn) kv.Txn {
			return kv.Txn{Then: append(puts(1000, n-1), kv.Nested(&inner))}
		}
		const m = kv.MaxTxnOps
		for name, c := range map[string]struct {
			txn kv.Txn
			ok  bool
		}{
			"then":           {kv.Txn{Then: puts(0, m)}, true},
			"then over":      {kv.Txn{Then: puts(0, m+1)}, false},
			"else":           {kv.Txn{Else: puts(0, m)}, true},
			"else over":      {kv.Txn{Else: puts(0, m+1)}, false},
			"if":             {kv.Txn{If: compares(m)}, true},
			"if over":        {kv.Txn{If: compares(m + 1)}, false},
			"all":            {kv.Txn{If: compares(m), Then: puts(0, m), Else: puts(0, m)}, true},
			"nested":         {nest(28, kv.Txn{If: compares(m - 28), Then: puts(0, m-28), Else: puts(0, m-28)}), true},
			"nested then":    {nest(28, kv.Txn{Then: puts(0, m-27)}), false},
			"nested else":    {nest(28, kv.Txn{Else: puts(0, m-27)}), false},
			"nested if":      {nest(28, kv.Txn{If: compares(m - 27)}), false},
			"else counts":    {kv.Txn{Then: []kv.Op{kv.Nested(&kv.Txn{Then: puts(0, m-9)})}, Else: puts(1000, 10)}, false},
			"if counts":      {kv.Txn{If: compares(10), Then: []kv.Op{kv.Nested(&kv.Txn{Then: puts(0, m-9)})}}, false},
			"in else":        {kv.Txn{Else: []kv.Op{kv.Nested(&kv.Txn{Then: puts(0, m-1)})}}, true},
			"in else over":   {kv.Txn{Else: []kv.Op{kv.Nested(&kv.Txn{Then: puts(0, m)})}}, false},
			"two levels":     {nest(10, nest(20, kv.Txn{Then: puts(0, m-30)})), false}, // the outer puts clash
			"third level":    {kv.Txn{Then: []kv.Op{kv.Nested(&kv.Txn{Then: []kv.Op{kv.Nested(&kv.Txn{Then: puts(0, m-2)})}})}}, true},
			"third over":     {kv.Txn{Then: []kv.Op{kv.Nested(&kv.Txn{Then: []kv.Op{kv.Nested(&kv.Txn{Then: puts(0, m-1)})}})}}, false},
			"none left":      {nest(m, kv.Txn{}), true},
			"none left over": {nest(m, kv.Txn{If: compares(1)}), false},
		} {
			_, err := e.kv.Txn(e.ctx, c.txn)
			if c.ok {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, kv.ErrInvalid, name)
			}
		}
	},

	"BytesLimit": func(t *testing.T, e *env) {
		const slack = 256 // the rest of the request
		v := []byte(strings.Repeat("x", kv.MaxRequestBytes))
		e.do(t, kv.Put(e.k("a"), v[slack:], 0))
		_, err := e.kv.Txn(e.ctx, kv.Txn{Then: []kv.Op{kv.Put(e.k("b"), v, 0)}})
		require.ErrorIs(t, err, kv.ErrInvalid)
		_, err = e.kv.Txn(e.ctx, kv.Txn{Then: []kv.Op{kv.Put(e.k("b"), append(v, v...), 0)}})
		require.ErrorIs(t, err, kv.ErrInvalid)
		require.Nil(t, e.get(t, "b"))
		require.Len(t, e.get(t, "a").Value, kv.MaxRequestBytes-slack)
		// A full 1.5 MiB and more comes back in one answer.
		e.do(t, kv.Put(e.k("c"), v[slack:], 0))
		e.do(t, kv.Put(e.k("d"), v[slack:], 0))
		key, end := e.all()
		require.Len(t, e.list(t, key, end, kv.RangeOptions{}).KVs, 3)
		e.do(t, kv.DeleteRange(key, end))
	},

	"KeysPutTwice": func(t *testing.T, e *env) {
		put := func(name string) kv.Op { return kv.Put(e.k(name), nil, 0) }
		del := func(name string) kv.Op { return kv.Delete(e.k(name)) }
		span := func(from, to string) kv.Op { return kv.DeleteRange(e.k(from), e.k(to)) }
		in := func(ops ...kv.Op) kv.Op { return kv.Nested(&kv.Txn{Then: ops}) }
		either := func(then, other []kv.Op) kv.Op { return kv.Nested(&kv.Txn{Then: then, Else: other}) }
		ops := func(ops ...kv.Op) []kv.Op { return ops }
		for name, c := range map[string]struct {
			ops []kv.Op
			ok  bool
		}{
			"put put":                    {ops(put("a"), put("a")), false},
			"put delete":                 {ops(put("a"), del("a")), false},
			"delete put":                 {ops(del("a"), put("a")), false},
			"delete delete":              {ops(del("a"), del("a"), span("a", "z")), true},
			"put in deleted range":       {ops(span("a", "c"), put("b")), false},
			"put at end of range":        {ops(span("a", "c"), put("c")), true},
			"put before range":           {ops(span("b", "c"), put("a")), true},
			"reversed range":             {ops(span("c", "a"), put("b")), true},
			"nested put put":             {ops(in(put("a")), put("a")), false},
			"siblings put put":           {ops(in(put("a")), in(put("a"))), false},
			"siblings put, else put":     {ops(in(put("a")), either(nil, ops(put("a")))), false},
			"then put, else put":         {ops(either(ops(put("a")), ops(put("a")))), true},
			"then put, else delete":      {ops(either(ops(put("a")), ops(del("a")))), true},
			"nested put, delete":         {ops(in(put("a")), del("a")), false},
			"nested delete, put":         {ops(in(del("a")), put("a")), false},
			"siblings delete, put":       {ops(in(del("a")), in(put("a"))), false},
			"siblings put, delete":       {ops(in(put("a")), in(del("a"))), true}, // etcd's hole
			"deep put, deep put":         {ops(in(in(put("a"))), in(in(put("a")))), false},
			"deep put, put":              {ops(in(in(put("a"))), put("a")), false},
			"untaken branch counts":      {ops(either(nil, ops(put("a"))), put("a")), false},
			"untaken branch put, delete": {ops(either(nil, ops(put("a"))), span("a", "b")), false},
			"empty key put":              {ops(kv.Put("", nil, 0)), false},
			"empty key get":              {ops(in(kv.Get(""))), false},
			"empty key delete":           {ops(kv.DeleteRange("", e.k("a"))), false},
		} {
			before := e.put(t, "marker", "")
			_, err := e.kv.Txn(e.ctx, kv.Txn{Then: c.ops})
			if c.ok {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, kv.ErrInvalid, name)
				require.Equal(t, before, e.do(t).Revision, name)
			}
			_, err = e.kv.Txn(e.ctx, kv.Txn{Else: c.ops})
			require.Equal(t, c.ok, err == nil, "the branch not taken: %s", name)
		}
		_, err := e.kv.Txn(e.ctx, kv.Txn{If: []kv.Compare{{Target: kv.TargetVersion}}})
		require.ErrorIs(t, err, kv.ErrInvalid)
	},
}
