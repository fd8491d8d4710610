package ops

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Check is one question about the process's health.
type Check struct {
	// Name of what is asked, such as planner; unique among the checks.
	Name string
	// Func answers nil where all is well, or what is wrong, for people. It must
	// neither block nor ask anybody else. It may be called concurrently.
	Func func(now time.Time) error
}

// Health is the registry of a process's checks. Its methods may be called
// concurrently.
type Health struct {
	mu     sync.Mutex
	checks map[string]*Check
}

// NewHealth makes an empty registry, which is ready.
func NewHealth() *Health { return &Health{checks: map[string]*Check{}} }

// Add adds a check, in place of one with the same name. The function that it
// returns takes it away again, unless it was replaced meanwhile.
func (h *Health) Add(c Check) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[c.Name] = &c
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.checks[c.Name] == &c {
			delete(h.checks, c.Name)
		}
	}
}

// Result is what a check answered.
type Result struct {
	Name string
	Err  error
}

// Run asks every check, in order of name. A check that panics has failed.
func (h *Health) Run(now time.Time) []Result {
	entries := h.entries()
	out := make([]Result, 0, len(entries))
	for _, e := range entries {
		out = append(out, Result{Name: e.Name, Err: ask(e.Func, now)})
	}
	return out
}

func (h *Health) entries() []*Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.checks), func(a, b *Check) int { return strings.Compare(a.Name, b.Name) })
}

func ask(f func(time.Time) error, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return f(now)
}

var checkDesc = prometheus.NewDesc("leaderd_ops_check_ok",
	"1 where the health check passes, 0 where it fails.", []string{"check"}, nil)

// Describe implements prometheus.Collector.
func (h *Health) Describe(ch chan<- *prometheus.Desc) { ch <- checkDesc }

// Collect implements prometheus.Collector.
func (h *Health) Collect(ch chan<- prometheus.Metric) {
	for _, r := range h.Run(time.Now()) {
		ok := 1.0
		if r.Err != nil {
			ok = 0
		}
		ch <- prometheus.MustNewConstMetric(checkDesc, prometheus.GaugeValue, ok, r.Name)
	}
}
