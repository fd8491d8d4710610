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
//
// Many slots are due at one instant, and a run's end costs far more than its
// start. So work that is over lets all start that are due, before its end is
// stored.
type starts struct {
	wall func() int64
	wake chan struct{} // of one: an earlier slot was added
	// begin takes a run from its slot to its end, in a goroutine of its own. It
	// looks itself whether the work may begin.
	begin func(*run)

	mu      sync.Mutex
	waiting minheap.Heap[*run] // by due
	over    bool
	due     uint64 // how many runs came to their slots
	begun   uint64 // how many of them have begun
	crowds  []crowd
}

// crowd are runs that are over, and wait until as many have begun as were due.
type crowd struct {
	due  uint64
	free chan struct{}
}

// add lets a run wait for its slot.
func (s *starts) add(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		s.release(r)
		return
	}
	s.waiting.Push(r.start(), r)
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
		timer.Reset(min(max(time.Duration(s.next(now)-now), 0), tick))
		select {
		case <-ctx.Done():
			s.end()
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// next begins what is due by now, and answers when to look again.
func (s *starts) next(now int64) (at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() > 0 {
		if s.waiting.Top().Key > now && !mutant.Off(mutant.Early) {
			return s.waiting.Top().Key
		}
		s.release(s.waiting.Pop().Val)
	}
	return now + int64(tick)
}

// end begins all that wait, and lets nothing wait any more.
func (s *starts) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for s.waiting.Len() > 0 {
		s.release(s.waiting.Pop().Val)
	}
}

// release begins a run.
func (s *starts) release(r *run) {
	s.due++
	go s.begin(r)
}

// began counts a run that release began: its work begins now, or will not.
func (s *starts) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	for len(s.crowds) > 0 && s.crowds[0].due <= s.begun {
		close(s.crowds[0].free)
		s.crowds = s.crowds[1:]
	}
}

// yield waits until as many runs have begun as are due by now.
func (s *starts) yield() {
	s.mu.Lock()
	if s.begun >= s.due {
		s.mu.Unlock()
		return
	}
	if n := len(s.crowds); n == 0 || s.crowds[n-1].due < s.due {
		s.crowds = append(s.crowds, crowd{s.due, make(chan struct{})})
	}
	free := s.crowds[len(s.crowds)-1].free
	s.mu.Unlock()
	<-free
}
