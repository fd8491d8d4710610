package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// A run that is claimed or that ends between two reads of a page is in the answer
// all the same.
func TestListRunsMissesNoneThatGoesOn(t *testing.T) {
	for name, l := range map[string]ListRuns{
		"of a job": {Namespace: billing.Namespace, Job: billing.Name, Limit: 10},
		"newest":   {NewestFirst: true, Limit: 10},
	} {
		for _, exclusive := range []bool{true, false} {
			for _, end := range []bool{true, false} {
				for at := 1; ; at++ {
					r := newRig(t)
					rev, a := r.setJob(billing), r.register("a")
					c := claimOf(billing, rev, a, 5, exclusive)
					c.Live.Run = state.TriggerRunID(slotAt(5), 7)
					c.Pending = r.put(r.s.keys.pendingRun(billing, c.Live.Run), "")
					next := func() { r.start(c) }
					if end {
						live := r.start(c)
						next = func() { r.end(live) }
					}
					calls := 0
					reader := openStore(t, faulty.New(r.db, func(context.Context, faulty.Call) faulty.Fault {
						if calls++; calls == at {
							next()
						}
						return faulty.Fault{}
					}), r.s.Prefix())
					page, err := reader.ListRuns(t.Context(), l)
					require.NoError(t, err)
					require.Len(t, page.Runs, 1, "%s, exclusive %t, end %t, before read %d", name, exclusive, end, at)
					if calls < at {
						break
					}
				}
			}
		}
	}
}
