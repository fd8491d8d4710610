package node

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// stages are groups of loops that end one after the other, the last one first.
// A loop that fails ends the work, and with it the node.
type stages struct {
	parent context.Context //nolint:containedctx // values only; see newStages
	fail   func(error)
	all    []*stage
}

// stage is one group.
type stage struct {
	ctx   context.Context //nolint:containedctx // the group's lifetime
	group *errgroup.Group
	stop  context.CancelFunc
}

// newStages makes stages that ctx's end does not end; fail is told why one
// failed.
func newStages(ctx context.Context, fail func(error)) *stages {
	return &stages{parent: context.WithoutCancel(ctx), fail: fail}
}

// next begins a stage.
func (s *stages) next() *stage {
	ctx, stop := context.WithCancel(s.parent)
	group, ctx := errgroup.WithContext(ctx)
	st := &stage{ctx: ctx, group: group, stop: stop}
	context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			s.fail(cause)
		}
	})
	s.all = append(s.all, st)
	return st
}

// end stops the stages, the last one first, and waits for each. It answers how the
// work ended, beside which a stage's failure that ended it is not told again.
func (s *stages) end(work error) error {
	errs := []error{work}
	for _, st := range slices.Backward(s.all) {
		st.stop()
		if err := st.group.Wait(); !errors.Is(work, err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// run runs a loop of the stage.
func (st *stage) run(loop func(context.Context) error) {
	st.group.Go(func() error { return loop(st.ctx) })
}

// atEnd runs do when the stage ends.
func (st *stage) atEnd(do func() error) {
	st.group.Go(func() error {
		<-st.ctx.Done()
		return do()
	})
}
