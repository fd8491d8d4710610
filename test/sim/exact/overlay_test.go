package exact_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/test/sim/exact"
)

// TestOverlayFitsThisGo fails with a Go version whose library differs from what
// the overlay was written for.
func TestOverlayFitsThisGo(t *testing.T) {
	dir := t.TempDir()
	name, err := exact.Write(runtime.GOROOT(), dir) //nolint:staticcheck // the tree that this test was built from
	require.NoError(t, err)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(text, &overlay))
	require.NotEmpty(t, overlay.Replace)
	for from, to := range overlay.Replace {
		was, err := os.ReadFile(from)
		require.NoError(t, err)
		is, err := os.ReadFile(to)
		require.NoError(t, err)
		require.NotEqual(t, string(was), string(is), from)
	}
}

func TestOverlayRefusesAnotherLibrary(t *testing.T) {
	goroot := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(goroot, "src", "runtime"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(goroot, "src", "runtime", "rand.go"), []byte("package runtime"), 0o600))
	_, err := exact.Write(goroot, t.TempDir())
	require.ErrorContains(t, err, "rand.go has 0 times")
}
