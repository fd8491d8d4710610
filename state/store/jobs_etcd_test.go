package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// TestOnEtcd is scenario E01, and once each of the transactions, on the real
// thing.
func TestOnEtcd(t *testing.T) {
	ctx := t.Context()
	db := etcdkv.New(etcdtest.Start(t).Client(), etcdkv.Options{})
	cron, cron2 := openStore(t, db, "/cron/"), openStore(t, db, "/cron-2/")

	names := []string{"a", "ab", "a-b", "a/b"}
	for _, s := range []*Store{cron, cron2} {
		for _, name := range names {
			id := state.JobID{Namespace: "default", Name: name}
			_, err := s.PutJob(ctx, putOf(id, specOf("@daily")))
			require.NoError(t, err)
			_, err = s.PutPending(ctx, state.Pending{Job: id, Run: state.TriggerRunID(noon, 1), Requested: noon})
			require.NoError(t, err)
			writeRecord(t, s, id, noonRun, state.Record{State: state.StateSucceeded, Due: noon})
		}
	}
	a := state.JobID{Namespace: "default", Name: "a"}
	runs, err := cron.ListRuns(ctx, ListRuns{Namespace: "default", Job: "a", Limit: 100})
	require.NoError(t, err)
	require.Len(t, runs.Runs, 2)
	require.NoError(t, cron.DeleteJob(ctx, ChangeJob{ID: a}))
	for s, want := range map[*Store]int{cron: 3, cron2: 4} {
		page, err := s.ListJobs(ctx, ListJobs{Limit: 100})
		require.NoError(t, err)
		require.Len(t, page.Jobs, want)
		runs, err := s.ListRuns(ctx, ListRuns{Limit: 100})
		require.NoError(t, err)
		require.Len(t, runs.Runs, 8)
	}

	// More versions than are kept, seen by a cache that is asked to be fresh.
	cache := cron.JobsCache()
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- cache.Run(running) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()
	for i := range state.MaxVersionsKept + 3 {
		_, err := cron.PutJob(ctx, putOf(billing, specOf(fmt.Sprintf("@every %dm", i+1))))
		require.NoError(t, err)
		page, err := cache.ListJobs(ctx, ListJobs{Limit: 100})
		require.NoError(t, err)
		require.EqualValues(t, i+1, page.Jobs[3].Job.Generation)
	}
	versions, err := cron.ListVersions(ctx, billing, 0, 1000)
	require.NoError(t, err)
	require.Len(t, versions, state.MaxVersionsKept)

	for i := range 100 {
		at := noon.Add(time.Duration(i) * time.Minute)
		write(t, cron, cron.keys.activeShard(billing, state.SlotRunID(at), 0), codec.LiveToProto(&state.Live{
			Run: state.SlotRunID(at), State: state.StateRunning,
		}))
	}
	runs, err = cron.ListRuns(ctx, ListRuns{Namespace: "default", Job: "billing", Limit: 99})
	require.NoError(t, err)
	require.Len(t, runs.Runs, 99, "a transaction reads many runs")
	require.True(t, runs.More)

	first, err := cron.Register(ctx, state.Node{Name: "n1"}, 5*time.Second)
	require.NoError(t, err)
	second, err := cron.Register(ctx, state.Node{Name: "n1"}, 5*time.Second)
	require.NoError(t, err)
	_, err = cron.KeepAliveNode(ctx, first)
	require.ErrorIs(t, err, state.ErrNotRegistered)
	_, err = cron.KeepAliveNode(ctx, second)
	require.NoError(t, err)
	require.NoError(t, cron.Deregister(ctx, second))
}
