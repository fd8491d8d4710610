package executor

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// crowdRig are starts whose runs begin when the test says so.
type crowdRig struct {
	starts
	through atomic.Int32 // how many calls of yield have returned
}

func newCrowdRig() *crowdRig {
	r := &crowdRig{}
	r.starts = starts{
		wall: func() int64 { return time.Now().UnixNano() }, wake: make(chan struct{}, 1),
		begin: func(*run) {},
	}
	return r
}

// come lets n more runs come to their slots.
func (r *crowdRig) come(n int) {
	now := r.wall()
	for range n {
		r.add(&run{live: &state.Live{}, plan: &plan{due: now, start: now}})
	}
	r.next(now)
}

// start begins n of them.
func (r *crowdRig) start(n int) {
	for range n {
		r.began()
	}
	synctest.Wait()
}

// over is a run that ends now, and yields.
func (r *crowdRig) over() {
	go func() {
		r.yield()
		r.through.Add(1)
	}()
	synctest.Wait()
}

func (r *crowdRig) free() int { return int(r.through.Load()) }

func TestYieldReturnsWhereNothingIsDue(t *testing.T) {
	bubble(t, func(*testing.T) {
		r := newCrowdRig()
		r.yield()
		r.come(3)
		r.start(3)
		r.yield()
		require.Empty(t, r.crowds)
	})
}

// Who yields waits for those that were due by then, and for no later ones.
func TestYieldWaitsForThoseDueBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCrowdRig()
		r.come(3)
		r.start(1)
		r.over()
		r.over()
		r.start(1)
		require.Zero(t, r.free())
		r.come(100)
		r.over()
		r.start(1)
		require.Equal(t, 2, r.free(), "a late crowd does not keep them")
		r.start(99)
		require.Equal(t, 2, r.free())
		r.start(1)
		require.Equal(t, 3, r.free())
		require.Empty(t, r.crowds)
	})
}

// The end begins all that wait, so nobody yields for ever.
func TestTheEndOfStartsFreesWhoYields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCrowdRig()
		r.begin = func(*run) { r.began() }
		r.add(&run{live: &state.Live{}, plan: &plan{due: r.wall() + int64(time.Hour), start: r.wall() + int64(time.Hour)}})
		r.over()
		require.Equal(t, 1, r.free(), "what is not due yet keeps nobody")
		r.begin = func(*run) {} // is held up on its way
		r.come(1)
		r.over()
		require.Equal(t, 1, r.free())
		r.begin = func(*run) { r.began() }
		r.end()
		synctest.Wait()
		r.start(1) // the one that was held up
		require.Equal(t, 2, r.free())
		r.add(&run{}) // comes after the end, and begins at once
		synctest.Wait()
		require.Equal(t, r.due, r.begun)
	})
}

// Whatever comes, begins and ends in whatever order: a yield returns exactly when
// as many have begun as were due when it was called.
func TestYieldIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.IntRange(-2, 5), 0, 60).Draw(rt, "acts")
		bubble(t, func(*testing.T) {
			r := newCrowdRig()
			due, begun := 0, 0
			var waits []int
			check := func() {
				free := 0
				for _, until := range waits {
					if until <= begun {
						free++
					}
				}
				require.Equal(rt, free, r.free())
			}
			for _, act := range acts {
				switch act {
				case -2:
					waits = append(waits, due)
					r.over()
				case -1:
					n := min(1, due-begun)
					begun += n
					r.start(n)
				default:
					due += act
					r.come(act)
				}
				check()
			}
			r.start(due - begun)
			begun = due
			check()
		})
	})
}

// A run that had waited for others may be split by a version of its job with another
// jitter than the one that made it due: its shards start when it is due.
func TestShardsStartWhenTheirRunIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		slot := soon(2 * time.Second)
		due := slot.Add(3 * time.Second)
		r.journal.set(func() {
			r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
				c.Live.Due = due.UTC()
				return r.journal.grant(c), nil
			}
		})
		l.plan(noop(1, nil), &workerv1.Entry{Ref: 1, Due: slot.UnixMicro(), Shard: 1, Shards: 2, Split: true, Begun: true})
		until(due.Add(-time.Millisecond))
		require.Len(t, r.journal.claimed(), 1)
		require.Empty(t, r.work.started())
		until(due)
		require.Len(t, r.work.started(), 1)
		r.close()
	})
}
