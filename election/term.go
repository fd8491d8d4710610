package election

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Term is one leadership, from its verified victory to its end. It is a value:
// copies share the same trust. Its methods never block and are safe for
// concurrent use. The zero Term is never trusted.
type Term struct {
	// Term holds the fencing number, which rises from leader to leader, and the
	// key whose CreateRevision it is.
	state.Term

	trust *trust
}

// Trusted says whether the term still holds at now, which must carry a monotonic
// reading of this process. Look before each act of a leader; what must not happen
// twice compares Number in its write as well. False for ever once the term was
// lost or resigned.
func (t Term) Trusted(now time.Time) bool {
	return t.trust != nil && now.Before(t.trust.deadline())
}

// Deadline is the instant up to which the term is trusted so far; each answered
// keep-alive moves it. It lies in the past once the term has ended, and is the
// zero time for the zero Term.
func (t Term) Deadline() time.Time {
	if t.trust == nil {
		return time.Time{}
	}
	return t.trust.deadline()
}

// ended is the offset of a trust that is over. It is far enough in the past for
// every clock and near enough for time arithmetic.
const ended = math.MinInt64 / 2

// trust is a deadline that moves forward until it is ended for good.
type trust struct {
	base   time.Time    // carries the monotonic reading
	offset atomic.Int64 // of the deadline from base, in nanoseconds
}

func newTrust(start time.Time, d time.Duration) *trust {
	t := &trust{base: start}
	t.offset.Store(int64(d))
	return t
}

func (t *trust) deadline() time.Time { return t.base.Add(time.Duration(t.offset.Load())) }

// extend moves the deadline to the given instant; never back, and not at all once
// it has passed or was ended: what was lost stays lost.
func (t *trust) extend(now, deadline time.Time) {
	to := int64(deadline.Sub(t.base))
	for {
		old := t.offset.Load()
		if old >= to || int64(now.Sub(t.base)) >= old || t.offset.CompareAndSwap(old, to) {
			return
		}
	}
}

func (t *trust) end() { t.offset.Store(ended) }

// watch blocks until the deadline has passed, and then calls expired, or until
// ctx ends.
func (t *trust) watch(ctx context.Context, expired func()) {
	timer := time.NewTimer(time.Until(t.deadline()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		left := time.Until(t.deadline())
		if left <= 0 {
			expired()
			return
		}
		timer.Reset(left)
	}
}
