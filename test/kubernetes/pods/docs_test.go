package pods

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented are the commands of docs/kubernetes.md, by the names that comments
// before them give: the documentation is their one source.
var documented = regexp.MustCompile("(?ms)^<!-- run: ([a-z-]+) -->\n```sh\n(.*?)^```$")

// fences are all of its commands.
var fences = regexp.MustCompile("(?m)^(<!-- .* -->\n)?```sh$")

func page(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../../docs/kubernetes.md")
	require.NoError(t, err)
	return string(content)
}

// commands are those of a name, for a version of the image and a release in a
// namespace of that name.
func commands(t *testing.T, name, tag, namespace string) string {
	t.Helper()
	for _, m := range documented.FindAllStringSubmatch(page(t), -1) {
		if m[1] == name {
			script := strings.ReplaceAll(m[2], "=TAG", "="+tag)
			return strings.ReplaceAll(script, "--namespace leaderd", "--namespace "+namespace)
		}
	}
	require.FailNow(t, "docs/kubernetes.md has no commands named "+name)
	return ""
}

// TestDocumentedCommands: each is run by a test, or says why not.
func TestDocumentedCommands(t *testing.T) {
	run := map[string]bool{"install": true, "reach": true, "upgrade": true, "uninstall": true, "lost-volume": true}
	for _, m := range documented.FindAllStringSubmatch(page(t), -1) {
		require.True(t, run[m[1]], "no test runs the commands named %s", m[1])
		delete(run, m[1])
	}
	require.Empty(t, run)
	for _, m := range fences.FindAllStringSubmatch(page(t), -1) {
		require.Regexp(t, `^<!-- (run|not run): `, m[1], "commands without a word on whether they are run")
	}
}
