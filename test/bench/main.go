// Command bench measures leaderd against its targets, side by side with the raw
// limit of the same etcd on the same machine: see docs/benchmarks.md. `make
// bench` runs all figures; BENCHFLAGS="-only lateness" those whose names match.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"
	_ "time/tzdata"

	"github.com/leaderd/leaderd/internal/config"
)

// settings are the command line.
type settings struct {
	only     *regexp.Regexp
	duration time.Duration
	rate     int
	jobs     int
	profile  string
	log      string
}

// figure is one thing that is measured.
type figure struct {
	name    string
	measure func(context.Context, *settings) ([]row, error)
}

// row is one line of the report.
type row struct {
	what, target, got, beside string
}

var figures = []figure{
	{"durable-embedded", func(ctx context.Context, s *settings) ([]row, error) { return durable(ctx, s, true) }},
	{"durable-external", func(ctx context.Context, s *settings) ([]row, error) { return durable(ctx, s, false) }},
	{"lateness-1000", func(ctx context.Context, s *settings) ([]row, error) {
		return everySecond(ctx, s, 1000, "p50 ≤ 1 ms, p99 ≤ 4 ms")
	}},
	{"lateness-10000", func(ctx context.Context, s *settings) ([]row, error) {
		return everySecond(ctx, s, 10_000, "p99 ≤ 25 ms")
	}},
	{"burst-10000", burst},
	{"commands", commands},
	{"heap", heapPerJob},
	{"takeover", takeover},
	{"checkpoints", checkpoints},
	{"submissions", submissions},
}

func main() { os.Exit(run()) }

func run() int {
	if os.Getenv(etcdProcess) != "" {
		return serveEtcd()
	}
	var s settings
	only := flag.String("only", "", "regular expression of the figures to measure (default: all)")
	flag.DurationVar(&s.duration, "duration", 60*time.Second, "how long each rate is measured")
	flag.IntVar(&s.rate, "rate", 0, "jobs @every 1s for the durable figures (default: 12000 embedded, 10000 external)")
	flag.IntVar(&s.jobs, "jobs", 100_000, "jobs for heap and takeover")
	flag.StringVar(&s.profile, "profile", "", "write a CPU profile of the durable figures here")
	flag.StringVar(&s.log, "log", "error", "log level of the nodes")
	flag.Parse()
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, os.Stdout, &s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, to io.Writer, s *settings) error {
	fmt.Fprintf(to, "leaderd on %d cores, %s; etcd, leader and executor share them\n\n", runtime.NumCPU(), runtime.Version())
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "figure\ttarget\tmeasured\tbeside it")
	for _, f := range figures {
		if !s.only.MatchString(f.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s ...\n", f.name)
		rows, err := f.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for _, r := range rows {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.what, r.target, r.got, r.beside)
		}
		// Let the machine come to rest between figures.
		runtime.GC()
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// base is the configuration that every measured node begins with.
func base(dir string) config.Config {
	cfg := config.Default()
	cfg.Name, cfg.DataDir = "bench", dir
	cfg.Listen, cfg.Advertise, cfg.OpsListen = "127.0.0.1:0", "127.0.0.1:0", ""
	cfg.Etcd.Embedded.ClientListen, cfg.Etcd.Embedded.PeerListen = freePort(), freePort()
	cfg.Etcd.Embedded.QuotaBytes = 8 * config.GiB
	cfg.Capacity = 1 << 16
	return cfg
}
