package journal_test

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/journal"
	server "github.com/leaderd/leaderd/internal/journal"
	"github.com/leaderd/leaderd/state"
)

// BenchmarkRun is a claim and a finish through the stream, against a store that
// answers at once, both sides in one process. us-cpu/run is the time of all
// processors that a run takes.
func BenchmarkRun(b *testing.B) {
	for _, callers := range []int{1, 64, 1024, 4096} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			// The heap of a node, so that the collector runs as often as there.
			ballast := make([]byte, 128<<20)
			defer runtime.KeepAlive(ballast)
			c := newControl(b, &instant{}, server.Config{})
			client := newClient(b, journal.Config{}, c)
			owner := state.Owner{Node: "executor-1", Revision: 1234567}
			claim := claimOf(state.JobID{Namespace: "default", Name: "job-000123"}, 99, owner, 1)
			_, err := client.Claim(b.Context(), claim)
			require.NoError(b, err)

			end := finishOf(claim.Live) // of each: the caller's part is not counted
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			var work sync.WaitGroup
			for range callers {
				work.Go(func() {
					for left.Add(-1) >= 0 {
						res, err := client.Claim(b.Context(), claim)
						if err == nil {
							f := end
							f.Live = res.Live
							_, err = client.Finish(b.Context(), f)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			work.Wait()
			b.StopTimer()
			b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "us-cpu/run")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
