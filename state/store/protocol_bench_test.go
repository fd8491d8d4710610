package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/etcdkv/inproc"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// cpu is the processor time that the process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// void answers every transaction as if it had been carried out, after about the
// time that etcd takes: what is left is the store's own cost.
type void struct {
	kv.KV
	revision atomic.Int64
}

func (v *void) Txn(_ context.Context, t kv.Txn) (kv.TxnResult, error) {
	time.Sleep(time.Millisecond)
	res := kv.TxnResult{Succeeded: true, Revision: v.revision.Add(1), Results: make([]kv.Result, len(t.Then))}
	parts := make([]kv.TxnResult, len(t.Then))
	results := make([]kv.Result, 2*len(t.Then))
	for i := range t.Then {
		if x := t.Then[i].Txn; x != nil {
			parts[i] = kv.TxnResult{Succeeded: true, Results: results[2*i:][:len(x.Then)]}
			res.Results[i].Txn = &parts[i]
		}
	}
	return res, nil
}

// BenchmarkClaimFinish runs claims and finishes of many exclusive jobs, as an
// executor with many slots does.
func BenchmarkClaimFinish(b *testing.B) {
	const workers = 512
	for _, x := range []struct {
		name string
		open func(b *testing.B) kv.KV
	}{
		{"void", func(*testing.B) kv.KV { return &void{} }},
		{"memkv", func(b *testing.B) kv.KV {
			db := memkv.New()
			b.Cleanup(db.Close)
			return db
		}},
		{"etcd", func(b *testing.B) kv.KV {
			s := etcdtest.Start(b, etcdtest.WithFsync())
			return inproc.New(s.Etcd(0).Server, s.Client())
		}},
	} {
		b.Run(x.name, func(b *testing.B) {
			db := x.open(b)
			ctx := context.Background()
			s := openStore(b, db, "")
			s.closed.set(state.Closed{})
			o, rev := state.Owner{Node: "node-a", Revision: 1}, int64(1)
			if x.name != "void" {
				r := &rig{t: b, db: db, s: s}
				o = r.register("node-a")
				for n := range workers {
					rev = r.setJob(jobNo(n))
				}
				// One revision for all, as far as claims can tell.
				var t kv.Txn
				for n := range workers {
					t.Then = append(t.Then, kv.Put(s.keys.job(jobNo(n)), []byte("job"), 0))
					if len(t.Then) == 100 || n == workers-1 {
						t.Then = append(t.Then, kv.Put(s.keys.changed(), nil, 0))
						rev = r.commit(t).Revision
						t = kv.Txn{}
					}
				}
			}
			revs := make([]int64, workers)
			for n := range revs {
				revs[n] = rev
				if x.name != "void" {
					res, err := db.Range(ctx, s.keys.job(jobNo(n)), "", kv.RangeOptions{})
					require.NoError(b, err)
					revs[n] = res.KVs[0].ModRevision
				}
			}
			var next atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(workers / 2) // on two processors
			begun := cpu(b)
			b.ResetTimer()
			var worker atomic.Int64
			b.RunParallel(func(p *testing.PB) {
				n := int(worker.Add(1)-1) % workers
				id := jobNo(n)
				// The claim and the finish are the caller's, and not counted.
				var c state.Claim
				var f state.Finish
				done := make(chan error, 1)
				claimed := func(res state.ClaimResult, err error) {
					if f.Live = res.Live; err == nil && res.Status != state.Claimed {
						err = fmt.Errorf("claim is %s", res.Status)
					}
					done <- err
				}
				finished := func(status state.TokenStatus, err error) {
					if err == nil && status != state.TokenStored {
						err = fmt.Errorf("finish is %d", status)
					}
					done <- err
				}
				for i := 0; p.Next(); i++ {
					c = claimOf(id, revs[n], o, i, true)
					s.StartClaim(ctx, &c, claimed)
					err := <-done
					if err == nil {
						f.Attempt = attemptOf(f.Live, state.StateSucceeded)
						s.StartFinish(ctx, &f, finished)
						err = <-done
					}
					if err != nil {
						b.Error(err)
						return
					}
					next.Add(1)
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(next.Load())/b.Elapsed().Seconds(), "runs/s")
			b.ReportMetric(float64((cpu(b)-begun).Microseconds())/float64(next.Load()), "cpu-µs/run")
		})
	}
}
