package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/mutant"
)

const root = "../.."

// TestMutants is a small part of `make mutants`: some guards that seeds miss soon,
// and two that take a scenario. The seeds do not repeat exactly here.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the simulation")
	}
	all, err := mutations("history,first-verdict,self-fence,at-most-once,slot-trust,checkpoint")
	require.NoError(t, err)
	p, err := build(t.Context(), root, t.TempDir(), false)
	require.NoError(t, err)
	h := &hunt{program: p, first: 1, seeds: 1, length: 10 * time.Minute}
	require.NoError(t, h.clean(t.Context(), all))
	for _, m := range all {
		t.Run(string(m.guard), func(t *testing.T) {
			h := *h
			h.seeds = 10
			if m.test != "" {
				h.seeds = 0 // seeds do not find it
			}
			f, err := h.run(t.Context(), m)
			require.NoError(t, err)
			require.False(t, f.survived(), "nothing fails without the guard")
			require.NotEmpty(t, f.broken)
			t.Logf("caught by seed %d: %s", f.first, strings.Join(f.broken, ", "))
		})
	}
}

// Every guard is in the table of docs/verification.md, with what breaks without it,
// and every rule is one of the checker's.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/verification.md")
	require.NoError(t, err)
	_, part, ok := strings.Cut(string(text), "\n## Mutants\n")
	require.True(t, ok)
	part, _, _ = strings.Cut(part, "\n## ")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*\\| (\\d+ .*) \\|$").FindAllStringSubmatch(part, -1) {
		rows[row[1]] = row[2]
	}
	require.Len(t, rows, len(mutant.Guards()))
	for _, g := range mutant.Guards() {
		require.Contains(t, rows, string(g))
	}
	named := map[string]bool{}
	for _, broken := range rows {
		for name := range strings.SplitSeq(broken, ", ") {
			named[name] = true
		}
	}
	for _, m := range scenarios {
		if m.breaks != "" {
			named[m.breaks] = true
		}
	}
	for name := range named {
		number, rule, _ := strings.Cut(name, " ")
		require.Regexp(t, `(?m)^\| `+number+` \|.*\*`+rule+`\*`, string(text), "the checker has no rule %s", name)
	}
}

func TestComplaints(t *testing.T) {
	out := `=== RUN   TestRandom/7
    chaos_test.go:145: 
        	Error Trace:	test/sim/check_test.go:110
        	Error:      	invariants are broken
        	Test:       	TestRandom/7
        	Messages:   	invariant 4 (overlap): job ns/j4 run 20000101T000002Z: attempt 1 was claimed with token 16 while 20000101T000001Z was live
        	            	invariant 4 (overlap): job ns/j4 run 20000101T000003Z: attempt 1 was claimed with token 18 while 20000101T000001Z was live
        	            	invariant 2 (doubled): job ns/a run 20000101T000018Z: has 2 verdicts or records
        	            	invariant 10 (held): job ns/a run 20000101T000002Z: took long
        	            	… and 3 more
    world_test.go:137: log of the cluster:
        the attempt was claimed before
--- FAIL: TestRandom (0.37s)
`
	broken, err := complaints(out)
	require.NoError(t, err)
	require.Equal(t, []string{"2 doubled", "4 overlap", "10 held"}, broken)

	_, err = complaints(strings.Replace(out, "invariant 2 (doubled): job", "job", 1))
	require.ErrorContains(t, err, "names no rule", "a sentence in another form is not overlooked")

	broken, err = complaints("=== RUN   TestRandom\npanic: deadlock\n\ngoroutine 1 [running]:\n")
	require.NoError(t, err)
	require.Equal(t, []string{"8 harm"}, broken)

	broken, err = complaints("    x_test.go:1: \n	Error:      	Should be true\n	Test:       	TestX\n")
	require.NoError(t, err)
	require.Empty(t, broken, "a test that fails otherwise breaks no invariant")
}

func TestMutations(t *testing.T) {
	all, err := mutations("")
	require.NoError(t, err)
	require.Len(t, all, len(mutant.Guards()))
	_, err = mutations("history,histori")
	require.ErrorContains(t, err, "not all guards")
}
