package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/test/etcdtest"
)

// long runs the faults for as long as people meet them.
var long = flag.Bool("e2e.long", false, "faults of realistic length")

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	etcdtest.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	// Scenarios that run beside each other mostly wait.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("5"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if binary = os.Getenv("E2E_BINARY"); binary == "" {
		dir, err := os.MkdirTemp("", "leaderd-e2e-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
		if err := build(filepath.Join(dir, "leaderd")); err != nil {
			fmt.Fprintln(os.Stderr, "build leaderd:", err)
			return 1
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/leaderd/leaderd/test/e2e.runStarter")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// build builds the program as it is released: without the race detector, which
// would change its timing.
func build(to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, "github.com/leaderd/leaderd/cmd/leaderd")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	binary = to
	return cmd.Run()
}

// pick is short, or long where the flag says so.
func pick(short, asked time.Duration) time.Duration {
	if *long {
		return asked
	}
	return short
}
