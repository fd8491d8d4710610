package executor

import (
	"context"
	"sync"
	"time"

	"github.com/leaderd/leaderd/internal/minheap"
	"github.com/leaderd/leaderd/internal/mutant"
)

// starts are the claimed runs that wait for their slots. One timer serves them
// all, and a run has no goroutine of its own before its slot.
type starts struct {
	wall func() int64
	wake chan struct{} // of one: an earlier slot was added
	// begin takes a run from its slot to its end, in a goroutine of its own. It
	// looks itself whether the work may begin.
	begin func(*run)

	mu      sync.Mutex
	waiting minheap.Heap[*run] // by due
	over    bool
}

// add lets a run wait for its slot.
func (s *starts) add(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		go s.begin(r)
		return
	}
	s.waiting.Push(r.plan.due, r)
	if s.waiting.Top().Val == r {
		signal(s.wake)
	}
}

// run begins each run when the wall clock shows its slot, until ctx ends; then it
// begins those that wait, at once, which are to find out. It looks at the clock each
// second, so that it sees when that is set.
func (s *starts) run(ctx context.Context) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		now := s.wall()
		timer.Reset(min(max(time.Duration(s.due(now)-now), 0), tick))
		select {
		case <-ctx.Done():
			s.end()
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// due begins what is due by now, and answers when to look again.
func (s *starts) due(now int64) (next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() > 0 {
		if s.waiting.Top().Key > now && !mutant.Off(mutant.Early) {
			return s.waiting.Top().Key
		}
		go s.begin(s.waiting.Pop().Val)
	}
	return now + int64(tick)
}

// end begins all that wait, and lets nothing wait any more.
func (s *starts) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for s.waiting.Len() > 0 {
		go s.begin(s.waiting.Pop().Val)
	}
}
