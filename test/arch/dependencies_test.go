package arch_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// modules are where dependencies and tools are pinned: our own module, and those
// beside it that keep it clean.
var modules = []string{".", "tools", "deploy", "test/kubernetes", "test/kubernetes/tools"}

// TestDependenciesAreExplained holds docs/dependencies.md against all go.mod
// files: each direct dependency and each tool has its row, and no row outlives
// its module.
func TestDependenciesAreExplained(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "dependencies.md"))
	require.NoError(t, err)
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(page, -1) {
		name := string(row[1])
		require.False(t, rows[name], "%s has two rows", name)
		rows[name] = true
	}

	known := map[string]bool{}
	for _, dir := range modules {
		mod := readMod(t, filepath.Join(root, dir))
		for _, module := range mod.Require {
			// What a module of tools alone requires is explained with the tools.
			if !module.Indirect && len(mod.Tool) == 0 && module.Path != self {
				known[module.Path] = true
				require.True(t, rows[module.Path], "docs/dependencies.md says nothing about %s of %s/go.mod", module.Path, dir)
			}
		}
		for _, tool := range mod.Tool {
			known[tool.Path] = true
			require.True(t, rows[tool.Path], "docs/dependencies.md says nothing about the tool %s of %s/go.mod", tool.Path, dir)
		}
	}
	for name := range rows {
		require.True(t, known[name], "docs/dependencies.md explains %s, which is no direct dependency", name)
	}
}

type modFile struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

func readMod(t *testing.T, dir string) modFile {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	command.Dir = dir
	out, err := command.Output()
	require.NoError(t, err)
	var mod modFile
	require.NoError(t, json.Unmarshal(out, &mod))
	require.NotEmpty(t, mod.Require)
	return mod
}
