package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/examples"
	"github.com/leaderd/leaderd/internal/config"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// devNode is the name of the node that dev runs.
const devNode = "dev"

func devCommand(d Deps) *cobra.Command {
	var (
		dataDir, listen, ops string
		level                string
		bare                 bool
	)
	def := config.Default()
	c := &cobra.Command{
		Use:   "dev",
		Short: "Try leaderd: a node with its own etcd, sample jobs and a live view",
		Long: `Run a one-node cluster with its own etcd on this machine, give it some sample
jobs, and show each run as it ends. Everything is thrown away at the end unless
--data-dir says where to keep it. Other commands of leaderd find it by
themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := config.Default()
			cfg.Name = devNode
			cfg.Listen, cfg.Advertise, cfg.OpsListen = listen, listen, ops
			cfg.Log.Level = level
			if err := cfg.Validate(); err != nil {
				return usageError{err}
			}
			if _, port, _ := net.SplitHostPort(listen); port == "0" {
				return usagef("--listen: the view must know the port: give one")
			}
			cfg.DataDir = dataDir
			if dataDir == "" {
				dir, err := os.MkdirTemp("", "leaderd-dev-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir) //nolint:errcheck // what is left lies where the system sweeps
				cfg.DataDir = dir
			}
			var err error
			if cfg.Etcd.Embedded.ClientListen, cfg.Etcd.Embedded.PeerListen, err = freeAddresses(cmd.Context()); err != nil {
				return err
			}
			var jobs []fileJob
			if !bare {
				if jobs, err = sampleJobs(ops); err != nil {
					return err
				}
			}
			return runDev(cmd.Context(), d, cfg, jobs)
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "", "keep the data here (default: throw it away)")
	c.Flags().StringVar(&listen, "listen", def.Listen, "host:port of the gRPC listener")
	c.Flags().StringVar(&ops, "ops-listen", def.OpsListen, "host:port of the HTTP listener for health and metrics")
	c.Flags().StringVar(&level, "log-level", "warn", "trace, debug, info, warn, error or off")
	c.Flags().BoolVar(&bare, "no-examples", false, "without the sample jobs")
	return c
}

// runDev runs the node and, beside it, the view.
func runDev(ctx context.Context, d Deps, cfg config.Config, jobs []fileJob) error {
	group, gctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(gctx)
	defer cancel()
	group.Go(func() error {
		defer cancel() // without a node there is nothing to see
		return ended(ctx, d.Serve(ctx, cfg, cfg.Log.Logger(d.Stderr)))
	})
	group.Go(func() error {
		err := watchDev(ctx, d, cfg, jobs)
		if ctx.Err() == nil {
			return err
		}
		return nil // it is over; what the view met on the way says nothing new
	})
	return group.Wait()
}

func watchDev(ctx context.Context, d Deps, cfg config.Config, jobs []fileJob) error {
	o := &dialer{address: cfg.Advertise, timeout: 5 * time.Second}
	a, err := o.dial()
	if err != nil {
		return err
	}
	defer a.close()
	if _, err := fmt.Fprintf(d.Stdout, "starting a one-node cluster in %s\n", cfg.DataDir); err != nil {
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
