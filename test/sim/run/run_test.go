package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/mutant"
)

func TestShrink(t *testing.T) {
	tried := 0
	small := shrink(attempt{seed: 7, seeds: 1, hours: 4, jobs: 6, without: "clock"}, func(a attempt) bool {
		tried++
		needs := strings.Split(a.without, ",")
		return a.hours >= 0.5 && a.jobs >= 2 && !slices.Contains(needs, "crash") && !slices.Contains(needs, "pause")
	})
	require.InDelta(t, 0.5, small.hours, 0)
	require.Equal(t, 2, small.jobs)
	require.EqualValues(t, 7, small.seed)
	left := strings.Split(small.without, ",")
	for _, kind := range kinds {
		require.Equal(t, kind != "crash" && kind != "pause", slices.Contains(left, kind), kind)
	}
	require.Len(t, left, len(kinds)-2, "each once")
	require.Less(t, tried, 40)

	all := attempt{seed: 7, seeds: 1, hours: 1, jobs: 6}
	require.Equal(t, all, shrink(all, func(attempt) bool { return false }), "what cannot be repeated stays")
}

// Whatever a random run does can be left out.
func TestKinds(t *testing.T) {
	text, err := os.ReadFile("../acts_test.go")
	require.NoError(t, err)
	var acts []string
	for _, m := range regexp.MustCompile(`(?m)^\t\{"([a-z]+)", \d+, `).FindAllStringSubmatch(string(text), -1) {
		acts = append(acts, m[1])
	}
	require.ElementsMatch(t, acts, kinds)
}

// A seed that fails only behind others is repeated with these, though they held.
func TestCommandRepeatsSeedsThatHeld(t *testing.T) {
	behind := attempt{seed: 7, seeds: 3, hours: 1, jobs: 6}
	require.Contains(t, behind.String(), "SEEDS=3 SEED=7 HOURS=1 JOBS=6 AGAIN=true")
	alone := attempt{seed: 9, seeds: 1, hours: 1, jobs: 6}
	require.NotContains(t, alone.String(), "AGAIN")
	text, err := os.ReadFile("../../../Makefile")
	require.NoError(t, err)
	require.Contains(t, string(text), "-again=$(AGAIN)")
}

func TestListener(t *testing.T) {
	var all []heldSeed
	l := &listener{heard: func(h heldSeed) { all = append(all, h) }}
	for _, part := range []string{"=== RUN\nseed 7 he", "ld, digest 00000000000000ab\nseed 8 held, digest 01", "\nseed 9: 3 acts\npanic: x\n"} {
		_, err := l.Write([]byte(part))
		require.NoError(t, err)
	}
	require.Equal(t, []heldSeed{{7, "00000000000000ab"}, {8, "01"}}, all)
	require.Equal(t, "seed 9: 3 acts\npanic: x\n", l.rest.String())
}

func TestFinishedSeedsAreSkipped(t *testing.T) {
	dir, digest := t.TempDir(), "00000000000000ab"
	a := attempt{seed: 1, seeds: 1, hours: 1, jobs: 6}
	f, err := openFinished(dir, "sum", a)
	require.NoError(t, err)
	for _, seed := range []uint64{3, 4, 12} {
		require.NoError(t, f.add(heldSeed{seed, digest}))
	}
	_, err = f.file.WriteString("15 00000") // killed in the middle
	require.NoError(t, err)
	f.close()

	f, err = openFinished(dir, "sum", a)
	require.NoError(t, err)
	defer f.close()
	r := &runner{options: options{seeds: 15, first: 1, hours: 1, jobs: 6, batch: 5}, finished: f}
	var firsts []uint64
	var sizes []int
	all, n := r.batches()
	for _, b := range all {
		firsts, sizes = append(firsts, b.seed), append(sizes, b.seeds)
	}
	require.Equal(t, 12, n)
	require.Equal(t, []uint64{1, 5, 10, 13}, firsts)
	require.Equal(t, []int{2, 5, 2, 3}, sizes)

	r.again = true
	_, n = r.batches()
	require.Equal(t, 15, n)
	for name, other := range map[string]struct {
		sum string
		a   attempt
	}{"another program": {"other", a}, "other options": {"sum", attempt{hours: 2, jobs: 6}}} {
		f, err := openFinished(dir, other.sum, other.a)
		require.NoError(t, err)
		require.Empty(t, f.seeds, name)
		f.close()
	}
}

// TestFailedSeedIsShrunk runs a program that lacks a guard: the run stops at the
// first seed that fails, and ends with the command of a smaller one that does.
func TestFailedSeedIsShrunk(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the simulation")
	}
	dir := t.TempDir()
	p := &program{path: filepath.Join(dir, "sim.test"), env: append(os.Environ(), mutant.Env+"="+string(mutant.Early))}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "mutants", "-o", p.path, "./test/sim")
	build.Dir = "../../.."
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))
	var out bytes.Buffer
	r := &runner{
		options: options{
			seeds: 50, first: 1, hours: 0.25, jobs: 6, batch: 2, processes: 1, shrink: true, dir: dir, limit: 5 * time.Minute,
			// Less to leave out, and to wait for.
			without: strings.Join(kinds[5:], ","),
		},
		program: p, out: &out, begun: time.Now(), digests: map[uint64]string{},
	}
	r.finished, err = openFinished(dir, "", r.attempt(0))
	require.NoError(t, err)
	defer r.finished.close()
	err = r.run(context.Background())
	require.ErrorContains(t, err, "broke an invariant")
	text := out.String()
	require.Contains(t, text, "FAILED")
	require.Contains(t, text, "invariant 3 (early)")
	m := regexp.MustCompile(`seed (\d+), smaller:  make sim SEEDS=1 SEED=(\d+) HOURS=([0-9.]+) JOBS=(\d) WITHOUT=(\S+)`).FindStringSubmatch(text)
	require.NotNil(t, m, text)
	require.Equal(t, m[1], m[2])
	require.Less(t, m[4], "6")
	require.Less(t, m[3], "0.25")
	require.Len(t, strings.Split(m[5], ","), len(kinds), "no fault is needed")
	require.LessOrEqual(t, r.held, 10)
}
