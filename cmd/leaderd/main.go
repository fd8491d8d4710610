// Command leaderd runs a node and talks to clusters: see "leaderd help".
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	_ "time/tzdata" // images without zone data must not turn zones into UTC

	"github.com/hashicorp/go-hclog"

	"github.com/leaderd/leaderd/internal/cli"
	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/internal/node"
)

// version is set by the linker.
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks, a later one kills. What sends signals to a process and
	// to its group means one, though two arrive.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })()
	return cli.Main(ctx, cli.Deps{Serve: serve, Version: buildVersion()}, os.Args[1:])
}

// reaps is set once a node of this process reaps orphans: one is enough.
var reaps atomic.Bool

func serve(ctx context.Context, cfg config.Config, log hclog.Logger) error {
	n, err := node.New(cfg, node.Options{Version: buildVersion(), Logger: log, ReapOrphans: !reaps.Swap(true)})
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// buildVersion is the linker's, or what the go command knows of the sources.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "dev"
	}
	return "dev-" + revision + dirty
}
