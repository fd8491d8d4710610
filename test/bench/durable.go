package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/internal/etcd"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/kv"
)

func signalContext() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// writesPerRun is how many keys an ordinary run writes: its claim's record and
// its verdict.
const writesPerRun = 2

// rawTxn is how many puts a transaction of the raw limit has, and rawInFlight
// how many are under way.
const (
	rawTxn      = 64
	rawInFlight = 8
	rawValue    = 256
)

// durable measures runs a second, claim and finish with full records, of no-op
// jobs that are due each second.
func durable(ctx context.Context, s *settings, embedded bool) (rows []row, err error) {
	rate, what, target := s.rate, "durable runs/s, embedded etcd", "≥ 20,000, ≥ 0.5 of raw"
	if !embedded {
		what, target = "durable runs/s, external etcd over gRPC", "≥ 12,000"
	}
	if rate == 0 {
		rate = 12_000
		if !embedded {
			rate = 10_000
		}
	}
	raw, err := rawRate(ctx, s, embedded)
	if err != nil {
		return nil, err
	}
	err = withNode(ctx, s, embedded, func(r *running, child *etcdChild) error {
		if err := r.put(ctx, rate, noopEverySecond); err != nil {
			return err
		}
		if err := sleep(ctx, 10*time.Second); err != nil { // past the first plan
			return err
		}
		if s.profile != "" {
			f, err := os.Create(s.profile)
			if err != nil {
				return err
			}
			defer f.Close() // read by people
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		const finished = "leaderd_executor_finished_total"
		was, err := r.counter(finished)
		if err != nil {
			return err
		}
		cpu, begun := ownCPU()+childCPU(child), time.Now()
		if err := sleep(ctx, s.duration); err != nil {
			return err
		}
		now, err := r.counter(finished)
		if err != nil {
			return err
		}
		took, used := time.Since(begun), ownCPU()+childCPU(child)-cpu
		runs := now - was
		perSecond := runs / took.Seconds()
		rows = append(rows,
			row{what, target, fmt.Sprintf("%.0f (of %d due)", perSecond, rate), fmt.Sprintf("raw %.0f, ratio %.2f", raw/writesPerRun, perSecond/(raw/writesPerRun))},
			row{"processor time a run", "≤ 95 µs", fmt.Sprintf("%.1f µs", float64(used.Microseconds())/runs), ""})
		return nil
	})
	return rows, err
}

func childCPU(c *etcdChild) time.Duration {
	if c == nil {
		return 0
	}
	d, err := c.cpu()
	if err != nil {
		return 0
	}
	return d
}

func noopEverySecond(int) *leaderdv1.JobSpec {
	return &leaderdv1.JobSpec{
		Schedules: []string{"@every 1s"},
		Target:    &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
	}
}

// withNode runs do with a leading node, over an etcd inside it or in a process
// of its own.
func withNode(ctx context.Context, s *settings, embedded bool, do func(*running, *etcdChild) error) (err error) {
	dir, err := os.MkdirTemp("", "leaderd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := base(dir)
	var child *etcdChild
	if !embedded {
		if child, err = startEtcd(ctx, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, child.stop()) }()
		cfg.Etcd.Endpoints = []string{"http://" + child.endpoint}
	}
	r, err := start(ctx, s, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.awaitLeader(ctx); err != nil {
		return err
	}
	return do(r, child)
}

// rawRate is how many key writes a second the same etcd takes in plain
// transactions.
func rawRate(ctx context.Context, s *settings, embedded bool) (perSecond float64, err error) {
	dir, err := os.MkdirTemp("", "leaderd-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := base(dir)
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	if !embedded {
		child, err := startEtcd(ctx, dir)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, child.stop()) }()
		cfg.Etcd.Endpoints = []string{"http://" + child.endpoint}
		client, err := etcd.Dial(cfg.Etcd, log)
		if err != nil {
			return 0, err
		}
		defer client.Close() // nothing is under way
		return putFor(ctx, etcdkv.New(client, etcdkv.Options{}), s.duration/4)
	}
	memberCtx, stop := context.WithCancel(ctx)
	member := etcd.New(cfg.Name, dir, cfg.Etcd, log)
	ended := make(chan error, 1)
	go func() { ended <- member.Run(memberCtx) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	select {
	case <-member.Ready():
	case err := <-ended:
		ended <- nil
		return 0, err
	}
	return putFor(ctx, member.KV(), s.duration/4)
}

// awaitStore waits until the store takes a write: an etcd that was just started
// takes none, and what it refuses does not count.
func awaitStore(ctx context.Context, db kv.KV) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put("/raw/ready", nil, 0)}})
		if err == nil {
			return nil
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("wait for the store: %w", err)
		}
	}
}

func putFor(ctx context.Context, db kv.KV, d time.Duration) (perSecond float64, err error) {
	if err := awaitStore(ctx, db); err != nil {
		return 0, err
	}
	value := make([]byte, rawValue)
	var puts atomic.Int64
	begun := time.Now()
	group, gctx := errgroup.WithContext(ctx)
	for w := range rawInFlight {
		group.Go(func() error {
			for n := 0; time.Since(begun) < d; n++ {
				ops := make([]kv.Op, rawTxn)
				for i := range ops {
					ops[i] = kv.Put(fmt.Sprintf("/raw/%d/%d", w, (n*rawTxn+i)%100_000), value, 0)
				}
				if _, err := db.Txn(gctx, kv.Txn{Then: ops}); err != nil {
					return err
				}
				puts.Add(rawTxn)
			}
			return nil
		})
	}
	err = group.Wait()
	return float64(puts.Load()) / time.Since(begun).Seconds(), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
