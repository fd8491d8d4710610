package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state/codec"
)

const (
	reportDelay = 5 * time.Millisecond
	reportBatch = 256
	// reportSoft is how many reports may wait before no more of the plan is read:
	// answers from memory come in hundreds of thousands at a takeover.
	reportSoft = 1 << 16
	// reportHard is how many may wait at all. A leader that takes none for so
	// long has lost its worth; a new session resyncs.
	reportHard = 1 << 18
	// reportLarge is how many go in one message when many wait.
	reportLarge = 4096
)

// errReports ends a session whose leader does not take its reports.
var errReports = errors.New("too many reports wait for the leader")

// progress is a workerv1.Progress before it is sent.
type progress struct {
	ref      uint32
	due      int64 // nanoseconds
	run      string
	shard    int32
	attempt  int32
	step     workerv1.Progress_Step
	lateness time.Duration
	state    uint32

	limit     int32
	notBefore time.Time
	lack      string
	limitKey  string
}

// reports are what a session has to tell. To add one never blocks.
type reports struct {
	mu      sync.Mutex
	waiting []progress
	spare   []progress

	some  chan struct{} // the first of a batch is there
	many  chan struct{} // a batch is full
	taken chan struct{} // few are left
	end   context.CancelCauseFunc
}

func newReports(end context.CancelCauseFunc) *reports {
	return &reports{
		some:  make(chan struct{}, 1),
		many:  make(chan struct{}, 1),
		taken: make(chan struct{}, 1),
		end:   end,
	}
}

func (r *reports) add(p progress) {
	r.mu.Lock()
	n := len(r.waiting) + 1
	if n <= reportHard {
		r.waiting = append(r.waiting, p)
	}
	r.mu.Unlock()
	switch n {
	case 1:
		signal(r.some)
	case reportBatch:
		signal(r.many)
	case reportHard + 1:
		r.end(errReports)
	}
}

// take answers all that wait. They are valid until the next call.
func (r *reports) take() []progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.waiting
	r.waiting, r.spare = r.spare[:0], batch
	if cap(batch) > reportSoft {
		r.spare = nil // a rare burst need not stay in memory
	}
	signal(r.taken)
	return batch
}

// settle blocks while more than reportSoft wait.
func (r *reports) settle(ctx context.Context) error {
	for {
		r.mu.Lock()
		n := len(r.waiting)
		r.mu.Unlock()
		if n <= reportSoft {
			return nil
		}
		select {
		case <-r.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// message makes a report of the batch.
func message(batch []progress) *workerv1.AttendRequest {
	values := make([]workerv1.Progress, len(batch))
	list := make([]*workerv1.Progress, len(batch))
	for i := range batch {
		p, v := &batch[i], &values[i]
		v.Ref, v.Due, v.Run, v.Shard = p.ref, p.due/int64(time.Microsecond), p.run, p.shard
		v.Attempt, v.Limit, v.NotBefore, v.Lack = p.attempt, p.limit, codec.Micros(p.notBefore), p.lack
		v.LimitKey = p.limitKey
		v.Step, v.Lateness, v.State = p.step, p.lateness.Microseconds(), p.state
		list[i] = v
	}
	return &workerv1.AttendRequest{Kind: &workerv1.AttendRequest_Report{Report: &workerv1.Report{Progress: list}}}
}

// signal leaves a token in a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
