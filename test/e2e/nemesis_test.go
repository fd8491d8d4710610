package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// nemesis breaks a cluster in random ways and mends it again. A seed decides what
// it does and when, not what comes of it. Its methods are the test goroutine's.
type nemesis struct {
	*siege
	rng  *rand.Rand
	open []*fault // under way
	past []*fault // mended
	// died counts nodes that ended by themselves and were started again.
	died int
}

// fault is one thing that is or was broken.
type fault struct {
	kind, what string
	holds      []string // the parts that nothing else may break meanwhile
	begun      time.Time
	until      time.Time // when it is to be mended
	mended     time.Time
	mend       func() // nil where there is nothing to mend
}

// mostFaults is how many are under way at a time.
const mostFaults = 2

func newNemesis(s *siege, seed uint64) *nemesis {
	return &nemesis{siege: s, rng: rand.New(rand.NewPCG(seed, 1))}
}

// span is a random duration.
func (n *nemesis) span(from, to time.Duration) time.Duration {
	return from + time.Duration(n.rng.Int64N(int64(to-from)+1))
}

// free tells whether nothing that is under way holds any of the parts.
func (n *nemesis) free(parts ...string) bool {
	return !slices.ContainsFunc(n.open, func(f *fault) bool {
		return slices.ContainsFunc(f.holds, func(p string) bool { return slices.Contains(parts, p) })
	})
}

// victim is a random node that is whole, the leader as often as all others
// together; nil where there is none.
func (n *nemesis) victim(want func(*node) bool) *node {
	var whole []*node
	for _, x := range n.nodes {
		if n.free(x.name) && (want == nil || want(x)) {
			whole = append(whole, x)
		}
	}
	if len(whole) == 0 {
		return nil
	}
	if n.rng.IntN(2) == 0 {
		if i := slices.IndexFunc(whole, func(x *node) bool { return x.name == n.presentLeader() }); i >= 0 {
			return whole[i]
		}
	}
	return whole[n.rng.IntN(len(whole))]
}

func (n *nemesis) control(x *node) bool { return len(n.wires[x.name].store) > 0 }

// rage breaks something now and then until an instant.
func (n *nemesis) rage(until time.Time, calm time.Duration) {
	n.t.Helper()
	next := time.Now().Add(calm)
	for time.Now().Before(until) {
		n.rest(next)
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(n.span(calm/4, 2*calm))
		if len(n.open) < mostFaults {
			n.strike(n.choose())
		}
	}
	n.mendAll()
}

// recite breaks things in the given order, each after the one before was mended.
func (n *nemesis) recite(kinds []string, calm time.Duration) {
	n.t.Helper()
	for _, kind := range kinds {
		i := slices.IndexFunc(catalogue, func(k kindOfFault) bool { return k.name == kind })
		if i < 0 {
			n.t.Fatalf("there is no fault %q", kind)
		}
		n.strike(&catalogue[i])
		for len(n.open) > 0 {
			n.rest(n.open[0].until)
		}
		pass(n.t, calm)
	}
}

// choose is a random kind of fault.
func (n *nemesis) choose() *kindOfFault {
	total := 0
	for i := range catalogue {
		total += catalogue[i].weight
	}
	at := n.rng.IntN(total)
	for i := range catalogue {
		if at -= catalogue[i].weight; at < 0 {
			return &catalogue[i]
		}
	}
	panic("unreachable: the weights add up to their total")
}

// strike breaks something of that kind, if there is something whole to break.
func (n *nemesis) strike(kind *kindOfFault) {
	n.t.Helper()
	f := &fault{kind: kind.name, begun: time.Now()}
	f.until = f.begun.Add(n.span(kind.least, kind.most))
	if !kind.begin(n, f) {
		return
	}
	n.t.Logf("%s %s: %s, for %s", f.begun.UTC().Format(clockLayout), f.kind, f.what, f.until.Sub(f.begun).Round(time.Millisecond))
	n.open = append(n.open, f)
}

const clockLayout = "15:04:05.000"

// rest waits until an instant, or until something is to be mended, and mends what
// is due.
func (n *nemesis) rest(until time.Time) {
	n.t.Helper()
	for _, f := range n.open {
		if f.until.Before(until) {
			until = f.until
		}
	}
	pass(n.t, time.Until(until))
	n.mendUntil(time.Now())
	n.revive()
}

func (n *nemesis) mendUntil(now time.Time) {
	n.t.Helper()
	for _, f := range slices.Clone(n.open) {
		if f.until.After(now) {
			continue
		}
		if f.mend != nil {
			f.mend()
		}
		f.mended = time.Now()
		n.past = append(n.past, f)
		n.open = slices.DeleteFunc(n.open, func(o *fault) bool { return o == f })
	}
}

func (n *nemesis) mendAll() {
	n.t.Helper()
	n.mendUntil(time.Now().Add(time.Hour))
	n.revive()
}

// revive starts nodes anew that ended by themselves, as a supervisor does.
func (n *nemesis) revive() {
	n.t.Helper()
	for _, x := range n.nodes {
		if n.free(x.name) && !x.running() {
			n.t.Logf("%s ended by itself: %s; started anew", x.name, x.cmd.ProcessState)
			n.died++
			x.start()
		}
	}
}

// during are the kinds of the faults that were under way or mended less than
// after ago, at any time from from to to.
func (n *nemesis) during(from, to time.Time, after time.Duration) []string {
	var kinds []string
	for _, f := range n.past {
		if f.begun.Before(to) && f.mended.Add(after).After(from) && !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// counts tells how many faults of each kind there were.
func (n *nemesis) counts() map[string]int {
	out := map[string]int{}
	for _, f := range n.past {
		out[f.kind]++
	}
	return out
}

func (f *fault) hold(what string, parts ...string) {
	f.what, f.holds = what, parts
}

// name is what a fault of several nodes says it hits.
func names(nodes []*node) string {
	var all []string
	for _, x := range nodes {
		all = append(all, x.name)
	}
	return fmt.Sprint(all)
}
