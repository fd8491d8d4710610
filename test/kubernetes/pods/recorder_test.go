package pods

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder is what the jobs call. It is the judge of when work really began: its
// clock is that of all pods.
type recorder struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	calls []call
}

// call is one beginning of work.
type call struct {
	job, run, attempt string
	slot, at          time.Time
}

func record(t *testing.T) *recorder {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(kube.Host, "0"))
	require.NoError(t, err)
	r := &recorder{t: t, url: "http://" + listener.Addr().String() + "/"}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		serving.Wait()
	})
	return r
}

func (r *recorder) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	at := time.Now()
	slot, err := time.Parse(time.RFC3339Nano, req.Header.Get("Leaderd-Slot"))
	if err != nil {
		return // a run that was triggered has none
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{
		job: req.Header.Get("Leaderd-Job"), run: req.Header.Get("Leaderd-Run"), attempt: req.Header.Get("Leaderd-Attempt"),
		slot: slot, at: at,
	})
}

// jobs is a job file with n jobs that call the recorder every second, whether or not the
// call before is over: on a busy machine it may not be.
func (r *recorder) jobs(n int) string {
	var file strings.Builder
	for i := range n {
		fmt.Fprintf(&file, "- {name: job-%03d, spec: {schedules: ['@every 1s'], overlap: allow, http: {url: %q}}}\n", i, r.url)
	}
	return file.String()
}

// between are the calls for slots in [from, to), of each job in order.
func (r *recorder) between(from, to time.Time) map[string][]call {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]call{}
	for _, c := range r.calls {
		if !c.slot.Before(from) && c.slot.Before(to) {
			all[c.job] = append(all[c.job], c)
		}
	}
	for _, calls := range all {
		slices.SortFunc(calls, func(a, b call) int { return a.slot.Compare(b.slot) })
	}
	return all
}

// judged is what came of a window.
type judged struct {
	starts          int
	p50, p99, worst time.Duration
	latest          call
}

func (j judged) String() string {
	ms := time.Millisecond
	return fmt.Sprintf("%d starts: p50 %s, p99 %s, worst %s late (%s of %s)",
		j.starts, j.p50.Round(ms), j.p99.Round(ms), j.worst.Round(ms), j.latest.job, j.latest.slot.Format(time.TimeOnly))
}

// judge demands that each of n jobs had exactly one start for each second of a
// window, none of them early. The window is decided, but a start that was claimed may
// be on its way yet.
func (r *recorder) judge(n int, from, to time.Time) judged {
	r.t.Helper()
	var found judged
	deadline := time.Now().Add(20 * time.Second)
	for {
		var wrong []string
		if found, wrong = r.look(n, from, to); len(wrong) == 0 {
			return found
		}
		if time.Now().After(deadline) {
			require.Empty(r.t, wrong, found)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// look tells what came of a window so far, and what is wrong with that.
func (r *recorder) look(n int, from, to time.Time) (found judged, wrong []string) {
	all := r.between(from, to)
	if len(all) != n {
		wrong = append(wrong, fmt.Sprintf("%d of %d jobs started at all", len(all), n))
	}
	var late []time.Duration
	var latest call
	for job, calls := range all {
		for i, c := range calls {
			late = append(late, c.at.Sub(c.slot))
			if c.at.Sub(c.slot) > latest.at.Sub(latest.slot) {
				latest = c
			}
			if c.at.Before(c.slot) {
				wrong = append(wrong, fmt.Sprintf("%s %s began early", job, c.slot))
			}
			if i == 0 {
				continue
			}
			switch gap := c.slot.Sub(calls[i-1].slot); {
			case gap == 0:
				wrong = append(wrong, fmt.Sprintf("%s %s began twice: run %s attempt %s, run %s attempt %s",
					job, c.slot, calls[i-1].run, calls[i-1].attempt, c.run, c.attempt))
			case gap != time.Second:
				wrong = append(wrong, fmt.Sprintf("%s: nothing between %s and %s", job, calls[i-1].slot, c.slot))
			}
		}
		if first, last := calls[0].slot.Sub(from), to.Sub(calls[len(calls)-1].slot); first >= time.Second || last > time.Second {
			wrong = append(wrong, fmt.Sprintf("%s: nothing in the first %s or the last %s", job, first, last))
		}
	}
	slices.Sort(wrong)
	slices.Sort(late)
	if len(late) > 0 {
		at := func(share float64) time.Duration { return late[int(share*float64(len(late)-1))] }
		found = judged{starts: len(late), p50: at(0.5), p99: at(0.99), worst: at(1), latest: latest}
	}
	return found, wrong
}

// neverTwice demands that no attempt at a slot of any job began twice, whatever else
// happened. A second attempt, after the first one's executor was lost, is what jobs
// ask for that must run at least once.
func (r *recorder) neverTwice() {
	r.t.Helper()
	seen, slots := map[string]bool{}, map[string]bool{}
	again := 0
	for job, calls := range r.between(time.Time{}, time.Now().Add(time.Hour)) {
		for _, c := range calls {
			slot := job + " " + c.slot.String()
			require.False(r.t, seen[slot+" "+c.attempt], "%s, attempt %s, began twice", slot, c.attempt)
			if slots[slot] {
				again++
			}
			seen[slot+" "+c.attempt], slots[slot] = true, true
		}
	}
	r.t.Logf("%d slots, none began twice in one attempt; %d had a second attempt", len(slots), again)
}
