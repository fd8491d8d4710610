package journal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/journal"
	server "github.com/leaderd/leaderd/internal/journal"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// An executor that speaks only gRPC takes a run through all of its attempts to its
// verdict, also where the run was first claimed under another overlap policy than
// its job has by then: the record stays where it was, and the executor is told.
func TestFurtherAttemptUnderAnotherPolicy(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("first at the gate: %t", first), func(t *testing.T) {
			db := memkv.New()
			t.Cleanup(db.Close)
			st, err := store.New(db, store.Config{})
			require.NoError(t, err)
			t.Cleanup(st.Close)
			client := newClient(t, journal.Config{}, newControl(t, st, server.Config{}))
			put, err := st.PutJob(t.Context(), store.PutJob{
				ID: job, AllowMissing: true, Actor: "anna", Now: due,
				Spec: &leaderdv1.JobSpec{Schedules: []string{"@every 1s"}, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}},
			})
			require.NoError(t, err)
			reg, err := client.Register(t.Context(), state.Node{Name: "remote", Executor: true, Capacity: 1}, 10*time.Second)
			require.NoError(t, err)

			claim := claimOf(job, put.Entry.Job.Revision, reg.Owner, 0)
			for attempt := 1; attempt <= 3; attempt++ {
				claim.Exclusive = first == (attempt == 1)
				claim.Live.Attempt = attempt
				res, err := client.Claim(t.Context(), claim)
				require.NoError(t, err)
				require.Equal(t, state.Claimed, res.Status, res.Status.String())
				require.Equal(t, first, res.Live.Exclusive)
				again, err := client.Claim(t.Context(), claim)
				require.NoError(t, err)
				require.Equal(t, res, again, "asked again")
				end := finishOf(*res.Live)
				if attempt < 3 {
					end.Attempt.State, end.Retry = state.StateFailed, due.Add(time.Minute)
				}
				status, err := client.Finish(t.Context(), end)
				require.NoError(t, err)
				require.Equal(t, state.TokenStored, status)
				if attempt < 3 {
					waiting, err := st.LiveOf(t.Context(), job, claim.Live.Run)
					require.NoError(t, err)
					require.Len(t, waiting, 1)
					claim.Token = waiting[0].Token
				}
			}
			run, err := st.GetRun(t.Context(), job, claim.Live.Run)
			require.NoError(t, err)
			require.Equal(t, state.StateSucceeded, run.Record.State)
			next := claimOf(job, put.Entry.Job.Revision, reg.Owner, 1)
			next.Exclusive, next.ApplyOverlap = true, true
			res, err := client.Claim(t.Context(), next)
			require.NoError(t, err)
			require.Equal(t, state.Claimed, res.Status, "the gate is free again")
			end := finishOf(*res.Live)
			_, err = client.Finish(t.Context(), end)
			require.NoError(t, err)
		})
	}
}
