package codec

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// retryToProto writes the part of a spec that says what follows an attempt that went
// wrong.
func retryToProto(s *state.JobSpec, p *leaderdv1.JobSpec) {
	p.RunTimeout, p.QueueTimeout = durationOf(s.RunTimeout), durationOf(s.QueueTimeout)
	if d := s.DeadLetter; d != nil {
		p.DeadLetter = &leaderdv1.DeadLetterPolicy{Keep: int32(d.Keep)} //nolint:gosec // bounded by MaxDeadLetters
	}
	if r := s.Retry; r != nil {
		p.Retry = &leaderdv1.Retry{
			MaxAttempts:    int32(r.MaxAttempts), //nolint:gosec // bounded by MaxAttempts
			InitialBackoff: durationOf(r.InitialBackoff),
			Factor:         r.Factor,
			MaxBackoff:     durationOf(r.MaxBackoff),
			Jitter:         r.Jitter,
			RetryOn:        r.RetryOn,
			GiveUpOn:       r.GiveUpOn,
		}
	}
}

// retryFromProto is the inverse of retryToProto.
func retryFromProto(p *leaderdv1.JobSpec, s *state.JobSpec) {
	s.RunTimeout, s.QueueTimeout = p.GetRunTimeout().AsDuration(), p.GetQueueTimeout().AsDuration()
	if d := p.GetDeadLetter(); d != nil {
		s.DeadLetter = &state.DeadLetterPolicy{Keep: int(d.GetKeep())}
	}
	if r := p.GetRetry(); r != nil {
		s.Retry = &state.Retry{
			MaxAttempts:    int(r.GetMaxAttempts()),
			InitialBackoff: r.GetInitialBackoff().AsDuration(),
			Factor:         r.GetFactor(),
			MaxBackoff:     r.GetMaxBackoff().AsDuration(),
			Jitter:         r.Jitter,
			RetryOn:        r.GetRetryOn(),
			GiveUpOn:       r.GetGiveUpOn(),
		}
	}
}

// durationOf is nil for 0, which is not set.
func durationOf(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
