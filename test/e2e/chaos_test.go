package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	chaosMinutes = flag.Float64("chaos.minutes", 0, "how long TestChaos breaks things at random; 0: a short fixed selection")
	chaosSeed    = flag.Uint64("chaos.seed", 1, "what decides the faults and the changes of TestChaos")
	chaosJobs    = flag.Int("chaos.jobs", 240, "jobs of TestChaos, where it runs for minutes")
	chaosFaults  = flag.String("chaos.faults", "", "kinds of fault, with commas between, that alone TestChaos draws; default all")
	chaosMembers = flag.Int("chaos.members", 3, "members of etcd of TestChaos, where it runs for minutes")
)

// selection is the faults of a short run, one of each sort of victim.
var selection = []string{
	"node killed", "etcd leader killed", "node link silent", "node stopped", "leader key deleted",
	"etcd link silent", "etcd compacted", "no space in etcd", "disk full", "node starved of CPU",
}

// TestChaos breaks nodes, the network between them and to etcd, and etcd itself,
// while jobs run and are changed; then it mends all, and the whole history is
// checked. Its last lines are the figures.
//
// Without -chaos.minutes it is short, and its faults follow in a fixed order.
func TestChaos(t *testing.T) {
	nodes, executors, members, jobs := 3, 2, *chaosMembers, *chaosJobs
	if *chaosMinutes == 0 {
		t.Parallel()
		executors, members, jobs = 1, 3, 60
		short()
	}
	only(t, *chaosFaults)
	s := newSiege(t, nodes, executors, members)
	n, m := newNemesis(s, *chaosSeed), newMix(s, *chaosSeed, jobs)
	m.start()
	from := settled()
	s.awaitWatermark(from.Add(time.Second))

	stirring, calmDown := context.WithCancel(t.Context())
	var stir sync.WaitGroup
	stir.Go(func() { m.stir(stirring, 250*time.Millisecond) })
	if *chaosMinutes > 0 {
		n.rage(time.Now().Add(time.Duration(*chaosMinutes*float64(time.Minute))), 3*time.Second)
	} else {
		n.recite(selection, 100*time.Millisecond)
	}
	calmDown()
	stir.Wait()

	calm := time.Now()
	n.mendAll()
	for _, x := range s.nodes {
		x.readyWithin(2 * patience) // a node that led in vain tells of it for a minute
	}
	s.awaitNodes(len(s.nodes))
	s.awaitWatermark(time.Now().Add(time.Second))
	t.Logf("all is whole again %s after the last fault was mended", time.Since(calm).Round(time.Millisecond))
	m.revive(t)
	if err := m.idle(time.Now()); err != nil {
		t.Error(err) // the history is judged all the same
	}

	to := time.Now().Add(-time.Second).Truncate(time.Second)
	report(n, m, s.pastOf(to, s.ledger.all()), from, to)
}

// idle waits until every job has started after an instant, and says which do not.
// The machine may be busy with other things.
func (m *mix) idle(again time.Time) (err error) {
	limit := time.Now().Add(5 * patience)
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		left := map[string]bool{}
		for i := range m.size {
			left[m.name(i)] = true
		}
		for _, start := range m.recorded() {
			if start.At.After(again) {
				delete(left, start.Job)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d jobs do not start again: %v", len(left), slices.Sorted(maps.Keys(left)))
		}
	}
}

// only leaves those kinds in the catalogue, where any are named.
func only(t *testing.T, kinds string) {
	t.Helper()
	if kinds == "" {
		return
	}
	for kind := range strings.SplitSeq(kinds, ",") {
		require.True(t, slices.ContainsFunc(catalogue, func(k kindOfFault) bool { return k.name == kind }), "there is no fault %q", kind)
	}
	catalogue = slices.DeleteFunc(catalogue, func(k kindOfFault) bool { return !slices.Contains(strings.Split(kinds, ","), k.name) })
}

// short makes the faults of the catalogue brief.
func short() {
	for i := range catalogue {
		k := &catalogue[i]
		k.least, k.most = min(k.least, time.Second), min(k.most, 5*time.Second/2)
	}
}
