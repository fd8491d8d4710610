package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dockerfile has the Dockerfile's instructions, with lines that go on joined.
func dockerfile(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	var all []string
	for line := range strings.SplitSeq(strings.ReplaceAll(string(content), "\\\n", " "), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// only is what follows the one instruction that begins so.
func only(t *testing.T, all []string, begin string) string {
	t.Helper()
	var found []string
	for _, line := range all {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			found = append(found, rest)
		}
	}
	require.Len(t, found, 1, begin)
	return found[0]
}

// TestDockerfileBuildsAlike: the program is built with the words of the Makefile.
func TestDockerfileBuildsAlike(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	flags := regexp.MustCompile(`go build ([^"']*)["']-s -w -X main\.version=[^"']*["'] -o \S+ (\./\S+)`)
	words := func(text string) []string {
		text = strings.Join(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(text, "\\\n", " "), "$(GO)", "go")), " ")
		found := flags.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found)
		return found[len(found)-1][1:]
	}
	_, recipe, ok := strings.Cut(string(makefile), "\nimage: ")
	require.True(t, ok)
	recipe, _, _ = strings.Cut(recipe, "\n##@")
	want := words(recipe)
	require.Equal(t, want, words(only(t, dockerfile(t), "RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH ")))
	require.Equal(t, []string{"-trimpath -buildvcs=false -ldflags ", "./cmd/leaderd"}, want)
}

// TestDockerfileHasTheSameFiles carries out the step that makes the files around
// the program.
func TestDockerfileHasTheSameFiles(t *testing.T) {
	const authorities = "/etc/ssl/certs/ca-certificates.crt"
	if _, err := os.Stat(authorities); err != nil {
		t.Skip("the Dockerfile takes the builder's authorities, and this machine has none in", authorities)
	}
	out := filepath.Join(t.TempDir(), "out")
	script := strings.ReplaceAll(only(t, dockerfile(t), "RUN mkdir "), "/out/", out+"/")
	if os.Geteuid() != 0 {
		script = strings.ReplaceAll(script, "chown 65532:65532", "true")
	}
	said, err := exec.CommandContext(t.Context(), "/bin/sh", "-ec", "umask 022; mkdir "+script).CombinedOutput()
	require.NoError(t, err, string(said))

	files, err := spec{created: time.Unix(0, 0)}.base()
	require.NoError(t, err)
	want := map[string]file{}
	for _, f := range files {
		want[f.name] = f
	}
	for _, made := range []string{"usr", "usr/local", "usr/local/bin"} { // go build makes these
		delete(want, made)
	}
	require.NoError(t, filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if path == out {
			return nil
		}
		name, err := filepath.Rel(out, path)
		require.NoError(t, err)
		f, ok := want[name]
		require.True(t, ok, "make image has no /%s", name)
		delete(want, name)
		require.Equal(t, f.content == nil, entry.IsDir(), name)
		info, err := entry.Info()
		require.NoError(t, err)
		mode := int64(info.Mode().Perm())
		if info.Mode()&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
		require.Equal(t, f.mode, mode, name)
		if !entry.IsDir() && name != authorities[1:] {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(f.content), string(content), name)
		}
		return nil
	}))
	require.Empty(t, want, "the Dockerfile does not make these")
}

// TestDockerfileSaysTheSame: how the program is run.
func TestDockerfileSaysTheSame(t *testing.T) {
	all := dockerfile(t)
	base, err := layer(time.Unix(0, 0), nil)
	require.NoError(t, err)
	image, err := spec{name: "n", version: "1"}.image(base, program{arch: "amd64"})
	require.NoError(t, err)
	cfg, err := image.ConfigFile()
	require.NoError(t, err)
	c := cfg.Config
	require.Equal(t, c.User, only(t, all, "USER "))
	require.Equal(t, `["`+strings.Join(c.Entrypoint, `", "`)+`"]`, only(t, all, "ENTRYPOINT "))
	require.Equal(t, `["`+strings.Join(c.Cmd, `", "`)+`"]`, only(t, all, "CMD "))
	require.Equal(t, strings.Join(c.Env, " "), only(t, all, "ENV "))
	last := slices.Index(all, "FROM scratch")
	require.Positive(t, last)
	require.Equal(t, c.WorkingDir, only(t, all[last:], "WORKDIR "))
	ports := strings.Fields(only(t, all, "EXPOSE "))
	require.Len(t, c.ExposedPorts, len(ports))
	for _, port := range ports {
		require.Contains(t, c.ExposedPorts, port+"/tcp")
	}
}
