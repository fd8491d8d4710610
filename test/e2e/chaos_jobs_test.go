package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// mix is the jobs of a chaos run and what is done to them meanwhile.
type mix struct {
	*siege
	seed uint64
	size int

	mu    sync.Mutex
	asked map[string]int // changes by kind
	told  map[codes.Code]int
}

func newMix(s *siege, seed uint64, size int) *mix {
	return &mix{siege: s, seed: seed, size: size, asked: map[string]int{}, told: map[codes.Code]int{}}
}

func (m *mix) name(i int) string { return fmt.Sprintf("job-%03d", i) }

// job is job i as its version v has it: its kind stays the same, its schedule
// and policies do not.
func (m *mix) job(i, v int) *leaderdv1.Job {
	rng := rand.New(rand.NewPCG(m.seed, uint64(i)<<20|uint64(v)))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	mark := fmt.Sprintf("v%d", v)
	spec := &leaderdv1.JobSpec{Schedules: []string{pick("@every 1s", "@every 2s", "@every 3s", "@every 5s", "@every 10s", "* * * * * *", "*/2 * * * * *", "1/4 * * * * *")}}
	if rng.IntN(2) == 0 {
		allowOverlap(spec)
	}
	if rng.IntN(3) == 0 {
		atMostOnce(spec)
	}
	query := url.Values{"mark": {mark}}
	command := ""
	switch kind := i % 20; {
	case kind < 2: // commands are dear
		command = pick("", "sleep 0.3", "sleep 2", "head -c 300000 /dev/zero | tr '\\0' x", "exit 3")
		spec.Schedules = []string{pick("@every 5s", "@every 7s", "@every 10s", "5/10 * * * * *")}
	case kind < 5: // longer than their interval
		query.Set("sleep", pick("3s", "6s", "9s"))
		spec.Schedules = []string{pick("@every 1s", "@every 2s", "*/3 * * * * *")}
		spec.Overlap = leaderdv1.Overlap_OVERLAP_SKIP
	case kind < 7:
		query.Set("status", "500")
	case kind < 9:
		query.Set("sleep", pick("100ms", "900ms"))
		spec.Schedules = []string{pick("3,18,33,48 * * * * *", "7-12 * * * * *", "* * * * *"), "@every 13s"}
	case kind < 10:
		selecting("kind", pick("executor", "both"))(spec)
	case kind < 11:
		spec.Timeout = seconds(1)
		query.Set("sleep", pick("500ms", "3s"))
		spec.Schedules = []string{"@every 4s"}
	}
	if command == "" && i%20 >= 2 {
		spec.Target = &leaderdv1.JobSpec_Http{Http: &leaderdv1.Http{Url: m.server.URL + "/?" + query.Encode()}}
	} else {
		spec.Target = &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{
			Shell: note("start") + "(" + command + "\n) ; code=$?\n" + note("end") + "exit $code\n",
			Env:   map[string]string{"WORK_FILE": m.file, "MARK": mark},
		}}
	}
	return &leaderdv1.Job{Name: jobName(m.name(i)), Spec: spec}
}

// start stores all jobs.
func (m *mix) start() {
	m.t.Helper()
	var jobs []*leaderdv1.Job
	for i := range m.size {
		jobs = append(jobs, m.job(i, 0))
	}
	m.apply(jobs...)
}

// stir changes jobs all the time, until the context ends: several at a time, each
// job by one at a time.
func (m *mix) stir(ctx context.Context, calm time.Duration) {
	const hands = 4
	var wg sync.WaitGroup
	for hand := range hands {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(m.seed, 1<<40+uint64(hand)))
			versions := map[int]int{}
			for {
				select {
				case <-time.After(time.Duration(rng.Int64N(int64(2 * hands * calm)))):
				case <-ctx.Done():
					return
				}
				i := rng.IntN(m.size/hands)*hands + hand
				versions[i]++
				m.change(ctx, rng.IntN(10), i, versions[i])
			}
		})
	}
	wg.Wait()
}

func (m *mix) change(ctx context.Context, kind, i, v int) {
	name := jobName(m.name(i))
	var what string
	var err error
	switch {
	case kind < 3:
		what = "edited"
		_, err = ask(ctx, m.api, leaderd.UpdateJob, &leaderdv1.UpdateJobRequest{Job: m.job(i, v), AllowMissing: true})
	case kind < 5:
		what = "paused"
		_, err = ask(ctx, m.api, leaderd.PauseJob, &leaderdv1.PauseJobRequest{Name: name})
	case kind < 7:
		what = "resumed"
		_, err = ask(ctx, m.api, leaderd.ResumeJob, &leaderdv1.ResumeJobRequest{Name: name})
	case kind < 8:
		what = "deleted"
		_, err = ask(ctx, m.api, leaderd.DeleteJob, &leaderdv1.DeleteJobRequest{Name: name})
	default:
		what = "triggered"
		_, err = ask(ctx, m.api, leaderd.TriggerJob, &leaderdv1.TriggerJobRequest{Name: name})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.asked[what]++
		return
	}
	m.told[status.Code(err)]++
}

// ask is try with a bound of its own: what it asks for may have been done though
// it answers an error.
func ask[Req, Resp any](ctx context.Context, a *api, method method[Req, Resp], req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return within(ctx, a, method, req)
}

// revive has every job be due again.
func (m *mix) revive(t testing.TB) {
	t.Helper()
	for i := range m.size {
		_, err := try(m.api, leaderd.GetJob, &leaderdv1.GetJobRequest{Name: jobName(m.name(i))})
		if err != nil {
			m.apply(m.job(i, 1<<19))
			continue
		}
		m.resume(m.name(i))
	}
}
