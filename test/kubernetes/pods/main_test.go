package pods

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/leaderd/leaderd/test/kubernetes/cluster"
)

const (
	// registry is where the documentation has its images; the nodes have them already.
	registry = "registry.example.com"
	image    = registry + "/leaderd/leaderd"
	// tag is the image's as make gives it, next a second one of the same image.
	tag  = "test"
	next = "next"
	// patience bounds every wait for something that must happen.
	patience = 2 * time.Minute
)

var nodes = flag.Int("nodes", 1, "machines of the cluster, 1 or 3")

// kube is the cluster that all tests share; each has a namespace of its own there.
var kube *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	cluster.Main(func() int {
		code, err := run(m)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	})
}

func run(m *testing.M) (int, error) {
	tools, err := cluster.FindTools()
	if err != nil {
		return 0, err
	}
	archive, program := os.Getenv("LEADERD_IMAGE"), os.Getenv("LEADERD")
	if archive == "" || program == "" {
		return 0, errors.New("LEADERD_IMAGE must be leaderd's image and LEADERD the program: use make test-kubernetes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	begun := time.Now()
	if kube, err = cluster.Start(ctx, tools, *nodes, program, archive); err != nil {
		return 0, err
	}
	defer kube.Stop()
	if err := kube.Tag(image+":"+tag, image+":"+next); err != nil {
		return 0, err
	}
	fmt.Printf("the cluster is up after %s\n", time.Since(begun).Round(100*time.Millisecond))
	return m.Run(), nil
}

// restricted makes a namespace that takes only pods without any privilege.
func restricted(t *testing.T, name string) {
	t.Helper()
	kubectl(t, "create", "namespace", name)
	kubectl(t, "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	t.Cleanup(func() {
		if t.Failed() {
			report(t, name)
		}
	})
}

// report shows what a namespace's pods are about.
func report(t *testing.T, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, command := range [][]string{
		{"get", "pods", "-o", "wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"logs", "--selector", "leaderd/node=true", "--prefix", "--tail", "40"},
	} {
		out, err := kube.Kubectl(ctx, append(command, "--namespace", namespace)...)
		t.Log(out, err)
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kube.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kube.Helm(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// await asks until there is no error any more.
func await(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		require.False(t, time.Now().After(deadline), "%s: %v", what, err)
		time.Sleep(200 * time.Millisecond)
	}
}

// pods are those that a selector means, in order of name.
func pods(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	require.NoError(t, kube.Get(t.Context(), &all, "pods", "--namespace", namespace, "--selector", selector, "--sort-by=.metadata.name"))
	return all.Items
}

const (
	controls  = "app.kubernetes.io/component=control"
	executors = "app.kubernetes.io/component=executor"
	ours      = "leaderd/node=true"
)

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// awaitReady waits until there are n pods of a selector, and all are ready.
func awaitReady(t *testing.T, namespace, selector string, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d pods are ready", n), func() error {
		all, ready := pods(t, namespace, selector), 0
		for _, p := range all {
			if isReady(p) {
				ready++
			}
		}
		if ready != n || len(all) != n {
			return fmt.Errorf("%d of %d are", ready, len(all))
		}
		return nil
	})
}

// restarts is how often containers of pods were started again.
func restarts(all []corev1.Pod) (n int) {
	for _, p := range all {
		for _, c := range p.Status.ContainerStatuses {
			n += int(c.RestartCount)
		}
	}
	return n
}

// checkout is a folder that looks like a checkout of the project, with values.yaml
// and such beside it.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// client is leaderd's command line, run on the node.
type client struct {
	t   *testing.T
	env string
}

func (c client) run(args string) (string, error) {
	return kube.Run(c.t.Context(), kube.Dir, c.env+" leaderd "+args)
}

func (c client) must(args string) string {
	c.t.Helper()
	out, err := c.run(args)
	require.NoError(c.t, err)
	return out
}

// status is what `leaderd cluster status` says.
type status struct {
	Leader    string
	Watermark time.Time
	Nodes     []struct{ Name string }
}

func (c client) status() (s status, err error) {
	out, err := c.run("cluster status --timeout 2s -o json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// leader waits for one, other than those named.
func (c client) leader(not ...string) string {
	c.t.Helper()
	var leader string
	await(c.t, "there is a leader", func() error {
		s, err := c.status()
		if err != nil {
			return err
		}
		for _, name := range append(not, "") {
			if s.Leader == name {
				return fmt.Errorf("it is %q", name)
			}
		}
		leader = s.Leader
		return nil
	})
	return leader
}

// decided waits until every slot before an instant has its verdict.
func (c client) decided(then time.Time) {
	c.t.Helper()
	await(c.t, "slots are decided up to "+then.Format(time.TimeOnly), func() error {
		s, err := c.status()
		if err == nil && s.Watermark.Before(then) {
			err = fmt.Errorf("only up to %s", s.Watermark.Format(time.TimeOnly))
		}
		return err
	})
}
