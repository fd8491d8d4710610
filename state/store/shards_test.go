package store

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// Claims of a header that are equal share one. Where who asks has gone, the next one asks
// for itself: that somebody else has no more time is no answer to it.
func TestEqualClaimsOfAHeaderAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &headers{}
		ask := headerAsk{headerKey: headerKey{billing, slotRun(1)}, revision: 5}
		first, leave := context.WithCancel(t.Context())
		asked := 0
		end := make(chan struct{})
		claim := func(ctx context.Context) (state.ClaimResult, error) {
			return h.once(ctx, ask, func() (state.ClaimResult, error) {
				asked++
				select {
				case <-ctx.Done():
					return state.ClaimResult{}, context.Cause(ctx)
				case <-end:
					return state.ClaimResult{Status: state.Claimed}, nil
				}
			})
		}
		gone := make(chan error, 1)
		go func() {
			_, err := claim(first)
			gone <- err
		}()
		synctest.Wait()
		answers := make(chan error, 3)
		for range 3 {
			go func() {
				res, err := claim(t.Context())
				if err == nil && res.Status != state.Claimed {
					t.Errorf("answered %v", res.Status)
				}
				answers <- err
			}()
		}
		synctest.Wait()
		require.Equal(t, 1, asked)
		leave()
		require.ErrorIs(t, <-gone, context.Canceled)
		synctest.Wait()
		require.Equal(t, 2, asked)
		close(end)
		for range 3 {
			require.NoError(t, <-answers)
		}
		require.Equal(t, 2, asked)
		require.Empty(t, h.flights)
	})
}
