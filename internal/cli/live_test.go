package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/internal/config"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func f0(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }

func liveOn(t *testing.T, f *fake, address string) (*Live, *bytes.Buffer) {
	t.Helper()
	a, err := (&dialer{address: address, timeout: 5 * time.Second}).dial()
	require.NoError(t, err)
	t.Cleanup(a.close)
	f.jobs["namespaces/default/jobs/a"] = &leaderdv1.Job{Name: "namespaces/default/jobs/a"}
	var out bytes.Buffer
	return &Live{
		Jobs: a.jobs, Runs: a.runs, Cluster: a.cluster, Out: &out,
		shown: map[string]map[string]bool{}, counts: map[leaderdv1.Run_State]int{},
	}, &out
}

func TestLiveShowsEachRunOnceWhenItEnds(t *testing.T) {
	f, addr := startFake(t)
	l, _ := liveOn(t, f, addr)
	const job = "namespaces/default/jobs/a"
	old := runOf(job, slot.Add(-time.Minute), leaderdv1.Run_STATE_SUCCEEDED, 0, time.Second)
	first := runOf(job, slot.Add(time.Second), leaderdv1.Run_STATE_SUCCEEDED, 2*time.Millisecond, time.Second)
	running := runOf(job, slot.Add(2*time.Second), leaderdv1.Run_STATE_RUNNING, 0, 0)
	running.Attempts[0].EndTime = nil
	f.runs = []*leaderdv1.Run{running, first, old}

	lines, status, err := l.round(t.Context(), slot)
	require.NoError(t, err)
	require.Equal(t, []string{"2026-11-30T02:00:02.002Z  default/a             20261130T020001Z    succeeded          +2ms  n1"}, lines)
	require.Equal(t, "leader n1  term 7  live 1  succeeded 1  p99 late 3ms", status)

	lines, _, err = l.round(t.Context(), slot)
	require.NoError(t, err)
	require.Empty(t, lines)

	skipped := &leaderdv1.Run{
		Name: job + "/runs/20261130T020003Z", State: leaderdv1.Run_STATE_SKIPPED, Reason: "overlap", SlotCount: 2,
		DueTime: f0(slot.Add(3 * time.Second)),
	}
	f.runs = []*leaderdv1.Run{skipped, runOf(job, slot.Add(2*time.Second), leaderdv1.Run_STATE_FAILED, 0, time.Second), first, old}
	lines, status, err = l.round(t.Context(), slot)
	require.NoError(t, err)
	require.Len(t, lines, 2)
	require.Contains(t, strings.Join(lines, "\n"), "skipped x2:overlap")
	require.Contains(t, status, "live 0  succeeded 1  failed 1  skipped 2")
}

// A job whose runs cannot be read takes away none of another's.
func TestLiveLosesNoRun(t *testing.T) {
	f, addr := startFake(t)
	l, _ := liveOn(t, f, addr)
	const first, second = "namespaces/default/jobs/a", "namespaces/default/jobs/b"
	f.jobs[second] = &leaderdv1.Job{Name: second}
	f.runs = []*leaderdv1.Run{
		runOf(first, slot.Add(time.Second), leaderdv1.Run_STATE_SUCCEEDED, 0, time.Second),
		runOf(second, slot.Add(time.Second), leaderdv1.Run_STATE_SUCCEEDED, 0, time.Second),
	}
	reads := 0
	f.fail = func(method string) error {
		if method == "ListRuns" {
			if reads++; reads == 2 {
				return status.Error(codes.Internal, "disk on fire")
			}
		}
		return nil
	}
	lines, _, err := l.round(t.Context(), slot)
	require.Error(t, err)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "default/a")
	lines, status, err := l.round(t.Context(), slot)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "default/b")
	require.Contains(t, status, "succeeded 2")
}

func TestLiveDrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	l := &Live{Out: &out, TTY: true}
	require.NoError(t, l.draw(nil, "status 1"))
	require.NoError(t, l.draw(nil, "status 1"))
	require.NoError(t, l.draw([]string{"a run"}, "status 1"))
	require.NoError(t, l.draw(nil, ""))
	line := noWrap + dim + "status 1" + plain + wrap
	require.Equal(t, line+eraseLine+"a run\n"+line+eraseLine, out.String())

	out.Reset()
	l = &Live{Out: &out}
	require.NoError(t, l.draw([]string{"a run"}, "status 1"))
	require.Equal(t, "a run\n", out.String(), "no terminal, no codes and no status")
}

// lineWriter tells when a text has come.
type lineWriter struct {
	mu   sync.Mutex
	text string
	want string
	seen chan struct{}
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.text, w.want)
	w.text += string(p)
	if !before && strings.Contains(w.text, w.want) {
		close(w.seen)
	}
	return len(p), nil
}

func TestDev(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{jobs: map[string]*leaderdv1.Job{}, actors: map[string]bool{}}
	const job = "namespaces/default/jobs/heartbeat"
	f.runs = []*leaderdv1.Run{runOf(job, time.Now().Add(time.Hour), leaderdv1.Run_STATE_SUCCEEDED, 0, time.Second)}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &lineWriter{want: "default/heartbeat", seen: make(chan struct{})}
	var dir string
	d := Deps{
		Environ: []string{}, Stdout: out, Stderr: io.Discard,
		Serve: func(ctx context.Context, cfg config.Config, _ hclog.Logger) error {
			if cfg.Listen == l.Addr().String() {
				dir = cfg.DataDir
				f.serve(t, l)
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	ended := make(chan int, 1)
	go func() {
		ended <- Main(ctx, d, []string{"dev", "--listen", l.Addr().String(), "--ops-listen", "127.0.0.1:7999"})
	}()
	<-out.seen
	cancel()
	require.Equal(t, 0, <-ended)
	require.Contains(t, out.text, "9 sample jobs")
	require.Len(t, f.jobs, 9)
	require.Equal(t, "http://127.0.0.1:7999/livez", f.jobs["namespaces/default/jobs/probe"].GetSpec().GetHttp().GetUrl())
	_, err = os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "what was for trying is thrown away")
}

func TestDevEndsWithItsNode(t *testing.T) {
	var errs bytes.Buffer
	d := Deps{
		Environ: []string{}, Stdout: io.Discard, Stderr: &errs,
		Serve: func(context.Context, config.Config, hclog.Logger) error { return net.ErrClosed },
	}
	require.Equal(t, 1, Main(t.Context(), d, []string{"dev", "--listen", "127.0.0.1:1"}))
	require.Equal(t, "error: use of closed network connection\n", errs.String())
}
