package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/internal/etcd"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

const (
	// savingRuns save at the same time, each one checkpoint after another.
	savingRuns = 256
	savedBytes = 1 << 10
)

// checkpoints measures how many checkpoints a second the store of a node with embedded
// etcd takes.
func checkpoints(ctx context.Context, s *settings) (rows []row, err error) {
	raw, err := rawRate(ctx, s, true)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "leaderd-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := base(dir)
	memberCtx, stop := context.WithCancel(ctx)
	member := etcd.New(cfg.Name, dir, cfg.Etcd, hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr}))
	ended := make(chan error, 1)
	go func() { ended <- member.Run(memberCtx) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	select {
	case <-member.Ready():
	case err := <-ended:
		ended <- nil
		return nil, err
	}
	perSecond, err := saveFor(ctx, member.KV(), s.duration)
	if err != nil {
		return nil, err
	}
	return []row{{
		"checkpoints/s of 1 KiB, embedded etcd", "–", fmt.Sprintf("%.0f, by %d runs", perSecond, savingRuns),
		fmt.Sprintf("raw puts %.0f, two of them a checkpoint", raw),
	}}, nil
}

func saveFor(ctx context.Context, db kv.KV, d time.Duration) (perSecond float64, err error) {
	if err := awaitStore(ctx, db); err != nil {
		return 0, err
	}
	st, err := store.New(db, store.Config{})
	if err != nil {
		return 0, err
	}
	defer st.Close()
	now := time.Now()
	id := state.JobID{Namespace: "default", Name: "saves"}
	job, err := st.PutJob(ctx, store.PutJob{ID: id, AllowMissing: true, Now: now, Spec: &leaderdv1.JobSpec{
		Overlap: leaderdv1.Overlap_OVERLAP_ALLOW, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
	}})
	if err != nil {
		return 0, err
	}
	reg, err := st.Register(ctx, state.Node{Name: "n1", Executor: true, Capacity: savingRuns}, time.Minute)
	if err != nil {
		return 0, err
	}
	var saved atomic.Int64
	begun := time.Now()
	group, gctx := errgroup.WithContext(ctx)
	for i := range savingRuns {
		group.Go(func() error {
			due := now.Truncate(time.Second).Add(time.Duration(i) * time.Second)
			res, err := st.Claim(gctx, state.Claim{Job: id, JobRevision: job.Entry.Job.Revision, Live: state.Live{
				Job: id, Run: state.SlotRunID(due), Shards: 1, Generation: 1, State: state.StateRunning, Attempt: 1,
				Owner: reg.Owner, Term: 1, Due: due, Claimed: now,
			}})
			if err == nil && res.Status != state.Claimed {
				err = fmt.Errorf("the claim was %s", res.Status)
			}
			if err != nil {
				return err
			}
			c := state.Checkpoint{Live: *res.Live, Data: make([]byte, savedBytes), Keep: state.DefaultCheckpointsKept}
			for time.Since(begun) < d {
				c.Number++
				c.Saved = time.Now()
				stored, err := st.Checkpoint(gctx, c)
				if err != nil {
					return err
				}
				c.Previous = stored.Revision
				saved.Add(1)
			}
			return nil
		})
	}
	err = group.Wait()
	return float64(saved.Load()) / time.Since(begun).Seconds(), err
}
