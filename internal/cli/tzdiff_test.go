package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// zoneFile is the least zone file there is: one hour ahead of UTC, and a rule.
func zoneFile(footer string) []byte {
	head := func(version byte) []byte {
		b := append([]byte("TZif"), version)
		b = append(b, make([]byte, 15)...)
		for _, n := range []byte{0, 0, 0, 0, 1, 4} { // one type, four bytes of names
			b = append(b, 0, 0, 0, n)
		}
		return append(b, 0, 0, 0x0e, 0x10, 0, 0, 'X', 'X', 'X', 0)
	}
	return append(append(head('2'), head('2')...), []byte("\n"+footer+"\n")...)
}

func TestZoneDiff(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "Europe"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), zoneFile("XXX-1"), 0o600)) // no summer time
	require.NoError(t, os.WriteFile(filepath.Join(dir, "+VERSION"), []byte("2099a\n"), 0o600))
	run := func(args ...string) (string, int) {
		var stdout, stderr bytes.Buffer
		code := Main(t.Context(), Deps{Environ: []string{}, Stdout: &stdout, Stderr: &stderr}, append([]string{"cron", "tzdiff"}, args...))
		return stdout.String() + stderr.String(), code
	}
	out, code := run("0 12 * * *", "--zone", "Europe/Berlin", "--data", dir, "--from", "2027-03-26T12:00:00Z", "--until", "2027-03-29T12:00:00Z")
	require.Zero(t, code, out)
	require.Contains(t, out, "compared with 2099a")
	require.Contains(t, out, "2027-03-28T10:00:00Z  2027-03-28T11:00:00Z")
	require.NotContains(t, out, "2027-03-27")
	out, code = run("0 12 * * *", "--zone", "Europe/Berlin", "--data", dir, "--from", "2027-01-01T00:00:00Z", "--until", "2027-02-01T00:00:00Z")
	require.Zero(t, code, out)
	require.Contains(t, out, "no slot moves")
	out, code = run("--data", dir)
	require.Equal(t, 2, code)
	require.Contains(t, out, "give schedules, or -f with jobs")
	out, code = run("0 12 * * *", "--data", filepath.Join(dir, "none"))
	require.Equal(t, 2, code)
	require.Contains(t, out, "--data: ")
}
