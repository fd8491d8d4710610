package executor

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// instant is a Journal that answers at once.
type instant struct {
	Journal
	token atomic.Int64
}

func newInstant() *instant { return &instant{Journal: Waiting(&journal{})} }

func (j *instant) StartClaim(_ context.Context, c *state.Claim, done func(state.ClaimResult, error)) {
	c.Live.Token = j.token.Add(1)
	done(state.ClaimResult{Status: state.Claimed, Live: &c.Live}, nil)
}

func (j *instant) StartFinish(_ context.Context, _ *state.Finish, done func(state.TokenStatus, error)) {
	done(state.TokenStored, nil)
}

// idle is a Runner that does nothing, without the real one's guard.
type idle struct{}

func (idle) Run(context.Context, runner.Task, io.Writer) runner.Outcome {
	now := time.Now()
	return runner.Outcome{State: state.StateSucceeded, Started: now, Ended: now}
}

// encoded is a leader's stream of marshalled plans; what is reported is
// marshalled and counted.
type encoded struct {
	ctx   context.Context
	plans <-chan []byte
	seen  chan<- int
}

func (s *encoded) Send(m *workerv1.AttendRequest) error {
	if _, err := proto.Marshal(m); err != nil {
		return err
	}
	n := 0
	for _, p := range m.GetReport().GetProgress() {
		if p.GetStep() == workerv1.Progress_STEP_FINISHED {
			n++
		}
	}
	if n > 0 {
		s.seen <- n
	}
	return nil
}

func (s *encoded) Recv() (*workerv1.AttendResponse, error) {
	select {
	case b := <-s.plans:
		m := &workerv1.AttendResponse{}
		return m, proto.Unmarshal(b, m)
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// BenchmarkRun takes one run from its plan's bytes to its report's bytes. In waves, each
// of which is over before the next is planned, it allocates as it does in the long run:
// of many at once the most that are at work at a time is left to chance.
func BenchmarkRun(b *testing.B) {
	for runnerName, run := range map[string]Runner{"idle": idle{}, "noop": runner.New(runner.Config{})} {
		b.Run("due/"+runnerName, func(b *testing.B) { benchmarkRun(b, run, 0, false) })
		b.Run("ahead/"+runnerName, func(b *testing.B) { benchmarkRun(b, run, 300*time.Millisecond, false) })
		b.Run("waves/"+runnerName, func(b *testing.B) { benchmarkRun(b, run, 0, true) })
	}
}

func benchmarkRun(b *testing.B, run Runner, ahead time.Duration, waves bool) {
	const part = 128
	plans, seen := make(chan []byte, 4), make(chan int, 1024)
	l := &leaders{leader: Leader{Address: "a", Term: 1}, changed: make(chan struct{})}
	x, err := New(newInstant(), l, run, nil, Config{
		Node: state.Node{Name: "n", Capacity: state.MaxCapacity}, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	x.dial = func(ctx context.Context, _ string) (stream, func(), error) {
		return &encoded{ctx: ctx, plans: plans, seen: seen}, func() {}, nil
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	encode := func(m *workerv1.AttendResponse) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	plans <- encode(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Welcome{Welcome: &workerv1.Welcome{
		Term: 1, PulseInterval: durationpb.New(time.Minute),
	}}})
	plans <- encode(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Plan{Plan: &workerv1.Plan{Specs: noop(1, nil)}}})

	var messages [][]byte
	due := time.Now().Add(ahead)
	for i := 0; i < b.N; i += part {
		var entries []*workerv1.Entry
		for k := range min(part, b.N-i) {
			n := i + k
			entries = append(entries, &workerv1.Entry{
				Ref: 1, Due: due.UnixMicro(), Shard: int32(n), Shards: int32(b.N),
			})
		}
		messages = append(messages, encode(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Plan{Plan: &workerv1.Plan{Entries: entries}}}))
	}
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	cpu := processTime(b)
	if !waves {
		go func() {
			for _, m := range messages {
				plans <- m
			}
		}()
	}
	for done, told := 0, 0; done < b.N; {
		if waves && done == told {
			plans <- messages[told/part]
			told = min(told+part, b.N)
		}
		done += <-seen
	}
	b.ReportMetric(float64((processTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/run")
	b.StopTimer()
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// processTime is what the process has used of the processors.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReplan answers a takeover's plan from memory.
func BenchmarkReplan(b *testing.B) {
	x, err := New(newInstant(), &leaders{}, idle{}, nil, Config{Node: state.Node{Name: "n"}})
	if err != nil {
		b.Fatal(err)
	}
	const n = 100_000
	d := newDesk(b.Context(), b.Context(), x, state.Owner{Node: "n", Revision: 1}, nil)
	d.trusted = func() bool { return true }
	s := &session{specs: map[uint32]*spec{}, reports: newReports(nil)}
	s.specs[1] = newSpec(s, noop(1, nil)[0])
	d.attach(s)
	due := time.Now().Add(time.Minute)
	entries := make([]*workerv1.Entry, n)
	for i := range entries {
		entries[i] = &workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: int32(i)}
	}
	if err := d.take(s, entries); err != nil {
		b.Fatal(err)
	}
	for _, e := range d.entries {
		e.place = claimed
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.take(s, entries); err != nil {
			b.Fatal(err)
		}
		if len(s.reports.take()) != n {
			b.Fatal("not all were answered")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}
