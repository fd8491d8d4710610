package pods

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// inside runs the command line in a control pod, as the documentation does.
func inside(t *testing.T, namespace string, args ...string) (string, error) {
	t.Helper()
	return kube.Kubectl(t.Context(), append([]string{"exec", "--namespace", namespace, "leaderd-0", "--", "leaderd"}, args...)...)
}

// past are the names of all runs that are over.
func past(t *testing.T, namespace string) []string {
	t.Helper()
	var names []string
	await(t, "the history can be read", func() error {
		out, err := inside(t, namespace, "run", "list", "--all-namespaces", "--limit", "0", "-o", "json")
		if err != nil {
			return err
		}
		var runs []struct{ Name, State string }
		if err := json.Unmarshal([]byte(out), &runs); err != nil {
			return err
		}
		names = nil
		for _, r := range runs {
			if strings.HasSuffix(r.State, "SUCCEEDED") {
				names = append(names, r.Name)
			}
		}
		return nil
	})
	return names
}

// grows waits until there are more runs than before, which all are still there.
func grows(t *testing.T, namespace string, before []string) []string {
	t.Helper()
	now := before
	await(t, "jobs run", func() error {
		if now = past(t, namespace); len(now) < len(before)+3 {
			return fmt.Errorf("%d runs, before %d", len(now), len(before))
		}
		return nil
	})
	for _, name := range before {
		require.True(t, slices.Contains(now, name), "%s is gone", name)
	}
	return now
}

// TestEmbeddedEtcd does what the documentation says of an installation with etcd
// inside: installs it, loses all pods, then a volume, upgrades and removes it.
func TestEmbeddedEtcd(t *testing.T) {
	const namespace = "inside"
	restricted(t, namespace)
	dir := checkout(t, map[string]string{"values.yaml": `
image: {registry: ` + registry + `}
control: {minReadySeconds: 1, preStopSleepSeconds: 1}
jobs:
  - {name: often, spec: {schedules: ["@every 1s"], noop: {}}}
`})
	begun := time.Now()
	out, err := kube.Run(t.Context(), dir, commands(t, "install", tag, namespace))
	require.NoError(t, err)
	require.Contains(t, out, "Succeeded")
	t.Logf("installed as documented, with a test, after %s", time.Since(begun).Round(100*time.Millisecond))
	awaitReady(t, namespace, controls, 3)
	_, err = kube.Run(t.Context(), dir, commands(t, "upgrade", tag, namespace))
	require.NoError(t, err, "the values come with it")
	runs := grows(t, namespace, nil)

	t.Run("from this machine", func(t *testing.T) {
		out, err := kube.Run(t.Context(), dir, inBackground(commands(t, "reach", tag, namespace)))
		require.NoError(t, err)
		require.Contains(t, out, "often")
	})
	t.Run("all pods at once", func(t *testing.T) {
		kubectl(t, "delete", "pods", "--namespace", namespace, "--selector", controls, "--force", "--grace-period=0")
		killed := time.Now()
		awaitReady(t, namespace, controls, 3)
		t.Logf("all are ready again after %s", time.Since(killed).Round(100*time.Millisecond))
		runs = grows(t, namespace, runs)
	})
	t.Run("a lost volume", func(t *testing.T) {
		const claim = "data-leaderd-2"
		volume := volumeOf(t, namespace, claim)
		lost := time.Now()
		_, err := kube.Run(t.Context(), dir, commands(t, "lost-volume", tag, namespace))
		require.NoError(t, err)
		await(t, "there is another volume", func() error {
			if now := volumeOf(t, namespace, claim); now == "" || now == volume {
				return fmt.Errorf("it is %q", now)
			}
			return nil
		})
		awaitReady(t, namespace, controls, 3)
		t.Logf("the member without data is one again after %s", time.Since(lost).Round(100*time.Millisecond))
		runs = grows(t, namespace, runs)
		// It counts: the two others are not needed both.
		kubectl(t, "delete", "pod", "leaderd-1", "--namespace", namespace, "--force", "--grace-period=0")
		runs = grows(t, namespace, runs)
		awaitReady(t, namespace, controls, 3)
	})
	out, err = inside(t, namespace, "verify", "--since", "1h")
	require.NoError(t, err)
	t.Log(out)
	require.Zero(t, restarts(pods(t, namespace, ours)), "nothing had to be restarted in its place")

	_, err = kube.Run(t.Context(), dir, commands(t, "uninstall", tag, namespace))
	require.NoError(t, err)
	require.Empty(t, kubectl(t, "get", "statefulsets,services,persistentvolumeclaims,configmaps,networkpolicies", "--namespace", namespace,
		"--selector", "app.kubernetes.io/instance=leaderd", "--output", "name"))
}

func volumeOf(t *testing.T, namespace, claim string) string {
	t.Helper()
	var all corev1.PersistentVolumeClaimList
	require.NoError(t, kube.Get(t.Context(), &all, "persistentvolumeclaims", "--namespace", namespace))
	for _, c := range all.Items {
		if c.Name == claim && c.DeletionTimestamp == nil {
			return c.Spec.VolumeName
		}
	}
	return ""
}

// inBackground has the first command of a script run beside the others, as in a
// second terminal.
func inBackground(script string) string {
	first, rest, _ := strings.Cut(script, "\n")
	return first + " >/dev/null &\ntrap 'kill $!' EXIT\n" +
		"for i in 1 2 3 4 5 6 7 8 9 10; do leaderd cluster status --timeout 1s >/dev/null 2>&1 && break; sleep 0.3; done\n" + rest
}
