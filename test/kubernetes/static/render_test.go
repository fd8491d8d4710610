package static

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/test/kubernetes/schemas"
)

// kubernetes are the versions whose API must know all that the chart renders: the
// newest patch of each that the module proxy has.
var kubernetes = []string{"1.32.13", "1.33.13", "1.34.4", "1.35.4", "1.36.3", "1.37.2"}

func TestLint(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			out, complaints, err := run(t, nil, "helm", "lint", "--strict", "--kube-version", "1.37.0", "--namespace", namespace, "--values", file, chart)
			require.NoError(t, err, out+complaints)
			require.NotContains(t, out, "[WARNING]")
		})
	}
}

func TestGolden(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			rendered, refusal := template(t, "--values", file)
			require.Empty(t, refusal)
			golden := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				write(t, golden, []byte(rendered))
			}
			require.Equal(t, string(content(t, golden)), rendered, "if this is meant: make golden-chart")
		})
	}
}

func TestGoldenHasNoLeftovers(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		require.Contains(t, cases(t), strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
}

func TestAPIsKnowWhatIsRendered(t *testing.T) {
	custom := location(t, "custom", func(dir string) error {
		return schemas.Resources(t.Context(), dir, schemas.Custom)
	})
	for _, version := range kubernetes {
		core := location(t, version, func(dir string) error { return schemas.Kubernetes(t.Context(), version, dir) })
		for name, file := range cases(t) {
			t.Run(version+"/"+name, func(t *testing.T) {
				rendered, refusal := template(t, "--values", file, "--kube-version", version)
				require.Empty(t, refusal)
				out, complaints, err := run(t, []byte(rendered), "kubeconform", "-strict", "-schema-location", core, "-schema-location", custom)
				require.NoError(t, err, out+complaints)
			})
		}
	}
}

// TestSchemasFindMistakes has the schemas judge what is wrong.
func TestSchemasFindMistakes(t *testing.T) {
	version := kubernetes[len(kubernetes)-1]
	core := location(t, version, func(dir string) error { return schemas.Kubernetes(t.Context(), version, dir) })
	for mistake, manifest := range map[string]string{
		"field":   "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {prots: []}}",
		"type":    "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: many}]}}",
		"missing": "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {serviceName: a}}",
		"kind":    "{apiVersion: v1, kind: Sevrice, metadata: {name: a}}",
	} {
		t.Run(mistake, func(t *testing.T) {
			out, _, err := run(t, []byte(manifest), "kubeconform", "-strict", "-schema-location", core)
			require.Error(t, err)
			require.NotEmpty(t, out)
		})
	}
	out, complaints, err := run(t, []byte("{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80, targetPort: web}], clusterIP: null}}"),
		"kubeconform", "-strict", "-schema-location", core)
	require.NoError(t, err, out+complaints)
}

// location is where kubeconform looks for schemas, which are made if they are
// missing.
func location(t *testing.T, name string, write func(dir string) error) string {
	t.Helper()
	cache := os.Getenv("KUBERNETES_CACHE")
	require.NotEmpty(t, cache, "KUBERNETES_CACHE must be a folder to keep schemas in: use make test-kubernetes")
	dir := filepath.Join(cache, "schemas", name)
	require.NoError(t, write(dir))
	return filepath.Join(dir, "{{ .ResourceKind }}{{ .KindSuffix }}.json")
}

func TestPackages(t *testing.T) {
	dir := t.TempDir()
	out, complaints, err := run(t, nil, "helm", "package", chart, "--destination", dir)
	require.NoError(t, err, out+complaints)
	archives, err := filepath.Glob(filepath.Join(dir, "leaderd-*.tgz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
}
