package store

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

// Versions are read many at a time, but no more than about a page of them, and pages
// of whatever length hold all of them in order.
func TestVersionsAreReadInParts(t *testing.T) {
	for name, x := range map[string]struct {
		bytes, calls int // of a version, and to read all in one page
	}{
		"small": {10, 1 + 1 + 2}, // the keys, the first few, then twenty and what is left
		"large": {200 << 10, 1 + 1 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memkv.New()
				t.Cleanup(db.Close)
				var calls atomic.Int32
				s := openStore(t, faulty.New(db, func(context.Context, faulty.Call) faulty.Fault {
					calls.Add(1)
					return faulty.Fault{}
				}), "")
				const n = 40
				for i := range n {
					p := putOf(billing, specOf(fmt.Sprintf("@every %dm", i+1)))
					p.Spec.Description = strings.Repeat("x", x.bytes)
					_, err := s.PutJob(t.Context(), p)
					require.NoError(t, err)
				}
				calls.Store(0)
				all, err := s.ListVersions(t.Context(), billing, 0, 1000)
				require.NoError(t, err)
				require.LessOrEqual(t, int(calls.Load()), x.calls)

				generations := func(entries []VersionEntry) (out []int64) {
					for i := range entries {
						out = append(out, entries[i].Version.Job.Generation)
					}
					return out
				}
				var want []int64
				for g := int64(n); g > 0; g-- {
					want = append(want, g)
				}
				require.Equal(t, want[:len(all)], generations(all))
				for _, limit := range []int{1, 3, 7, 1000} {
					var got []int64
					for l := (ListVersions{Limit: limit}); ; {
						page, err := s.ListAllVersions(t.Context(), l)
						require.NoError(t, err)
						got = append(got, generations(page.Versions)...)
						require.LessOrEqual(t, len(page.Versions), limit)
						if !page.More {
							break
						}
						require.NotEmpty(t, page.Versions)
						l.AfterJob, l.AfterGeneration = billing, got[len(got)-1]
					}
					require.Equal(t, want, got, "in pages of %d", limit)
				}
			})
		})
	}
}
