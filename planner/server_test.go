package planner

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// sentTo is the executor's end of a session's stream.
type sentTo struct {
	workerv1.LeaderService_AttendServer
	mu     sync.Mutex
	pulses int
}

func (s *sentTo) Send(m *workerv1.AttendResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.GetPulse() != nil {
		s.pulses++
	}
	return nil
}

func (s *sentTo) got() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pulses
}

// A loop whose turn takes long must not lose its executors, which would attend
// anew and give it more to do yet; one that is stuck must.
func TestPulsesDoNotWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Planner{cfg: Config{}.WithDefaults()}
		tm := &term{Planner: p, over: make(chan struct{})}
		tm.beat.Store(time.Now().UnixMicro())
		s, stream := newSession(state.Owner{Node: "a", Revision: 1}), &sentTo{}
		heard := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- send(ctx, tm, s, stream, heard) }()
		wait := func(d time.Duration) {
			for range d / time.Second {
				heard <- struct{}{}
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		wait(3 * time.Second)
		require.Zero(t, stream.got(), "nothing before the welcome")
		require.True(t, s.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Welcome{}}))
		wait(10 * time.Second)
		require.InDelta(t, 10, stream.got(), 1, "the loop is busy")
		wait(20 * time.Second)
		require.InDelta(t, maxTurn.Seconds()-3, stream.got(), 1, "the loop is stuck")
		tm.beat.Store(time.Now().UnixMicro())
		was := stream.got()
		wait(5 * time.Second)
		require.InDelta(t, was+5, stream.got(), 1)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}
