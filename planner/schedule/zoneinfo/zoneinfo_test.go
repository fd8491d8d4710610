package zoneinfo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryZoneLoads(t *testing.T) {
	names := Names()
	require.Greater(t, len(names), 500)
	for _, name := range names {
		loc, err := Load(name)
		require.NoError(t, err)
		require.Equal(t, name, loc.String())
	}
	require.Regexp(t, `^20\d\d[a-z]$`, Version())
	for _, name := range []string{"", "Local", "Factory", "europe/berlin", "Europe/", "Europe", "../UTC"} {
		_, err := Load(name)
		require.ErrorIs(t, err, ErrUnknown, name)
	}
}

// The data says what its version says: 2025b ended the jumps of Paraguay's clock.
func TestData(t *testing.T) {
	loc, err := Load("America/Asuncion")
	require.NoError(t, err)
	for _, month := range []time.Month{time.January, time.July} {
		_, offset := time.Date(2026, month, 1, 12, 0, 0, 0, loc).Zone()
		require.Equal(t, -3*3600, offset)
	}
}

// A Go release that brings newer data must not go unnoticed.
func TestNoOlderThanGo(t *testing.T) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "lib", "time")
	script, err := os.ReadFile(filepath.Join(dir, "update.bash"))
	if err != nil {
		t.Skip("this Go release does not tell the version of its zone data: ", err)
	}
	found := regexp.MustCompile(`(?m)^CODE=(.*)$`).FindSubmatch(script)
	require.NotNil(t, found)
	require.LessOrEqual(t, string(found[1]), Version(), "run go generate ./planner/schedule/zoneinfo")
	if string(found[1]) == Version() {
		theirs, err := os.ReadFile(filepath.Join(dir, "zoneinfo.zip"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(theirs, archive), "not the data of this version")
	}
}
