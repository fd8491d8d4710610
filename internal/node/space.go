package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/internal/etcd"
	"github.com/leaderd/leaderd/internal/ops"
	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
)

// lookForRoom is how often a control node asks whether etcd is full.
const lookForRoom = 10 * time.Second

// errFull: etcd takes no writes.
var errFull = errors.New("etcd is full and refuses writes (NOSPACE): no run starts; see docs/operations.md")

// room knows how full etcd is.
type room struct {
	client *clientv3.Client
	member *etcd.Server // nil: etcd runs elsewhere
	full   atomic.Bool
}

// run looks whether etcd is full, and where it is in this process sees to that it is
// not, until ctx ends.
func (r *room) run(ctx context.Context) error {
	for {
		// That it cannot be asked is told by those who need it.
		if s, err := etcd.Space(ctx, r.client); err == nil {
			r.full.Store(s.Full)
		}
		timer := time.NewTimer(lookForRoom)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (r *room) check() ops.Check {
	return ops.Check{Name: "etcd space", Func: func(time.Time) error {
		if r.full.Load() {
			return errFull
		}
		return nil
	}}
}

// sources is what the planner asks.
func (r *room) sources(s planner.Sources) planner.Sources {
	s.Space = func(ctx context.Context) (state.Space, error) { return etcd.Space(ctx, r.client) }
	if r.member != nil {
		s.Reclaim = r.member.Compact
	}
	return s
}
