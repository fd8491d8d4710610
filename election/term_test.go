package election

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"
)

func TestZeroTermIsNeverTrusted(t *testing.T) {
	require.False(t, Term{}.Trusted(time.Now()))
	require.Zero(t, Term{}.Deadline())
}

// Trust never goes back, never comes back, and always is the best deadline that
// was heard of in time.
func TestTrustIsMonotonicAndEndsForGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		tr := newTrust(start, time.Second)
		term := Term{trust: tr}
		now, deadline, over := start, start.Add(time.Second), false
		t.Repeat(map[string]func(*rapid.T){
			"extend": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "later")) * time.Millisecond)
				to := now.Add(time.Duration(rapid.IntRange(-500, 1000).Draw(t, "to")) * time.Millisecond)
				tr.extend(now, to)
				if !over && now.Before(deadline) && to.After(deadline) {
					deadline = to
				}
			},
			"end": func(*rapid.T) {
				tr.end()
				over = true
			},
			"": func(t *rapid.T) {
				require.Equal(t, !over && now.Before(deadline), term.Trusted(now))
				if !over {
					require.True(t, term.Deadline().Equal(deadline))
				}
			},
		})
	})
}

func TestTrustWatchFollowsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := newTrust(start, time.Second)
		time.AfterFunc(900*time.Millisecond, func() { tr.extend(time.Now(), start.Add(3*time.Second)) })
		var at time.Duration
		tr.watch(t.Context(), func() { at = time.Since(start) })
		require.Equal(t, 3*time.Second, at)
	})
}

// answers is an etcd that answers keep-alives as the test says.
type answers struct {
	mu     sync.Mutex
	starts []time.Duration
	answer func(ctx context.Context, n int) (int64, error)
}

// keep runs a keeper with a TTL of 5 s and a margin of 1 s in virtual time until
// its trust or its lease is lost, 20 s at most.
func (a *answers) keep(t *testing.T) (reason Reason, at time.Duration) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var once sync.Once
	lose := func(r Reason) {
		once.Do(func() { reason, at = r, time.Since(start) })
		cancel()
	}
	k := &keeper{
		ttl: 5 * time.Second, margin: time.Second, trust: newTrust(start, 4*time.Second), lose: lose,
		alive: func(time.Time) {}, log: hclog.NewNullLogger(), metrics: newMetrics(nil),
		renew: func(ctx context.Context, _ clientv3.LeaseID) (int64, error) {
			a.mu.Lock()
			n := len(a.starts)
			a.starts = append(a.starts, time.Since(start))
			a.mu.Unlock()
			return a.answer(ctx, n)
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { k.trust.watch(ctx, func() { lose(ReasonExpired) }) })
	k.run(ctx)
	wg.Wait()
	return reason, at
}

func after(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestKeeper(t *testing.T) {
	hang := func(ctx context.Context) (int64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	for name, c := range map[string]struct {
		answer func(ctx context.Context, n int) (int64, error)
		reason Reason
		at     time.Duration
	}{
		"answered": {
			answer: func(context.Context, int) (int64, error) { return 5, nil },
		},
		"answered late": {
			answer: func(ctx context.Context, _ int) (int64, error) { return 5, after(ctx, 2*time.Second) },
		},
		"every other request hangs": {
			answer: func(ctx context.Context, n int) (int64, error) {
				if n%2 == 0 {
					return hang(ctx)
				}
				return 5, nil
			},
		},
		"silence: from the grant's start": {
			answer: func(ctx context.Context, _ int) (int64, error) { return hang(ctx) },
			reason: ReasonExpired, at: 4 * time.Second,
		},
		"silence after one slow answer: from its request's start": {
			answer: func(ctx context.Context, n int) (int64, error) {
				if n > 0 {
					return hang(ctx)
				}
				return 5, after(ctx, 2*time.Second)
			},
			reason: ReasonExpired, at: 5 * time.Second, // requested after 1 s
		},
		"too late to count": {
			answer: func(ctx context.Context, _ int) (int64, error) { return 5, after(ctx, 4*time.Second) },
			reason: ReasonExpired, at: 4 * time.Second,
		},
		"a longer lease is trusted no longer": {
			answer: func(ctx context.Context, n int) (int64, error) {
				if n > 0 {
					return hang(ctx)
				}
				return 60, nil
			},
			reason: ReasonExpired, at: 5 * time.Second,
		},
		"a shorter lease is trusted shorter": {
			answer: func(ctx context.Context, n int) (int64, error) {
				if n < 3 {
					return 3, nil
				}
				return hang(ctx)
			},
			reason: ReasonExpired, at: 5 * time.Second, // requested after 3 s
		},
		"not found": {
			answer: func(context.Context, int) (int64, error) { return 0, nil },
			reason: ReasonLeaseGone, at: time.Second,
		},
		"not found, as an error": {
			answer: func(context.Context, int) (int64, error) { return 0, rpctypes.ErrGRPCLeaseNotFound },
			reason: ReasonLeaseGone, at: time.Second,
		},
		"fails": {
			answer: func(context.Context, int) (int64, error) { return 0, errors.New("unavailable") },
			reason: ReasonExpired, at: 4 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{answer: c.answer}
				reason, at := a.keep(t)
				require.Equal(t, c.reason, reason)
				require.Equal(t, c.at, at)
				for i := 1; i < len(a.starts); i++ {
					gap := a.starts[i] - a.starts[i-1]
					require.GreaterOrEqual(t, gap, 250*time.Millisecond, "requests follow each other without a pause")
					require.LessOrEqual(t, gap, 1250*time.Millisecond)
				}
			})
		})
	}
}

func TestErrors(t *testing.T) {
	require.ErrorIs(t, ErrStuck, ErrFatal)
	require.ErrorIs(t, ErrRunning, ErrFatal)
	require.ErrorIs(t, &LostError{Reason: ReasonExpired}, ErrTermLost)
	require.ErrorIs(t, &PanicError{Value: ErrFatal}, ErrFatal)
	require.NotErrorIs(t, &PanicError{Value: "x"}, ErrFatal)
	require.Equal(t, "term lost: expired", (&LostError{Reason: ReasonExpired}).Error())
	require.Equal(t, "panic: x", (&PanicError{Value: "x"}).Error())
}
