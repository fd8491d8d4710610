package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/test/kubernetes/cluster"
	"github.com/leaderd/leaderd/test/kubernetes/schemas"
)

const chart = "../../../deploy/helm/leaderd"

// api is the server that all tests share; each has a namespace of its own there.
var api *cluster.API

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	tools, err := cluster.FindTools()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if api, err = cluster.StartAPI(ctx, tools, dir); err != nil {
		return 0, err
	}
	defer api.Stop()
	if _, err := api.Kubectl(ctx, "create", "namespace", "monitoring"); err != nil { // that some values name
		return 0, err
	}
	if err := customResources(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// customResources teaches the server the kinds that some values use.
func customResources(ctx context.Context) error {
	for _, source := range schemas.Custom {
		files, err := source.List(ctx)
		if err != nil {
			return err
		}
		for _, file := range files {
			if _, err := api.Kubectl(ctx, "apply", "--server-side", "-f", file); err != nil {
				return err
			}
		}
	}
	_, err := api.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	return err
}

// namespace makes one for the test, which enforces a level of Pod Security, and
// warns of the same.
func namespace(t *testing.T, level string) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	kubectl(t, "create", "namespace", name)
	kubectl(t, "label", "namespace", name, "pod-security.kubernetes.io/enforce="+level, "pod-security.kubernetes.io/warn="+level)
	return name
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := api.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := api.Helm(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// refused is what Helm has against what it must not do.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	out, err := api.Helm(t.Context(), args...)
	require.Error(t, err, out)
	return err.Error()
}

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
