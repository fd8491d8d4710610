package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/leaderd/leaderd/internal/config"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// ordinary is a job as people have them, due once a day.
func ordinary(i int) *leaderdv1.JobSpec {
	return &leaderdv1.JobSpec{
		Description: "nightly report of customer " + fmt.Sprint(i),
		Schedules:   []string{fmt.Sprintf("%d %d * * *", i%60, i/60%24)},
		TimeZone:    "Europe/Berlin",
		Target: &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{
			Argv: []string{"/usr/local/bin/report", "--customer", fmt.Sprint(i)},
		}},
	}
}

// heapPerJob measures the leader's heap at many jobs.
func heapPerJob(ctx context.Context, s *settings) (rows []row, err error) {
	err = withNode(ctx, s, false, func(r *running, _ *etcdChild) error {
		empty := heap()
		if err := r.put(ctx, s.jobs, ordinary); err != nil {
			return err
		}
		if err := r.awaitJobs(ctx, s.jobs); err != nil {
			return err
		}
		full := heap()
		rows = []row{{
			fmt.Sprintf("leader's heap a job, at %d jobs", s.jobs), "≤ 1 KiB",
			fmt.Sprintf("%d B", (full-empty)/int64(s.jobs)), "",
		}}
		return nil
	})
	return rows, err
}

func (r *running) awaitJobs(ctx context.Context, n int) error {
	return r.await(ctx, "all jobs are known", func(s *leaderdv1.GetClusterStatusResponse) bool { return s.GetJobs() == int64(n) })
}

func heap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// takeover measures how long a new leader takes to plan many jobs: warm, when
// the old one resigns, and cold, from the start of its process.
func takeover(ctx context.Context, s *settings) (rows []row, err error) {
	err = withNode(ctx, s, false, func(r *running, child *etcdChild) (err error) {
		if err := r.put(ctx, s.jobs, ordinary); err != nil {
			return err
		}
		if err := r.awaitJobs(ctx, s.jobs); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "leaderd-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		cfg := base(dir)
		cfg.Name, cfg.Roles = "next", []string{config.RoleControl}
		cfg.Etcd.Endpoints = []string{"http://" + child.endpoint}
		next, err := start(ctx, s, cfg)
		if err != nil {
			return err
		}
		if err := next.awaitJobs(ctx, s.jobs); err != nil {
			return errors.Join(err, next.stop())
		}
		if err := r.stop(); err != nil {
			return errors.Join(err, next.stop())
		}
		r.stop = next.stop // withNode ends it
		warm, err := next.awaitTakeover(ctx)
		if err != nil {
			return err
		}
		if err := next.stop(); err != nil {
			return err
		}
		cfg.Name = "cold"
		cold, err := start(ctx, s, cfg)
		if err != nil {
			return err
		}
		r.stop = cold.stop
		if err := cold.awaitPlanning(ctx, "cold"); err != nil {
			return err
		}
		took := time.Since(cold.begun)
		rows = []row{
			{fmt.Sprintf("takeover at %d jobs, warm", s.jobs), "≤ 0.5 s", fmt.Sprintf("%.3f s", warm), "from election to planning"},
			{fmt.Sprintf("takeover at %d jobs, cold", s.jobs), "≤ 3 s", fmt.Sprintf("%.2f s", took.Seconds()), "from start of the node to planning"},
		}
		return nil
	})
	return rows, err
}

func (r *running) awaitPlanning(ctx context.Context, name string) error {
	begun := time.Now()
	return r.await(ctx, name+" plans", func(s *leaderdv1.GetClusterStatusResponse) bool {
		return s.GetLeader() == name && s.GetWatermark().AsTime().After(begun.Add(-time.Second)) && s.GetWatermarkLag().AsDuration() < 2*time.Second
	})
}

// awaitTakeover waits until a node has taken over, and answers how long that took it, in
// seconds.
func (r *running) awaitTakeover(ctx context.Context) (took float64, err error) {
	waited := r.await(ctx, "has taken over", func(*leaderdv1.GetClusterStatusResponse) bool {
		took, err = r.counter("leaderd_planner_takeover_seconds")
		return took > 0 || err != nil
	})
	return took, errors.Join(err, waited)
}
