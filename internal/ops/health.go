package ops

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Check is one question about the process's health.
type Check struct {
	// Name of what is asked, such as planner; unique among the checks.
	Name string
	// Live makes a failure one of liveness too. Set it only for what depends on
	// nothing outside the process.
	Live bool
	// Func answers nil where all is well, or what is wrong, for people. It must
	// neither block nor ask anybody else. It may be called concurrently.
	Func func(now time.Time) error
}

// Health is the registry of a process's checks. Its methods may be called
// concurrently.
type Health struct {
	mu     sync.Mutex
	checks map[string]*entry
}

type entry struct {
	Check
	last *atomic.Pointer[time.Time] // of a heartbeat; nil for others
}

// NewHealth makes an empty registry: live and ready.
func NewHealth() *Health { return &Health{checks: map[string]*entry{}} }

// Add adds a check, in place of one with the same name. The function that it
// returns takes it away again, unless it was replaced meanwhile.
func (h *Health) Add(c Check) (remove func()) { return h.add(&entry{Check: c}) }

// Heartbeat adds a check of readiness on a loop: it fails while the last call of
// beat is longer than maxAge ago, counted from now at first. beat costs some
// nanoseconds. stop ends the check; a loop that is no longer meant to run, as at
// the end of a leadership, calls it.
func (h *Health) Heartbeat(name string, maxAge time.Duration) (beat, stop func()) {
	return h.heartbeat(name, maxAge, false)
}

// LiveHeartbeat is a Heartbeat that counts for liveness too.
func (h *Health) LiveHeartbeat(name string, maxAge time.Duration) (beat, stop func()) {
	return h.heartbeat(name, maxAge, true)
}

func (h *Health) heartbeat(name string, maxAge time.Duration, live bool) (beat, stop func()) {
	last := &atomic.Pointer[time.Time]{}
	beat = func() {
		now := time.Now()
		last.Store(&now)
	}
	beat()
	stop = h.add(&entry{last: last, Check: Check{Name: name, Live: live, Func: func(now time.Time) error {
		if age := now.Sub(*last.Load()); age > maxAge {
			return fmt.Errorf("no progress for %s, longer than %s", age.Round(time.Millisecond), maxAge)
		}
		return nil
	}}})
	return beat, stop
}

func (h *Health) add(e *entry) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[e.Name] = e
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.checks[e.Name] == e {
			delete(h.checks, e.Name)
		}
	}
}

// Result is what a check answered.
type Result struct {
	Name string
	Live bool
	Err  error
}

// Run asks every check, in order of name. A check that panics has failed.
func (h *Health) Run(now time.Time) []Result {
	entries := h.entries()
	out := make([]Result, 0, len(entries))
	for _, e := range entries {
		out = append(out, Result{Name: e.Name, Live: e.Live, Err: ask(e.Func, now)})
	}
	return out
}

// Ready answers nil where every check does, or the failed ones in one error.
func (h *Health) Ready(now time.Time) error {
	var failed []string
	for _, r := range h.Run(now) {
		if r.Err != nil {
			failed = append(failed, r.Name+": "+r.Err.Error())
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("not ready: %s", strings.Join(failed, "; "))
}

func (h *Health) entries() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*entry, 0, len(h.checks))
	for _, e := range h.checks {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func ask(f func(time.Time) error, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return f(now)
}

var (
	checkDesc = prometheus.NewDesc("leaderd_ops_check_ok",
		"1 where the health check passes, 0 where it fails.", []string{"check"}, nil)
	ageDesc = prometheus.NewDesc("leaderd_ops_heartbeat_age_seconds",
		"Time since the loop last made progress.", []string{"check"}, nil)
)

// Describe implements prometheus.Collector.
func (h *Health) Describe(ch chan<- *prometheus.Desc) {
	ch <- checkDesc
	ch <- ageDesc
}

// Collect implements prometheus.Collector.
func (h *Health) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, e := range h.entries() {
		ok := 1.0
		if ask(e.Func, now) != nil {
			ok = 0
		}
		ch <- prometheus.MustNewConstMetric(checkDesc, prometheus.GaugeValue, ok, e.Name)
		if e.last != nil {
			ch <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, now.Sub(*e.last.Load()).Seconds(), e.Name)
		}
	}
}
