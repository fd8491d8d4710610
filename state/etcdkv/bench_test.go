package etcdkv_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/etcdkv/inproc"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// batch is n claims as group commit sends them: each a nested transaction with two
// compares, a put, and a read where it fails.
func batch(n, from int, value []byte) kv.Txn {
	var t kv.Txn
	for i := range n {
		key := fmt.Sprintf("/leaderd/active/default/job/%08d/0", from+i)
		t.Then = append(t.Then, kv.Nested(&kv.Txn{
			If: []kv.Compare{
				{Key: key, Target: kv.TargetCreateRevision},
				{Key: "/leaderd/jobs/default/job", Target: kv.TargetModRevision},
			},
			Then: []kv.Op{kv.Put(key, value, 0)},
			Else: []kv.Op{kv.Get(key)},
		}))
	}
	return t
}

func BenchmarkTxn(b *testing.B) {
	s := etcdtest.Start(b, etcdtest.WithFsync())
	value := make([]byte, 256)
	var next atomic.Int64
	for _, c := range []struct {
		name  string
		store kv.KV
	}{
		{"grpc", etcdkv.New(s.Client(), etcdkv.Options{})},
		{"inproc", inproc.New(s.Etcd(0).Server, s.Client())},
	} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(4) // with two cores, eight under way
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						t := batch(n, int(next.Add(int64(n))), value)
						if _, err := c.store.Txn(b.Context(), t); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "claims/s")
			})
		}
	}
}

// BenchmarkEncode compares our encoding of a batch with the client's own operations.
func BenchmarkEncode(b *testing.B) {
	t := batch(64, 0, make([]byte, 256))
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := etcdkv.Encode(&t); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("clientv3", func(b *testing.B) {
		b.ReportAllocs()
		kvc := clientv3.NewKVFromKVClient(nil, nil)
		for b.Loop() {
			var ops []clientv3.Op
			for i := range t.Then {
				x := t.Then[i].Txn
				var cmps []clientv3.Cmp
				for _, c := range x.If {
					cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Int))
				}
				ops = append(ops, clientv3.OpTxn(cmps,
					[]clientv3.Op{clientv3.OpPut(x.Then[0].Key, string(x.Then[0].Value))},
					[]clientv3.Op{clientv3.OpGet(x.Else[0].Key)}))
			}
			kvc.Txn(b.Context()).Then(ops...)
		}
	})
}
