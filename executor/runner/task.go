package runner

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Causes with which the context of a Run ends (context.WithCancelCause). They may
// be wrapped; the text of the cause becomes Outcome.Error.
var (
	// ErrCancelled: somebody asked for the run's end. The outcome is cancelled.
	ErrCancelled = errors.New("cancelled")
	// ErrDrained: the executor is going away. The outcome is interrupted.
	ErrDrained = errors.New("executor drained")
	// ErrFenced: the attempt is not ours any more, or will soon not be. The outcome
	// is interrupted and the grace is at most Config.FenceGrace.
	ErrFenced = errors.New("fenced")
)

// ErrInvalid: what the work asked of its Keeper is not allowed.
var ErrInvalid = errors.New("not allowed")

// errTimedOut is the cause of a stop at Task.Timeout.
var errTimedOut = errors.New("timed out")

// Task is one attempt at a shard. Exactly one of Command, HTTP and NoOp is set.
type Task struct {
	Job    state.JobID
	Run    state.RunID
	Slot   time.Time // zero: the run has none
	Shard  int       // from 0, or state.ListShard
	Shards int
	// Part is what a shard of a run that is split is given; nil for another run.
	Part *state.Part
	// Step is state.StepList or state.StepShard in a run that lists its shards; empty in
	// another run.
	Step    string
	Attempt int   // from 1
	Token   int64 // the attempt's fencing token

	// Timeout stops the work that long after its start. Zero: never.
	Timeout time.Duration
	// KillGrace is the time between the soft and the hard stop of a command. Zero
	// means state.DefaultKillGrace; a negative one means none.
	KillGrace time.Duration
	// Kill, when closed, cuts the grace of a stop short. Alone it stops nothing.
	// It may be nil.
	Kill <-chan struct{}

	// Keeper keeps what the work says of itself. Nil: it can say nothing.
	Keeper Keeper
	// Checkpoint is what the job says of checkpoints. Where it is set, the work relies
	// on the Keeper; nil: it may do without.
	Checkpoint *state.CheckpointPolicy

	socket string // of the command
	// Submitted is set where a program asked for the run: Payload is what it is to work
	// on, and what it leaves is Outcome.Result.
	Submitted bool
	Payload   []byte

	// Chain tells of the runs after which this one was made.
	Chain state.Chain
	// After is set for a hook: how the run ended that it follows. The rest of the task is
	// the run's last attempt.
	After *HookOf

	Command *state.Command
	HTTP    *state.HTTP
	NoOp    bool
}

// HookOf is what a hook is told of the verdict that it follows.
type HookOf struct {
	Hook    state.HookName
	State   state.RunState
	Reason  string
	Error   string
	Code    int // valid when HasCode
	HasCode bool
}

// exitCode is the code as a text, empty where there is none.
func (h *HookOf) exitCode() string {
	if !h.HasCode {
		return ""
	}
	return strconv.Itoa(h.Code)
}

// upstream are the runs after which this one was made, as commands and servers are told
// them: job/run/state, with commas between.
func (t *Task) upstream() string {
	parts := make([]string, len(t.Chain.Upstream))
	for i, u := range t.Chain.Upstream {
		parts[i] = u.Job + "/" + string(u.Run) + "/" + u.State.String()
	}
	return strings.Join(parts, ",")
}

// Keeper keeps what an attempt says of itself while it runs. Its methods may be called
// concurrently, and answer an error once the attempt is over.
type Keeper interface {
	// Checkpoint answers the last checkpoint of the shard that was accepted; the zero
	// value means that there is none. It blocks until the store has answered, or ctx
	// ends.
	Checkpoint(ctx context.Context) (state.SavedCheckpoint, error)
	// Save makes data the last checkpoint, and blocks until that is stored, or ctx ends.
	// The error wraps ErrFenced where the attempt is no longer the run's; the work is
	// then being stopped. It wraps state.ErrCheckpointChanged where another run has
	// replaced the checkpoint that this attempt has read, and ErrInvalid where data is
	// too large. After any other the outcome may be unknown, and to save again is safe.
	Save(ctx context.Context, data []byte) error
	// Report notes how far the work has come: Done, Total and Message are read. It does
	// not block. The error wraps ErrInvalid where these are not allowed.
	Report(p state.Progress) error
}

// Outcome is how an attempt ended.
type Outcome struct {
	// State is one of succeeded, failed, timed_out, cancelled and interrupted.
	State state.RunState
	// ExitCode is the command's, 128+n when signal n killed it, or the HTTP status.
	// It is valid when HasCode.
	ExitCode int
	HasCode  bool
	// Error says in words what went wrong, in at most state.MaxErrorBytes. It is
	// empty for succeeded, and for no other state.
	Error string
	// Started and Ended are this machine's wall clock. Of an attempt that was never
	// started both are the time of the refusal.
	Started time.Time
	Ended   time.Time
	// Crashed is set where a signal killed the command, or the work panicked.
	Crashed bool
	// Directive is what the work says of what shall follow: of an HTTP request that
	// failed, the Retry-After of its answer.
	Directive state.Directive
	// OutputErr is the first error of the output's writer, nil if there was none.
	// What came after it is dropped; the work goes on.
	OutputErr error
	// Result is what a submitted run left, where it succeeded, and Unkept why that is
	// not kept.
	Result []byte
	Unkept string
}

// stopped is the outcome that the cause of a stop demands.
func (o *Outcome) stopped(t *Task, cause error) {
	switch {
	case errors.Is(cause, errTimedOut):
		o.State, o.Error = state.StateTimedOut, "timed out after "+t.Timeout.String()
	case errors.Is(cause, ErrCancelled):
		o.State, o.Error = state.StateCancelled, cause.Error()
	default:
		o.State, o.Error = state.StateInterrupted, cause.Error()
	}
}

func (o *Outcome) fail(err error) { o.State, o.Error = state.StateFailed, err.Error() }
