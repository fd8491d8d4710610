package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/internal/etcd"
	"github.com/leaderd/leaderd/internal/node"
	"github.com/leaderd/leaderd/internal/rpc"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// etcdProcess is set, to the data directory, in a process that is an etcd.
const etcdProcess = "LEADERD_BENCH_ETCD"

// running is a node under measurement, in this process.
type running struct {
	node    *node.Node
	conn    *grpc.ClientConn
	jobs    leaderdv1.JobServiceClient
	cluster leaderdv1.ClusterServiceClient
	begun   time.Time
	stop    func() error
}

// start runs a node and waits until it leads.
func start(ctx context.Context, s *settings, cfg config.Config) (*running, error) {
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(s.log), Output: os.Stderr})
	r := &running{begun: time.Now()}
	var err error
	if r.node, err = node.New(cfg, node.Options{Version: "bench", Logger: log}); err != nil {
		return nil, err
	}
	nodeCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.node.Run(nodeCtx) }()
	r.stop = func() error {
		cancel()
		err := <-ended
		if r.conn != nil {
			err = errors.Join(err, r.conn.Close())
		}
		return err
	}
	if r.conn, err = rpc.Dial(r.node.Address(), rpc.ClientConfig{}); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	r.jobs, r.cluster = leaderdv1.NewJobServiceClient(r.conn), leaderdv1.NewClusterServiceClient(r.conn)
	return r, nil
}

// await polls until ok is true of the cluster's status.
func (r *running) await(ctx context.Context, what string, ok func(*leaderdv1.GetClusterStatusResponse) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		res, err := r.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{}, grpc.WaitForReady(true))
		if err == nil && ok(res) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w (%w)", what, ctx.Err(), errors.Join(err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *running) awaitLeader(ctx context.Context) error {
	return r.await(ctx, "the node leads", func(s *leaderdv1.GetClusterStatusResponse) bool {
		return s.GetLeader() != "" && s.GetWatermark() != nil
	})
}

// put creates n jobs.
func (r *running) put(ctx context.Context, n int, spec func(i int) *leaderdv1.JobSpec) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range 64 {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if _, err := r.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{
					Job:          &leaderdv1.Job{Name: fmt.Sprintf("namespaces/bench/jobs/job-%06d", i), Spec: spec(i)},
					AllowMissing: true,
				}); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// counter sums a counter of the node over its labels.
func (r *running) counter(name string) (float64, error) {
	families, err := r.node.Registry().Gather()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += value(m)
			}
		}
	}
	return sum, nil
}

func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

// freePort is an address on which nobody listens.
func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close() // nothing was written
	return l.Addr().String()
}

// etcdChild is an etcd in a process of its own.
type etcdChild struct {
	cmd      *exec.Cmd
	endpoint string
}

func startEtcd(ctx context.Context, dir string) (*etcdChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &etcdChild{endpoint: freePort()}
	c.cmd = exec.CommandContext(ctx, self)
	c.cmd.Env = append(os.Environ(), etcdProcess+"="+dir, etcdProcess+"_CLIENT="+c.endpoint)
	c.cmd.Stderr = os.Stderr
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 10 * time.Second
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *etcdChild) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return c.cmd.Wait()
}

// cpu is the processor time that the child has used.
func (c *etcdChild) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.cmd.Process.Pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// serveEtcd is the child's main.
func serveEtcd() int {
	cfg := base("")
	cfg.Etcd.Embedded.ClientListen = os.Getenv(etcdProcess + "_CLIENT")
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	ctx, stop := signalContext()
	defer stop()
	if err := etcd.New("bench", os.Getenv(etcdProcess), cfg.Etcd, log).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
