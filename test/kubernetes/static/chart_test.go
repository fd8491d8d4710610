package static

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	chart     = "../../../deploy/helm/leaderd"
	release   = "jobs"
	namespace = "batch"
)

var update = flag.Bool("update", false, "write testdata/golden anew")

// tool is the path of a program that make builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("KUBERNETES_TOOLS")
	require.NotEmpty(t, dir, "KUBERNETES_TOOLS must be the folder of helm and kubeconform: use make test-kubernetes")
	return filepath.Join(dir, name)
}

// run is what a program says, and whether it succeeded.
func run(t *testing.T, input []byte, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), tool(t, name), args...)
	command.Stdin = bytes.NewReader(input)
	// Helm must not see the settings of who runs the tests.
	home := t.TempDir()
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err = command.Run()
	return out.String(), complaints.String(), err
}

// template is the chart rendered with the arguments, or what Helm has against it.
func template(t *testing.T, args ...string) (rendered, refusal string) {
	t.Helper()
	all := append([]string{"template", release, chart, "--namespace", namespace, "--kube-version", "1.37.0"}, args...)
	out, complaints, err := run(t, nil, "helm", all...)
	if err != nil {
		require.NotEmpty(t, complaints)
		return "", complaints
	}
	return out, ""
}

// objects are the rendered manifests.
type objects []map[string]any

// render renders the chart with arguments that it must accept.
func render(t *testing.T, args ...string) objects {
	t.Helper()
	rendered, refusal := template(t, args...)
	require.Empty(t, refusal)
	return parse(t, rendered)
}

func parse(t *testing.T, rendered string) objects {
	t.Helper()
	var all objects
	for document := range strings.SplitSeq("\n"+rendered, "\n---") {
		var object map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object), document)
		if object != nil {
			all = append(all, object)
		}
	}
	return all
}

// find decodes the one object of a kind and name.
func find[T any](t *testing.T, all objects, kind, name string) T {
	t.Helper()
	for _, object := range all {
		if object["kind"] != kind || at(object, "metadata", "name") != name {
			continue
		}
		content, err := yaml.Marshal(object)
		require.NoError(t, err)
		var typed T
		require.NoError(t, yaml.UnmarshalStrict(content, &typed))
		return typed
	}
	require.FailNow(t, "no "+kind+" "+name)
	panic("unreachable")
}

// has tells whether there is such an object.
func (all objects) has(kind, name string) bool {
	for _, object := range all {
		if object["kind"] == kind && at(object, "metadata", "name") == name {
			return true
		}
	}
	return false
}

// at is what an object has at a path, or nil.
func at(object map[string]any, path ...string) any {
	var now any = object
	for _, key := range path {
		fields, ok := now.(map[string]any)
		if !ok {
			return nil
		}
		now = fields[key]
	}
	return now
}

// cases are the examples of values beside the chart, by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]string{}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = file
	}
	return all
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	out, err := os.ReadFile(filepath.Clean(file))
	require.NoError(t, err)
	return out
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, content, 0o600))
}
