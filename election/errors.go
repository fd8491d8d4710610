package election

import (
	"errors"
	"fmt"
)

var (
	// ErrFatal, wrapped by the error of a lead function, ends Run with that error
	// after the term was resigned. Every error that Run returns wraps it.
	ErrFatal = errors.New("fatal to the elector")

	// ErrStuck ends Run when the work of a term did not return within
	// Config.StopLimit of the term's end. The work may go on for all Run knows, so
	// the process must exit. It wraps ErrFatal.
	ErrStuck = fmt.Errorf("leader work did not stop: %w", ErrFatal)

	// ErrRunning answers a Run while another Run of the same Elector is under way.
	// It wraps ErrFatal.
	ErrRunning = fmt.Errorf("elector already runs: %w", ErrFatal)

	// ErrTermLost is what every *LostError is.
	ErrTermLost = errors.New("term lost")

	// errWorkFailed ends a tenure whose term's work failed or panicked.
	errWorkFailed = errors.New("leader work failed")

	// errNotElected is a victory reported by Campaign that the keys do not bear out.
	errNotElected = errors.New("first key of the election is not this session's")
)

// Reason says why a term ended otherwise than by a resignation. Its values are
// labels of leaderd_election_terms_lost_total.
type Reason string

const (
	// ReasonExpired: no keep-alive was answered in time, so the lease could soon
	// expire at etcd.
	ReasonExpired Reason = "expired"
	// ReasonLeaseGone: etcd no longer knows the lease.
	ReasonLeaseGone Reason = "lease_gone"
	// ReasonKeyGone: the leader's key was deleted or replaced by somebody else, or
	// with its lease.
	ReasonKeyGone Reason = "key_gone"
	// ReasonFailed: the work returned an error.
	ReasonFailed Reason = "failed"
	// ReasonPanicked: the work panicked.
	ReasonPanicked Reason = "panicked"
	// ReasonStuck: the work did not stop in time.
	ReasonStuck Reason = "stuck"
)

var reasons = []Reason{ReasonExpired, ReasonLeaseGone, ReasonKeyGone, ReasonFailed, ReasonPanicked, ReasonStuck}

// LostError is the cause with which the context of a lost term is cancelled. It
// is ErrTermLost to errors.Is.
type LostError struct {
	Reason Reason
}

func (e *LostError) Error() string { return fmt.Sprintf("%v: %s", ErrTermLost, e.Reason) }

// Unwrap returns ErrTermLost.
func (e *LostError) Unwrap() error { return ErrTermLost }

// PanicError is a panic of a lead function, as an error.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic where that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
