package kvtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
)

var revisionTests = map[string]func(*testing.T, *env){
	"Revisions": func(t *testing.T, e *env) {
		r1 := e.put(t, "a", "1")
		require.Equal(t, kv.KeyValue{Key: e.k("a"), Value: []byte("1"), CreateRevision: r1, ModRevision: r1, Version: 1}, *e.get(t, "a"))

		r2 := e.put(t, "a", "2")
		require.Equal(t, r1+1, r2)
		require.Equal(t, kv.KeyValue{Key: e.k("a"), Value: []byte("2"), CreateRevision: r1, ModRevision: r2, Version: 2}, *e.get(t, "a"))

		require.Equal(t, r2+1, e.delete(t, "a"))
		require.Nil(t, e.get(t, "a"))

		r4 := e.put(t, "a", "")
		got := e.get(t, "a")
		require.Empty(t, got.Value)
		require.Equal(t, []int64{r4, r4, 1}, []int64{got.CreateRevision, got.ModRevision, got.Version})
	},

	"OneTransactionOneRevision": func(t *testing.T, e *env) {
		old := e.put(t, "old", "")
		r := e.do(t, kv.Put(e.k("a"), nil, 0), kv.Put(e.k("b"), nil, 0), kv.Delete(e.k("old")),
			kv.Nested(&kv.Txn{Then: []kv.Op{kv.Put(e.k("c"), nil, 0)}}))
		require.Equal(t, old+1, r.Revision)
		for _, name := range []string{"a", "b", "c"} {
			require.Equal(t, r.Revision, e.get(t, name).ModRevision)
		}
	},

	"NothingWrittenNoRevision": func(t *testing.T, e *env) {
		at := e.put(t, "a", "1")
		require.Equal(t, at, e.do(t, kv.Get(e.k("a"))).Revision)
		require.Equal(t, at, e.do(t).Revision)
		require.Equal(t, at, e.delete(t, "absent"))
		require.Equal(t, at, e.do(t, kv.Nested(nil), kv.Nested(&kv.Txn{Then: []kv.Op{kv.Get(e.k("a"))}})).Revision)
		require.Equal(t, at, e.list(t, e.k("a"), "", kv.RangeOptions{}).Revision)
	},

	"ValuesAreCopied": func(t *testing.T, e *env) {
		v := []byte("before")
		e.do(t, kv.Put(e.k("a"), v, 0))
		copy(v, "after!")
		require.Equal(t, "before", string(e.get(t, "a").Value))
	},
}

var rangeTests = map[string]func(*testing.T, *env){
	"Range": func(t *testing.T, e *env) {
		for _, name := range []string{"b", "a", "d", "c"} {
			e.put(t, name, name)
		}
		key, end := e.all()
		r := e.list(t, key, end, kv.RangeOptions{})
		require.Equal(t, []string{"a", "b", "c", "d"}, e.names(r.KVs))
		require.Equal(t, int64(4), r.Count)
		require.False(t, r.More)

		require.Equal(t, []string{"b", "c"}, e.names(e.list(t, e.k("b"), e.k("d"), kv.RangeOptions{}).KVs))
		require.Equal(t, []string{"b"}, e.names(e.list(t, e.k("b"), "", kv.RangeOptions{Limit: 7}).KVs))
		require.Empty(t, e.list(t, e.k("bb"), "", kv.RangeOptions{}).KVs)
		require.Empty(t, e.list(t, e.k("d"), e.k("b"), kv.RangeOptions{}).KVs)
		require.Empty(t, e.list(t, e.k("b"), e.k("b"), kv.RangeOptions{}).KVs)

		r = e.list(t, key, end, kv.RangeOptions{Limit: 4})
		require.False(t, r.More)
		r = e.list(t, key, end, kv.RangeOptions{Limit: 3, Serializable: true})
		require.True(t, r.More)
		require.Equal(t, int64(4), r.Count)
		require.Len(t, r.KVs, 3)
	},

	"RangeFromKey": func(t *testing.T, e *env) {
		// Its prefix is above those of all other tests.
		e.prefix = "~" + e.prefix
		e.put(t, "a", "")
		e.put(t, "b", "")
		require.Equal(t, []string{"b"}, e.names(e.list(t, e.k("b"), "\x00", kv.RangeOptions{}).KVs))
		require.Equal(t, int64(2), e.do(t, kv.DeleteRange(e.prefix, "\x00")).Results[0].Deleted)
	},

	"RangeKeysOnly": func(t *testing.T, e *env) {
		lease := e.grant(t, patience)
		at := e.do(t, kv.Put(e.k("a"), []byte("1"), lease)).Revision
		want := []kv.KeyValue{{Key: e.k("a"), CreateRevision: at, ModRevision: at, Version: 1}}
		require.Equal(t, want, e.list(t, e.k("a"), "", kv.RangeOptions{KeysOnly: true}).KVs)
		get := kv.Get(e.k("a"))
		get.Keys = true
		require.Equal(t, want, e.do(t, get).Results[0].KVs)
		require.Equal(t, lease, e.get(t, "a").Lease)
	},

	"RangeInThePast": func(t *testing.T, e *env) {
		before := e.put(t, "a", "1")
		e.put(t, "b", "1")
		e.put(t, "a", "2")
		now := e.delete(t, "b")
		key, end := e.all()
		at := func(rev int64) []string {
			r := e.list(t, key, end, kv.RangeOptions{Revision: rev})
			require.Equal(t, now, r.Revision)
			out := []string{}
			for _, k := range r.KVs {
				out = append(out, k.Key[len(e.prefix):]+string(k.Value))
			}
			return out
		}
		require.Equal(t, []string{}, at(before-1))
		require.Equal(t, []string{"a1"}, at(before))
		require.Equal(t, []string{"a1", "b1"}, at(before+1))
		require.Equal(t, []string{"a2", "b1"}, at(before+2))
		require.Equal(t, []string{"a2"}, at(now))
		require.Equal(t, []string{"a2"}, at(0))
		_, err := e.kv.Range(e.ctx, key, end, kv.RangeOptions{Revision: now + 1})
		require.ErrorIs(t, err, kv.ErrInvalid)
		_, err = e.kv.Range(e.ctx, "", "", kv.RangeOptions{})
		require.ErrorIs(t, err, kv.ErrInvalid)
	},

	"PagesOfOneRevision": func(t *testing.T, e *env) {
		for i := range 10 {
			e.put(t, fmt.Sprintf("%02d", i), "")
		}
		key, end := e.all()
		first := e.list(t, key, end, kv.RangeOptions{Limit: 4})
		kvs := first.KVs
		for more := first.More; more; {
			// Changes that the pages must not see.
			e.delete(t, "09")
			e.put(t, "08x", "")
			r := e.list(t, kvs[len(kvs)-1].Key+"\x00", end, kv.RangeOptions{Limit: 4, Revision: first.Revision})
			kvs, more = append(kvs, r.KVs...), r.More
		}
		require.Len(t, kvs, 10)
		require.Equal(t, "09", e.names(kvs)[9])
	},

	"Compaction": func(t *testing.T, e *env) {
		r1 := e.put(t, "a", "1")
		r2 := e.put(t, "a", "2")
		r3 := e.delete(t, "a")
		r4 := e.put(t, "b", "1")
		require.NoError(t, e.kv.Compact(e.ctx, r3))
		require.ErrorIs(t, e.kv.Compact(e.ctx, r3), kv.ErrCompacted)
		require.ErrorIs(t, e.kv.Compact(e.ctx, r1), kv.ErrCompacted)
		require.ErrorIs(t, e.kv.Compact(e.ctx, r4+1), kv.ErrInvalid)

		key, end := e.all()
		_, err := e.kv.Range(e.ctx, key, end, kv.RangeOptions{Revision: r2})
		require.ErrorIs(t, err, kv.ErrCompacted)
		require.Empty(t, e.list(t, key, end, kv.RangeOptions{Revision: r3}).KVs)
		require.Len(t, e.list(t, key, end, kv.RangeOptions{}).KVs, 1)

		w := e.watch(t, key, end, r2)
		_, err = next(t, w)
		require.ErrorIs(t, err, kv.ErrCompacted)
		_, err = next(t, w)
		require.Error(t, err, "a dead watcher stays dead")

		events := collect(t, e.watch(t, key, end, r3), 2)
		require.Equal(t, kv.Event{Deleted: true, KV: kv.KeyValue{Key: e.k("a"), ModRevision: r3}}, events[0])
		require.Equal(t, r4, events[1].KV.ModRevision)

		require.NoError(t, e.kv.Compact(e.ctx, r4))
		require.Equal(t, int64(1), e.get(t, "b").Version)
		r5 := e.put(t, "b", "2")
		require.Equal(t, kv.KeyValue{Key: e.k("b"), Value: []byte("2"), CreateRevision: r4, ModRevision: r5, Version: 2}, *e.get(t, "b"))
	},
}
