package runner_test

import (
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/runner"
)

// rate runs f b.N times, some at a time, and reports runs a second and latencies.
func rate(b *testing.B, f func(i int)) {
	const atOnce = 8
	took := make([]time.Duration, b.N)
	next := make(chan int)
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				began := time.Now()
				f(i)
				took[i] = time.Since(began)
			}
		})
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-us/run")
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64(took[b.N/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[b.N*99/100])/1e6, "p99-ms")
}

// cpuTime is what this process and its collected children used: it tells the cost
// of a run on a busy machine too.
func cpuTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// BenchmarkBareExec is the floor: what os/exec alone takes.
func BenchmarkBareExec(b *testing.B) {
	rate(b, func(int) {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkStartProcess is the floor below that.
func BenchmarkStartProcess(b *testing.B) {
	rate(b, func(int) {
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := p.Wait(); err != nil {
			b.Error(err)
		}
	})
}

func benchmarkCommand(b *testing.B, task runner.Task) {
	ring, err := output.Open(b.TempDir(), output.Options{MaxFiles: 1000})
	if err != nil {
		b.Fatal(err)
	}
	r := runner.New(runner.Config{})
	rate(b, func(i int) {
		task := task
		task.Token, task.Attempt = int64(i), i+1
		w, err := ring.Create(output.Key{Job: task.Job, Run: task.Run, Attempt: task.Attempt})
		if err != nil {
			b.Error(err)
			return
		}
		if o := r.Run(b.Context(), task, w); o.Error != "" || o.OutputErr != nil {
			b.Errorf("%+v", o)
		}
		if err := w.Close(); err != nil {
			b.Error(err)
		}
	})
}

func BenchmarkCommand(b *testing.B)     { benchmarkCommand(b, argv("/bin/true")) }
func BenchmarkCommandEcho(b *testing.B) { benchmarkCommand(b, argv("/bin/echo", "one line")) }
func BenchmarkNoOp(b *testing.B)        { benchmarkCommand(b, runner.Task{NoOp: true}) }
