package pods

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/test/kubernetes/cluster"
)

// TestPartition cuts the machine of the leader's pod off from all others, etcd
// included, until another pod leads and some more; for a while two may believe that
// they do. Nothing may start twice for it, and no slot be without a verdict.
func TestPartition(t *testing.T) {
	if *nodes < 3 {
		t.Skip("it needs three machines: make test-kubernetes-nodes")
	}
	r := install(t, "external", 3)
	r.must("job apply -f " + filepath.Join(r.dir, "jobs.yaml"))
	from := settled()
	r.decided(from.Add(3 * time.Second))

	var leader string
	var node *cluster.Node
	await(t, "the leader's machine can be cut off", func() error {
		leader = r.leader()
		if node = machineOf(t, r.namespace, leader); node != nil {
			return nil
		}
		// etcd and this test are on the first machine.
		kubectl(t, "delete", "pod", leader, "--namespace", r.namespace, "--force", "--grace-period=0")
		r.leader(leader)
		return errors.New("it is the first one")
	})
	awaitReady(t, r.namespace, ours, 6)

	require.NoError(t, node.Unplug())
	cut := time.Now()
	heir := r.leader(leader)
	t.Logf("%s of %s is cut off; %s leads after %s", leader, node.Name, heir, time.Since(cut).Round(time.Millisecond))
	r.decided(cut.Add(20 * time.Second))
	require.NoError(t, node.Plug())
	plugged := time.Now()
	awaitReady(t, r.namespace, ours, 6)
	t.Logf("all pods are ready %s after the end of the cut", time.Since(plugged).Round(time.Second))

	// Back to one start for each second, whoever leads.
	from = settled().Add(5 * time.Second)
	r.decided(from.Add(3 * time.Second))
	t.Logf("afterwards: %s", r.recorder.judge(jobCount, from, from.Add(3*time.Second)))
	r.recorder.neverTwice()
	t.Log(r.must("verify --since 1h"))
}

// machineOf is the machine of a pod, or nil if it is the first one.
func machineOf(t *testing.T, namespace, pod string) *cluster.Node {
	t.Helper()
	name := kubectl(t, "get", "pod", pod, "--namespace", namespace, "-o", "jsonpath={.spec.nodeName}")
	for _, n := range kube.Nodes[1:] {
		if n.Name == name {
			return n
		}
	}
	return nil
}
