package planner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/leaderd/leaderd/state"
)

// maxTasks is how many store operations of a term are under way at a time.
const maxTasks = 128

// errPanic: a part of the leader's work panicked.
var errPanic = errors.New("panic")

// safely is do, with a panic as an error.
func safely(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, v, debug.Stack())
		}
	}()
	return do()
}

// goSafely runs a part of the term's work. Its panic ends the term, as its error
// does, and not the process, which may be an executor too.
func (t *term) goSafely(do func() error) {
	t.group.Go(func() error { return safely(do) })
}

// post hands the loop something to do. It answers false when the term is over.
func (t *term) post(ctx context.Context, do func()) bool {
	select {
	case t.posted <- do:
		return true
	case <-t.over:
	case <-ctx.Done():
	}
	return false
}

// task runs a store operation beside the loop; what it answers is run in the
// loop. Tasks beyond maxTasks wait their turn.
func (t *term) task(do func(context.Context) func()) {
	t.queue = append(t.queue, do)
	t.startTasks()
}

func (t *term) startTasks() {
	for t.running < maxTasks && len(t.queue) > 0 {
		do := t.queue[0]
		t.queue[0] = nil
		t.queue = t.queue[1:]
		t.running++
		t.goSafely(func() error {
			then := do(t.ctx)
			t.post(t.ctx, func() {
				t.running--
				then()
				t.startTasks()
			})
			return nil
		})
	}
}

// fail ends the term.
func (t *term) fail(err error) { t.group.Go(func() error { return err }) }

// later runs do in the loop after d.
func (t *term) later(d time.Duration, do func()) {
	t.goSafely(func() error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			t.post(t.ctx, do)
		case <-t.ctx.Done():
		}
		return nil
	})
}

// checkErr ends the term where err says that it is over, and logs other errors.
func (t *term) checkErr(what string, err error) {
	switch {
	case err == nil || t.ctx.Err() != nil:
	case errors.Is(err, state.ErrTermLost):
		t.fail(err)
	default:
		t.cfg.Logger.Warn("store operation is tried again", "what", what, "err", err)
	}
}
