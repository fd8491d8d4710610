package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrackRecordNamesTests holds the track record to the code: each scenario has
// tests that exist, or says what it waits for.
func TestTrackRecordNamesTests(t *testing.T) {
	p := readPage(t, "docs/track-record.md")
	named := regexp.MustCompile("^([a-z0-9/]+) (Test[A-Za-z0-9]+)$")
	seen := map[string]bool{}
	scenarios, _, ok := strings.Cut(p.text, "\n## ")
	require.True(t, ok)
	for _, row := range rows(scenarios) {
		require.Len(t, row, 4, "%v", row)
		id, tests, waits := row[0], row[2], row[3]
		require.False(t, seen[id], "%s is listed twice", id)
		seen[id] = true
		require.NotEmpty(t, tests+waits, "%s has no test and waits for nothing", id)
		for _, cell := range span.FindAllStringSubmatch(tests, -1) {
			m := named.FindStringSubmatch(cell[1])
			require.NotNil(t, m, "%s: %q is not a package and a test", id, cell[1])
			require.True(t, hasTest(t, m[1], m[2]), "%s: package %s has no %s", id, m[1], m[2])
		}
	}
	require.NotEmpty(t, seen)
}

// hasTest tells whether a package has a test.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(content), "\nfunc "+name+"(t ") {
			return true
		}
	}
	return false
}
