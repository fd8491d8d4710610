package mutant

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every guard can be turned off somewhere, and is in the table of the proof.
func TestEveryGuardIsUsed(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"../../state/store", "../../executor", "../../planner"} {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			text, err := os.ReadFile(dir + "/" + f.Name())
			require.NoError(t, err)
			code.Write(text)
		}
	}
	names, err := os.ReadFile("mutant.go")
	require.NoError(t, err)
	seen := map[Guard]bool{}
	for line := range strings.SplitSeq(string(names), "\n") {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, value, of := strings.Cut(rest, "Guard = \""); ok && of {
			value, _, _ = strings.Cut(value, "\"")
			require.Contains(t, code.String(), "mutant.Off(mutant."+name+")", "nothing turns it off")
			require.True(t, slices.Contains(Guards(), Guard(value)), value)
			seen[Guard(value)] = true
		}
	}
	require.Len(t, seen, len(Guards()))
}
