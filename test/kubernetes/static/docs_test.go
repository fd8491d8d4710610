package static

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var valuesFence = regexp.MustCompile("(?ms)^```yaml\n# values\n(.*?)^```$")

// TestDocumentedValues renders every example of values in the documentation, on top
// of the defaults.
func TestDocumentedValues(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	rendered := 0
	for _, page := range pages {
		for _, example := range valuesFence.FindAllSubmatch(content(t, page), -1) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			write(t, file, example[1])
			render(t, "--values", file)
			rendered++
		}
	}
	require.GreaterOrEqual(t, rendered, 2)
}

// TestNotes: what an installation says fits what it made.
func TestNotes(t *testing.T) {
	notes := func(args ...string) string {
		all := append([]string{"install", release, chart, "--namespace", namespace, "--dry-run=client"}, args...)
		out, complaints, err := run(t, nil, "helm", all...)
		require.NoError(t, err, complaints)
		_, notes, ok := strings.Cut(out, "\nNOTES:\n")
		require.True(t, ok)
		return notes
	}
	text := notes()
	for _, part := range []string{
		"3 control pods, etcd inside the control pods.",
		"helm test jobs --namespace batch --logs",
		"kubectl exec --namespace batch jobs-leaderd-0 -- leaderd cluster status",
		"kubectl port-forward --namespace batch service/jobs-leaderd 7400:7400",
		`jobs-leaderd-client: "true"`,
		"WARNING: tls.enabled is false",
	} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "WARNING: networkPolicy.enabled")
	text = notes("--values", cases(t)["single"])
	require.Contains(t, text, "1 control pod, ")
	require.Contains(t, text, "WARNING: networkPolicy.enabled is false, so every pod of the cluster reaches port 7400, and port 7403")
	text = notes("--values", cases(t)["external"])
	require.Contains(t, text, "4 executor pods, etcd at https://etcd-0.etcd.example.com:2379, ")
	require.NotContains(t, text, "WARNING")
}
