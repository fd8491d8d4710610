package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/examples"
	"github.com/leaderd/leaderd/internal/config"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// devNodes is how many nodes dev runs by default: enough to see one of them
	// lead the others.
	devNodes    = 3
	maxDevNodes = 9
	// devGrace is how long running work may hold up dev's end.
	devGrace = 2 * time.Second
)

// dev is what the command line of dev says.
type dev struct {
	dataDir, listen, ops, level string
	nodes                       int
	bare                        bool
}

func devCommand(d Deps) *cobra.Command {
	var o dev
	def := config.Default()
	c := &cobra.Command{
		Use:   "dev",
		Short: "Try leaderd: three nodes with their own etcd, sample jobs and a live view",
		Long: `Run a cluster with its own etcd in this process, give it some sample jobs, and
show each run as it ends. The first node has the etcd and listens at the usual
addresses, so that other commands of leaderd find it by themselves. Everything
is thrown away at the end unless --data-dir says where to keep it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.dataDir == "" {
				dir, err := os.MkdirTemp("", "leaderd-dev-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir) //nolint:errcheck // what is left lies where the system sweeps
				o.dataDir = dir
			}
			nodes, err := o.configs(cmd.Context())
			if err != nil {
				return err
			}
			var jobs []fileJob
			if !o.bare {
				if jobs, err = sampleJobs(o.ops); err != nil {
					return err
				}
			}
			return runDev(cmd.Context(), d, nodes, jobs)
		},
	}
	c.Flags().StringVar(&o.dataDir, "data-dir", "", "keep the data here (default: throw it away)")
	c.Flags().StringVar(&o.listen, "listen", def.Listen, "host:port of the first node's gRPC listener")
	c.Flags().StringVar(&o.ops, "ops-listen", def.OpsListen, "host:port of the first node's HTTP listener for health and metrics")
	c.Flags().StringVar(&o.level, "log-level", "warn", "trace, debug, info, warn, error or off")
	c.Flags().IntVar(&o.nodes, "nodes", devNodes, "how many nodes, 1–9")
	c.Flags().BoolVar(&o.bare, "no-examples", false, "without the sample jobs")
	return c
}

// configs are those of the nodes; the first one has the etcd.
func (o *dev) configs(ctx context.Context) ([]config.Config, error) {
	if o.nodes < 1 || o.nodes > maxDevNodes {
		return nil, usagef("--nodes: %d is outside 1–%d", o.nodes, maxDevNodes)
	}
	if _, port, _ := net.SplitHostPort(o.listen); port == "0" {
		return nil, usagef("--listen: the view must know the port: give one")
	}
	etcdClient, etcdPeer, err := freeAddresses(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]config.Config, o.nodes)
	for i := range nodes {
		cfg := config.Default()
		cfg.Name = fmt.Sprintf("dev-%d", i+1)
		cfg.DataDir = filepath.Join(o.dataDir, cfg.Name)
		cfg.Log.Level = o.level
		cfg.Executor.DrainGrace = devGrace
		if i == 0 {
			cfg.Listen, cfg.Advertise, cfg.OpsListen = o.listen, o.listen, o.ops
			cfg.Etcd.Embedded.ClientListen, cfg.Etcd.Embedded.PeerListen = etcdClient, etcdPeer
		} else {
			cfg.Listen, cfg.Advertise, cfg.OpsListen = anyPort, anyPort, ""
			cfg.Etcd.Endpoints = []string{"http://" + etcdClient}
		}
		if err := cfg.Validate(); err != nil {
			return nil, usageError{err}
		}
		nodes[i] = cfg
	}
	return nodes, nil
}

const anyPort = "127.0.0.1:0"

// runDev runs the nodes and, beside them, the view. The first node ends last:
// the others live on its etcd.
func runDev(ctx context.Context, d Deps, nodes []config.Config, jobs []fileJob) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	firstCtx, endFirst := context.WithCancel(context.WithoutCancel(ctx))
	defer endFirst()
	// With a node missing there is nothing to see: the first to fail ends all,
	// and only its failure is told.
	failed := make(chan error, 1)
	serve := func(ctx context.Context, cfg config.Config) {
		defer cancel()
		if err := ended(ctx, d.Serve(ctx, cfg, cfg.Log.Logger(d.Stderr).Named(cfg.Name))); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	var first, others sync.WaitGroup
	first.Go(func() { serve(firstCtx, nodes[0]) })
	for _, cfg := range nodes[1:] {
		others.Go(func() { serve(ctx, cfg) })
	}
	err := watchDev(ctx, d, nodes, jobs)
	over := ctx.Err() != nil
	cancel()
	others.Wait()
	endFirst()
	first.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	if over {
		return nil // what the view met on the way says nothing new
	}
	return err
}

func watchDev(ctx context.Context, d Deps, nodes []config.Config, jobs []fileJob) error {
	cfg := nodes[0]
	o := &dialer{address: cfg.Advertise, timeout: 5 * time.Second}
	a, err := o.dial()
	if err != nil {
		return err
	}
	defer a.close()
	if _, err := fmt.Fprintf(d.Stdout, "starting %d nodes in %s\n", len(nodes), filepath.Dir(cfg.DataDir)); err != nil {
		return err
	}
	if err := awaitLeader(ctx, a.cluster); err != nil {
		return err
	}
	for _, j := range jobs {
		if _, err := update(ctx, a, j.job, false, "sample job"); err != nil {
			return fmt.Errorf("%s: %w", j.where, err)
		}
	}
	_, err = fmt.Fprintf(d.Stdout, `ready: gRPC on %s, health and metrics on http://%s, %d sample jobs
try:   leaderd job list      leaderd run list      leaderd job trigger hello
end:   Ctrl-C

`, cfg.Advertise, cfg.OpsListen, len(jobs))
	if err != nil {
		return err
	}
	live := &Live{Jobs: a.jobs, Runs: a.runs, Cluster: a.cluster, Out: d.Stdout, TTY: isTerminal(d.Stdout)}
	return live.Run(ctx)
}

// awaitLeader waits until the node answers and somebody leads.
func awaitLeader(ctx context.Context, c leaderdv1.ClusterServiceClient) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := c.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{}, grpc.WaitForReady(true))
		if err == nil && s.GetLeader() != "" {
			return nil
		}
		// A node that is not ready yet says so; it is the node's own end that ends
		// the waiting.
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// sampleJobs are the examples, with their requests to this node's own listener.
func sampleJobs(ops string) ([]fileJob, error) {
	ns := namespace{name: defaultNamespace}
	entries, err := fs.ReadDir(examples.Jobs, "jobs")
	if err != nil {
		return nil, err
	}
	var out []fileJob
	for _, e := range entries {
		name := path.Join("jobs", e.Name())
		content, err := fs.ReadFile(examples.Jobs, name)
		if err != nil {
			return nil, err
		}
		jobs, err := parseJobs("examples/"+name, content, &ns)
		if err != nil {
			return nil, err
		}
		out = append(out, jobs...)
	}
	const own = "http://127.0.0.1:7401/"
	for _, j := range out {
		if h := j.job.GetSpec().GetHttp(); h != nil && len(h.GetUrl()) > len(own) && h.GetUrl()[:len(own)] == own {
			h.Url = "http://" + ops + "/" + h.GetUrl()[len(own):]
		}
	}
	return out, nil
}

// freeAddresses are two loopback addresses that nothing listens on just now.
func freeAddresses(ctx context.Context) (first, second string, err error) {
	var lc net.ListenConfig
	a, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	b, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", errors.Join(err, a.Close())
	}
	return a.Addr().String(), b.Addr().String(), errors.Join(a.Close(), b.Close())
}

// isTerminal tells whether w is one.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
