package store

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// A key of no job takes no place on a page, and does not end the list.
func TestJobsCachePagesPassOverStrayKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := openMemory(t)
		var want []string
		for i := range 6 {
			id := state.JobID{Namespace: "a", Name: fmt.Sprint(i)}
			_, err := s.PutJob(t.Context(), putOf(id, specOf("@daily")))
			require.NoError(t, err)
			want = append(want, id.Name)
			for n := range i % 4 {
				stray := fmt.Sprintf("%s/stray/%d", s.keys.job(id), n)
				_, err = db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(stray, nil, 0)}})
				require.NoError(t, err)
			}
		}
		c := s.JobsCache()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		defer func() {
			cancel()
			require.NoError(t, <-done)
		}()
		for limit := 1; limit <= len(want)+1; limit++ {
			var got []string
			for l := (ListJobs{Limit: limit}); ; {
				page, err := c.ListJobs(t.Context(), l)
				require.NoError(t, err)
				for i := range page.Jobs {
					got = append(got, page.Jobs[i].Job.ID.Name)
				}
				if !page.More {
					break
				}
				require.Len(t, page.Jobs, limit)
				l.After = page.Jobs[limit-1].Job.ID
			}
			require.Equal(t, want, got, "in pages of %d", limit)
		}
	})
}
