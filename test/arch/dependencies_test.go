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

// TestDependenciesAreExplained holds docs/dependencies.md against both go.mod
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
	main := readMod(t, root)
	for _, module := range main.Require {
		if !module.Indirect {
			known[module.Path] = true
			require.True(t, rows[module.Path], "docs/dependencies.md says nothing about %s", module.Path)
		}
	}
	for _, tool := range readMod(t, filepath.Join(root, "tools")).Tool {
		known[tool.Path] = true
		require.True(t, rows[tool.Path], "docs/dependencies.md says nothing about the tool %s", tool.Path)
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
