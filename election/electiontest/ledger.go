package electiontest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leaderd/leaderd/election"
)

// Span is the time in which one term acted.
type Span struct {
	Term        int64
	Node        string
	First, Last time.Time
	Acts        int
}

// Ledger records acts of leaders. It is safe for concurrent use; the zero Ledger
// is empty.
type Ledger struct {
	mu    sync.Mutex
	spans map[int64]*Span
	errs  []error
	// forced are terms that somebody ended at etcd without asking their leaders.
	forced map[int64]bool
}

// Act enters one act of a term at the present instant if the term is trusted, and
// says whether it was.
func (l *Ledger) Act(node string, term election.Term) bool {
	now := time.Now()
	if !term.Trusted(now) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spans == nil {
		l.spans = map[int64]*Span{}
	}
	s := l.spans[term.Number]
	if s == nil {
		s = &Span{Term: term.Number, Node: node, First: now}
		l.spans[term.Number] = s
	}
	if s.Node != node {
		l.errs = append(l.errs, fmt.Errorf("term %d acted on %s and on %s", term.Number, s.Node, node))
	}
	s.Acts++
	if now.After(s.Last) {
		s.Last = now
	}
	return true
}

// Forced excuses a term whose key or lease the test takes away at etcd: its leader
// learns of that only afterwards, and fencing alone holds it back until then.
func (l *Ledger) Forced(term int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forced == nil {
		l.forced = map[int64]bool{}
	}
	l.forced[term] = true
}

// Spans are those of all terms that acted, in the order of their numbers.
func (l *Ledger) Spans() []Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Span, 0, len(l.spans))
	for _, s := range l.spans {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Span) int { return cmp.Compare(a.Term, b.Term) })
	return out
}

// Check reports every pair of successive terms of which the later acted before the
// earlier had ended, forced ones excepted, and every term that acted on two nodes.
func (l *Ledger) Check() error {
	spans := l.Spans()
	l.mu.Lock()
	errs, forced := slices.Clone(l.errs), maps.Clone(l.forced)
	l.mu.Unlock()
	for i := 1; i < len(spans); i++ {
		old, next := spans[i-1], spans[i]
		if !old.Last.Before(next.First) && !forced[old.Term] {
			errs = append(errs, fmt.Errorf("term %d on %s still acted %s after term %d on %s began",
				old.Term, old.Node, old.Last.Sub(next.First), next.Term, next.Node))
		}
	}
	return errors.Join(errs...)
}
