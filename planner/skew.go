package planner

import (
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

const (
	// skewLimit is how far an executor's clock may be from the leader's before that
	// is told.
	skewLimit = time.Second
	// skewStep is by how much it changes before the leader's loop is told.
	skewStep = 100 * time.Millisecond
	// skewTold is how long it is not told again of one executor.
	skewTold = time.Minute
)

// skew is how far an executor's clock is ahead of the leader's, from the pulses of
// one session. A pulse was on its way for a while, by which its clock seems behind:
// of several in a row the one that seems furthest ahead is nearest to the truth.
// The zero value is ready.
type skew struct {
	seen [5]time.Duration
	n    int
}

// add takes in the clock of a pulse that came at now; ok is false until there are
// enough of them.
func (s *skew) add(clock, now time.Time) (ahead time.Duration, ok bool) {
	s.seen[s.n%len(s.seen)] = clock.Sub(now)
	s.n++
	ahead = s.seen[0]
	for _, d := range s.seen[:min(s.n, len(s.seen))] {
		ahead = max(ahead, d)
	}
	return ahead, s.n >= len(s.seen)
}

// setSkew notes how far the clock of an executor is ahead.
func (t *term) setSkew(s *session, ahead time.Duration, now time.Time) {
	s.ahead = ahead
	greatest := time.Duration(0)
	for _, other := range t.sessions {
		greatest = max(greatest, other.ahead.Abs())
	}
	t.metrics.skew.Set(greatest.Seconds())
	if ahead.Abs() <= skewLimit || t.sessions[s.owner.Node] != s || now.Sub(s.skewTold).Abs() < skewTold {
		return
	}
	s.skewTold = now
	t.cfg.Logger.Warn("executor's clock differs from the leader's: its starts are early or late by as much; set both by a time service",
		"node", s.owner.Node, "ahead", ahead.Round(time.Millisecond))
}

// wrongClocks are the executors whose clocks differ by more than skewLimit.
func (t *term) wrongClocks() []state.ClockSkew {
	var wrong []state.ClockSkew
	for name, s := range t.sessions {
		if s.ahead.Abs() > skewLimit {
			wrong = append(wrong, state.ClockSkew{Node: name, Ahead: s.ahead})
		}
	}
	slices.SortFunc(wrong, func(a, b state.ClockSkew) int { return strings.Compare(a.Node, b.Node) })
	return wrong
}

// compareClocks tells if the leader before wrote the watermark at an instant that
// has not come yet by this node's clock.
func (t *term) compareClocks(written, now time.Time) {
	if ahead := written.Sub(now); ahead > skewLimit {
		t.cfg.Logger.Warn("this node's clock is behind that of the leader before; set both by a time service",
			"ahead", ahead.Round(time.Millisecond))
	}
}
