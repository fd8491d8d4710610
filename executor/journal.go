package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

var (
	// ErrFenced is the cause with which the context of a registration ends when
	// it is over, or can no longer be trusted.
	ErrFenced = runner.ErrFenced
	// errUnanswered is such a cause: the store was silent.
	errUnanswered = fmt.Errorf("%w: no keep-alive was answered", ErrFenced)
	// ErrStuck: work did not end when it was killed. The process must exit.
	ErrStuck = errors.New("work did not end")
)

// Registry keeps a node's registration. Its methods block, and return soon
// after their context ended.
type Registry interface {
	// Register makes the node's key anew under a lease of ttl, or of a longer
	// one that the store grants.
	Register(ctx context.Context, n state.Node, ttl time.Duration) (state.Registration, error)
	// KeepAlive renews the lease once and answers its TTL. An error that wraps
	// state.ErrNotRegistered is final; after any other the registration may stand.
	KeepAlive(ctx context.Context, reg state.Registration) (time.Duration, error)
	// Deregister ends the registration. One that is gone is no error.
	Deregister(ctx context.Context, reg state.Registration) error
}

// Payloads answers what a submitted run is to work on; nil: nothing. It asks until it
// has an answer or ctx ends. *store.Store is one.
type Payloads interface {
	GetPayload(ctx context.Context, id state.JobID, run state.RunID) ([]byte, error)
}

// HookKeeper keeps what became of hooks. It retries passing failures until its context
// ends, and is idempotent. *store.Store is one.
type HookKeeper interface {
	// NoteHook adds to a run's record what became of one of its hooks: see
	// state.HookReport. An error other than those of the store says that the record has
	// gone, or is not of that attempt.
	NoteHook(ctx context.Context, r state.HookReport) error
}

// DoubleKeeper keeps what began without a claim and was decided otherwise before it could
// be recorded. It retries passing failures until its context ends, and is idempotent.
// *store.Store is one.
type DoubleKeeper interface {
	// NoteDouble: see state.DoubleReport. An error other than those of the store says
	// that the run has no record to note it in.
	NoteDouble(ctx context.Context, r state.DoubleReport) error
}

// Journal makes starts and ends real, besides keeping the registration. Of each
// call done gets the answer, once, from another goroutine or from within the call,
// which may block until then where that is said; done does not block. Claims and
// finishes retry passing failures until their context ends, are idempotent, and are
// safe for concurrent use. After an error the outcome may be unknown, and the
// executor asks again. *store.Store is one; Waiting makes one of methods that block.
type Journal interface {
	Registry
	Keeper
	Payloads
	HookKeeper
	DoubleKeeper
	// StartClaim: see state.Claim. Where the status is Claimed, the result has the
	// whole record, with its token. It does not block. c is the journal's until
	// then.
	StartClaim(ctx context.Context, c *state.Claim, done func(state.ClaimResult, error))
	// StartFinish: see state.Finish. It may block. f is the journal's until then.
	StartFinish(ctx context.Context, f *state.Finish, done func(state.TokenStatus, error))
}

// BlockingJournal is a Journal whose callers wait.
type BlockingJournal interface {
	Registry
	Keeper
	Payloads
	HookKeeper
	DoubleKeeper
	Claim(ctx context.Context, c state.Claim) (state.ClaimResult, error)
	Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error)
}

// Waiting is j as a Journal. Claims wait in goroutines of their own. A crash in j is
// an error like others.
func Waiting(j BlockingJournal) Journal { return waiting{j} }

type waiting struct{ BlockingJournal }

func (w waiting) StartClaim(ctx context.Context, c *state.Claim, done func(state.ClaimResult, error)) {
	go func() {
		answered := false
		defer crashed(func(err error) bool {
			if !answered {
				done(state.ClaimResult{}, err)
			}
			return !answered
		})
		res, err := w.Claim(ctx, *c)
		answered = true
		done(res, err)
	}()
}

// StartFinish waits in the caller's goroutine, which is the run's own.
func (w waiting) StartFinish(ctx context.Context, f *state.Finish, done func(state.TokenStatus, error)) {
	done(w.Finish(ctx, *f))
}

// Leader is who leads. Where Address is empty nobody does, or nobody knows who.
type Leader struct {
	Name    string
	Address string
	Term    int64
}

// Leaders follows who leads. What it knows may be late.
type Leaders interface {
	// Follow is the leader as last known, with a channel that is closed when that
	// has changed. It does not block; changes between two calls are seen as one.
	Follow() (Leader, <-chan struct{})
}

// Runner does the work of an attempt. *runner.Runner is one; see its Run.
type Runner interface {
	Run(ctx context.Context, t runner.Task, out io.Writer) runner.Outcome
}

// Dial makes a client connection to a leader's address. It need not wait for
// the connection to stand. The executor closes it.
type Dial func(address string) (*grpc.ClientConn, error)
