package executor

import (
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// slot is an entry for an instant.
func slot(ref uint32, due time.Time) *workerv1.Entry {
	return &workerv1.Entry{Ref: ref, Due: due.UnixMicro()}
}

// soon is a whole second, some seconds ahead.
func soon(d time.Duration) time.Time { return time.Now().Truncate(time.Second).Add(d) }

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func until(at time.Time) {
	pass(time.Until(at))
}

// pass lets time go by and waits for what then happens.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// noop is a spec that runs nothing.
func noop(ref uint32, change func(*state.JobSpec)) []*workerv1.Spec {
	js := state.JobSpec{NoOp: true, Overlap: state.OverlapAllow}
	if change != nil {
		change(&js)
	}
	return []*workerv1.Spec{{Ref: ref, Namespace: "ns", Job: "job", JobRevision: 7, Generation: 3, Spec: codec.SpecToProto(&js)}}
}
