//go:build !mutants

package mutant_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	// All that has guards: this test's program is the product, built as releases are.
	_ "github.com/leaderd/leaderd/executor"
	_ "github.com/leaderd/leaderd/planner"
	_ "github.com/leaderd/leaderd/state/store"
)

// A build without the tag cannot have a guard turned off: it does not even know
// the variable that says which.
func TestReleaseHasNoMutants(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	data, err := os.ReadFile(program)
	require.NoError(t, err)
	word := strings.Join([]string{"LEADERD", "MUTANT"}, "_") // so that it is not this test that has it
	require.False(t, bytes.Contains(data, []byte(word)), "a release would read %s", word)
	// Nothing else may turn a guard off, and a release is built without the tag.
	users, err := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{$p := .ImportPath}}{{range .Imports}}{{if eq . "github.com/leaderd/leaderd/internal/mutant"}}{{$p}} {{end}}{{end}}`,
		"-deps", "../../cmd/leaderd").Output()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"github.com/leaderd/leaderd/executor", "github.com/leaderd/leaderd/planner", "github.com/leaderd/leaderd/state/store",
	}, strings.Fields(string(users)), "what else uses it has to be linked into this test")
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	_, build, ok := strings.Cut(string(makefile), "\nbuild:")
	require.True(t, ok)
	build, _, _ = strings.Cut(build, "\n\n")
	require.NotContains(t, build, "-tags")
}
