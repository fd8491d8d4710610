package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// everySecond measures the lateness of n no-op jobs that are due each second.
func everySecond(ctx context.Context, s *settings, n int, target string) (rows []row, err error) {
	timers := bareTimers(n)
	err = withNode(ctx, s, true, func(r *running, _ *etcdChild) error {
		if err := r.put(ctx, n, noopEverySecond); err != nil {
			return err
		}
		// The first minute has the jobs' creation in it.
		if err := sleep(ctx, s.duration+70*time.Second-min(s.duration, 60*time.Second)); err != nil {
			return err
		}
		late, err := r.lateness(ctx)
		if err != nil {
			return err
		}
		rows = []row{{fmt.Sprintf("lateness, %d jobs @every 1s", n), target, late, timers}}
		return nil
	})
	return rows, err
}

func (r *running) lateness(ctx context.Context) (string, error) {
	res, err := r.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
	if err != nil {
		return "", err
	}
	l := res.GetLateness()
	if l == nil {
		return "", errors.New("nothing started")
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", l.GetP50().AsDuration(), l.GetP99().AsDuration(),
		l.GetMax().AsDuration(), l.GetStarts()), nil
}

// bareTimers says how late goroutines wake that sleep until one instant.
func bareTimers(n int) string {
	late := make([]time.Duration, n)
	at := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			time.Sleep(time.Until(at))
			late[i] = time.Since(at)
		})
	}
	wg.Wait()
	slices.Sort(late)
	return fmt.Sprintf("bare timers p50 %s, p99 %s", late[n/2].Round(time.Microsecond), late[n*99/100].Round(time.Microsecond))
}

// burst measures 10,000 jobs that are due at one instant, once.
func burst(ctx context.Context, s *settings) (rows []row, err error) {
	const n = 10_000
	err = withNode(ctx, s, true, func(r *running, _ *etcdChild) error {
		at := time.Now().Add(25 * time.Second).Truncate(time.Second)
		if err := r.put(ctx, n, func(int) *leaderdv1.JobSpec {
			spec := noopEverySecond(0)
			spec.Schedules = []string{"@at " + at.UTC().Format(time.RFC3339)}
			return spec
		}); err != nil {
			return err
		}
		if time.Until(at) < 5*time.Second {
			return fmt.Errorf("putting %d jobs took too long", n)
		}
		if err := r.await(ctx, "all have started", func(s *leaderdv1.GetClusterStatusResponse) bool {
			return s.GetLateness().GetStarts() >= n
		}); err != nil {
			return err
		}
		late, err := r.lateness(ctx)
		if err != nil {
			return err
		}
		rows = []row{{"10,000 jobs due in one second", "last start ≤ 50 ms late", late, ""}}
		return nil
	})
	return rows, err
}

// commands measures runs of /bin/true that are asked for evenly.
func commands(ctx context.Context, s *settings) (rows []row, err error) {
	const rate = 1000
	bare := bareExecs()
	err = withNode(ctx, s, true, func(r *running, _ *etcdChild) error {
		if err := r.put(ctx, 100, func(int) *leaderdv1.JobSpec {
			return &leaderdv1.JobSpec{
				Overlap: leaderdv1.Overlap_OVERLAP_ALLOW,
				Target:  &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{Argv: []string{"/bin/true"}}},
			}
		}); err != nil {
			return err
		}
		const finished = "leaderd_executor_finished_total"
		was, err := r.counter(finished)
		if err != nil {
			return err
		}
		begun := time.Now()
		group, gctx := errgroup.WithContext(ctx)
		group.SetLimit(256)
		for i := 0; time.Since(begun) < s.duration; i++ {
			time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / rate)))
			group.Go(func() error {
				_, err := r.jobs.TriggerJob(gctx, &leaderdv1.TriggerJobRequest{
					Name: fmt.Sprintf("namespaces/bench/jobs/job-%06d", i%100),
				})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		took := time.Since(begun)
		now, err := r.counter(finished)
		if err != nil {
			return err
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
		late, err := r.lateness(ctx)
		if err != nil {
			return err
		}
		perSecond := (now - was) / took.Seconds()
		rows = []row{
			{
				"command runs/s (/bin/true, triggered)", "≥ 1,000", fmt.Sprintf("%.0f (of %d asked for)", perSecond, rate),
				fmt.Sprintf("bare fork+exec %.0f/s, ratio %.2f", bare, perSecond/bare),
			},
			{"their lateness", "p50 ≤ 20 ms", late, ""},
		}
		return nil
	})
	return rows, err
}

// bareExecs is how many /bin/true a second os/exec starts and waits for.
func bareExecs() float64 {
	const each = 1000
	begun := time.Now()
	var wg sync.WaitGroup
	workers := 4 * runtime.NumCPU()
	for range workers {
		wg.Go(func() {
			for range each / workers {
				if err := exec.Command("/bin/true").Run(); err != nil {
					fmt.Fprintln(os.Stderr, "bare exec:", err)
				}
			}
		})
	}
	wg.Wait()
	return each / time.Since(begun).Seconds()
}
