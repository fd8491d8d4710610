package kvtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
)

// unknownLease was never granted.
const unknownLease kv.LeaseID = 0x7fff_1234_5678

var leaseTests = map[string]func(*testing.T, *env){
	"LeaseEnds": func(t *testing.T, e *env) {
		id, ttl, err := e.kv.Grant(e.ctx, time.Second)
		require.NoError(t, err)
		require.GreaterOrEqual(t, ttl, time.Second)
		other := e.grant(t, 10*patience)
		at := e.do(t,
			kv.Put(e.k("b"), nil, id), kv.Put(e.k("a"), nil, id), kv.Put(e.k("c"), nil, other), kv.Put(e.k("d"), nil, 0),
		).Revision
		key, end := e.all()
		events := collect(t, e.watch(t, key, end, at+1), 2)
		for i, name := range []string{"a", "b"} {
			require.Equal(t, kv.Event{Deleted: true, KV: kv.KeyValue{Key: e.k(name), ModRevision: at + 1}}, events[i])
		}
		require.Equal(t, []string{"c", "d"}, e.names(e.list(t, key, end, kv.RangeOptions{}).KVs))
		_, err = e.kv.KeepAlive(e.ctx, id)
		require.ErrorIs(t, err, kv.ErrLeaseNotFound)
		require.NoError(t, e.kv.Revoke(e.ctx, other))
	},

	"KeepAlive": func(t *testing.T, e *env) {
		id, ttl, err := e.kv.Grant(e.ctx, time.Second)
		require.NoError(t, err)
		e.do(t, kv.Put(e.k("a"), nil, id))
		for range 3 {
			got, err := e.kv.KeepAlive(e.ctx, id)
			require.NoError(t, err)
			require.Equal(t, ttl, got)
		}
		require.NotNil(t, e.get(t, "a"))
		require.NoError(t, e.kv.Revoke(e.ctx, id))
		_, err = e.kv.KeepAlive(e.ctx, id)
		require.ErrorIs(t, err, kv.ErrLeaseNotFound)
		_, err = e.kv.KeepAlive(e.ctx, unknownLease)
		require.ErrorIs(t, err, kv.ErrLeaseNotFound)
	},

	"Revoke": func(t *testing.T, e *env) {
		id := e.grant(t, patience)
		at := e.do(t, kv.Put(e.k("b"), nil, id), kv.Put(e.k("a"), nil, id)).Revision
		require.NoError(t, e.kv.Revoke(e.ctx, id))
		require.NoError(t, e.kv.Revoke(e.ctx, id), "no such lease is no error")
		require.NoError(t, e.kv.Revoke(e.ctx, unknownLease))
		key, end := e.all()
		r := e.list(t, key, end, kv.RangeOptions{})
		require.Empty(t, r.KVs)
		require.Equal(t, at+1, r.Revision)

		idle := e.grant(t, patience)
		require.NoError(t, e.kv.Revoke(e.ctx, idle))
		require.Equal(t, at+1, e.do(t).Revision, "a lease without keys writes nothing")
	},

	"KeysChangeLeases": func(t *testing.T, e *env) {
		first, second := e.grant(t, patience), e.grant(t, patience)
		for _, name := range []string{"moved", "freed", "kept", "remade"} {
			e.do(t, kv.Put(e.k(name), nil, first))
		}
		e.do(t, kv.Put(e.k("moved"), nil, second), kv.Put(e.k("freed"), nil, 0), kv.Put(e.k("kept"), nil, first))
		e.delete(t, "remade")
		e.put(t, "remade", "")
		require.Equal(t, second, e.get(t, "moved").Lease)
		require.Zero(t, e.get(t, "freed").Lease)
		require.NoError(t, e.kv.Revoke(e.ctx, first))
		key, end := e.all()
		require.Equal(t, []string{"freed", "moved", "remade"}, e.names(e.list(t, key, end, kv.RangeOptions{}).KVs))
		require.NoError(t, e.kv.Revoke(e.ctx, second))
		require.Equal(t, []string{"freed", "remade"}, e.names(e.list(t, key, end, kv.RangeOptions{}).KVs))
	},

	"PutWithADeadLease": func(t *testing.T, e *env) {
		id := e.grant(t, patience)
		require.NoError(t, e.kv.Revoke(e.ctx, id))
		before := e.put(t, "marker", "")
		for _, lease := range []kv.LeaseID{id, unknownLease} {
			_, err := e.kv.Txn(e.ctx, kv.Txn{Then: []kv.Op{
				kv.Put(e.k("a"), nil, 0),
				kv.Nested(&kv.Txn{Then: []kv.Op{kv.Put(e.k("b"), nil, lease)}}),
			}})
			require.ErrorIs(t, err, kv.ErrLeaseNotFound)
		}
		require.Equal(t, before, e.do(t).Revision)
		require.Nil(t, e.get(t, "a"))
		// Where it is not reached it does not matter.
		r := e.txn(t, kv.Txn{Then: []kv.Op{kv.Put(e.k("a"), nil, 0)}, Else: []kv.Op{kv.Put(e.k("b"), nil, id)}})
		require.Equal(t, before+1, r.Revision)
	},

	"LeaseTTLs": func(t *testing.T, e *env) {
		id, ttl, err := e.kv.Grant(e.ctx, 60*time.Second+time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, 61*time.Second, ttl)
		require.NoError(t, e.kv.Revoke(e.ctx, id))
		for _, bad := range []time.Duration{0, -time.Second, kv.MaxTTL + 1} {
			_, _, err := e.kv.Grant(e.ctx, bad)
			require.ErrorIs(t, err, kv.ErrInvalid)
		}
	},
}
