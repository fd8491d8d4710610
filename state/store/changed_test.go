package store

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// TestClaimsSeeEveryChange: claims of a batch compare once that no job was
// changed, instead of their jobs. Whoever changes one meanwhile, here or beside
// this store, no claim of the old version is made.
func TestClaimsSeeEveryChange(t *testing.T) {
	for name, elsewhere := range map[string]bool{"by this store": false, "by another one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				_, db := openMemory(t)
				// Batches gather while a transaction is under way.
				s := openStore(t, faulty.New(db, func(context.Context, faulty.Call) faulty.Fault {
					return faulty.Fault{Delay: time.Millisecond}
				}), "")
				r := &rig{t: t, db: db, s: s}
				editor := s
				if elsewhere {
					editor = openStore(t, db, "")
				}
				const jobs = 20
				revs := make([]int64, jobs)
				for n := range revs {
					put, err := editor.PutJob(ctx, putOf(jobNo(n), specOf("@daily")))
					require.NoError(t, err)
					revs[n] = put.Entry.Job.Revision
				}
				owner := r.register("a")
				// round claims and ends slot i of all jobs at once, in batches.
				round := func(i int) map[state.ClaimStatus]int {
					var mu sync.Mutex
					got := map[state.ClaimStatus]int{}
					var all sync.WaitGroup
					for n := range jobs {
						all.Go(func() {
							res, err := s.Claim(ctx, claimOf(jobNo(n), revs[n], owner, i, n%2 == 0))
							if err == nil && res.Status == state.Claimed {
								_, err = s.Finish(ctx, endOf(*res.Live, state.StateSucceeded))
							}
							mu.Lock()
							defer mu.Unlock()
							require.NoError(t, err)
							got[res.Status]++
						})
					}
					all.Wait()
					return got
				}
				seen := func() (n int) {
					for i := range jobs {
						if s.holders.unchanged(jobNo(i), revs[i], s.changed.get()) {
							n++
						}
					}
					return n
				}
				require.Equal(t, map[state.ClaimStatus]int{state.Claimed: jobs}, round(1))
				synctest.Wait()
				require.Equal(t, map[state.ClaimStatus]int{state.Claimed: jobs}, round(2))
				require.Greater(t, seen(), jobs/2, "most are known not to have changed")

				old := revs[7]
				spec := specOf("@daily")
				spec.Description = "edited"
				put, err := editor.PutJob(ctx, putOf(jobNo(7), spec))
				require.NoError(t, err)
				require.Equal(t, map[state.ClaimStatus]int{state.Claimed: jobs - 1, state.ClaimStale: 1}, round(3))
				revs[7] = put.Entry.Job.Revision
				require.NotEqual(t, old, revs[7])
				synctest.Wait()
				require.Equal(t, map[state.ClaimStatus]int{state.Claimed: jobs}, round(4))

				require.NoError(t, editor.DeleteJob(ctx, ChangeJob{ID: jobNo(8)}))
				require.Equal(t, map[state.ClaimStatus]int{state.Claimed: jobs - 1, state.ClaimStale: 1}, round(5))
			})
		})
	}
}
