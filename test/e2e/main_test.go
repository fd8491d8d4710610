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

var (
	long  = flag.Bool("e2e.long", false, "faults of realistic length")
	quiet = flag.Bool("e2e.quiet", false, "nothing else runs on the machine: starts are held to the limits that are promised, without a margin for others' load")
)

// lateLimit is how late a start may be that is promised within some time.
func lateLimit(promised, busy time.Duration) time.Duration {
	if *quiet {
		return promised
	}
	return busy
}

// binary is the program under test, member that of an etcd member, and batch work that
// keeps checkpoints.
var binary, member, batch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// Scenarios that run beside each other mostly wait.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("5"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
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
	binary, member, batch = os.Getenv("E2E_BINARY"), filepath.Join(dir, "member"), filepath.Join(dir, "batch")
	programs := []string{"test/etcdtest/member", "test/e2e/batch"}
	if binary == "" {
		binary = filepath.Join(dir, "leaderd")
		programs = append(programs, "cmd/leaderd")
	}
	if err := build(dir, programs...); err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
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

// build builds programs into a directory: as they are released, without the race
// detector, which would change their timing.
func build(dir string, programs ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, "github.com/leaderd/leaderd/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// startEtcd starts an etcd whose members are processes.
func startEtcd(t testing.TB, opts ...etcdtest.Option) *etcdtest.Server {
	t.Helper()
	return etcdtest.Start(t, append([]etcdtest.Option{etcdtest.WithProgram(member)}, opts...)...)
}

// pick is short, or long where the flag says so.
func pick(short, asked time.Duration) time.Duration {
	if *long {
		return asked
	}
	return short
}
