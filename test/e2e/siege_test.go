package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/test/etcdtest"
	"github.com/leaderd/leaderd/test/faultproxy"
)

// callLimit is what etcd gets to answer the nemesis: it may be the victim.
const callLimit = 5 * time.Second

// diskSize is the size of each node's disk, where the test may mount one.
const diskSize = "16m"

// siege is a cluster all of whose parts can be broken: each of its nodes reaches
// each member of etcd through a proxy of its own, and is reached by the other
// nodes through one; the members are processes; each node has a small disk.
type siege struct {
	*cluster
	wires  map[string]*wires
	disks  bool // the test may mount
	ledger *ledger
}

// wires are the proxies of one node.
type wires struct {
	store []*faultproxy.Proxy // to the members, none of an executor-only node
	peers *faultproxy.Proxy   // from other nodes
}

func (w *wires) all() []*faultproxy.Proxy { return append([]*faultproxy.Proxy{w.peers}, w.store...) }

// newSiege makes nodes n1, n2, … with both roles and x1, x2, … that only execute,
// on an etcd of so many members, and starts them.
func newSiege(t testing.TB, nodes, executors, members int) *siege {
	t.Helper()
	w := newWorkshop(t)
	server := startEtcd(t, etcdtest.WithMembers(members), etcdtest.WithQuota(1<<30))
	s := &siege{cluster: &cluster{workshop: w, t: t, etcd: server}, wires: map[string]*wires{}}
	s.ledger = follow(t, server.Client())
	var addresses, reached []string
	for i := range nodes {
		n := s.add(fmt.Sprintf("n%d", i+1))
		wire := s.wires[n.name]
		var endpoints []string
		for _, endpoint := range server.Endpoints() {
			p := faultproxy.Start(t, endpoint)
			wire.store = append(wire.store, p)
			endpoints = append(endpoints, "http://"+p.Addr())
		}
		n.args = append(n.args, "--etcd-endpoints="+strings.Join(endpoints, ","))
		addresses = append(addresses, n.api)
		reached = append(reached, wire.peers.Addr())
	}
	for i := range executors {
		n := s.add(fmt.Sprintf("x%d", i+1))
		n.args = append(n.args, "--roles=executor", "--control-addresses="+strings.Join(reached, ","))
	}
	s.api = newAPI(t, addresses...)
	s.startAll()
	return s
}

func (s *siege) add(name string) *node {
	s.t.Helper()
	kind := "both"
	if strings.HasPrefix(name, "x") {
		kind = "executor"
	}
	n := s.node(name, "--labels=name="+name+",kind="+kind, "--executor-drain-grace=3s", "--executor-output-max-bytes=64MiB",
		"--retention-max-runs=100000") // all of a long siege is judged
	s.wires[name] = &wires{peers: faultproxy.Start(s.t, n.api)}
	n.args = append(n.args, "--advertise="+s.wires[name].peers.Addr())
	s.mount(n)
	return n
}

func (s *siege) disk(n *node) string { return filepath.Join(s.dir, n.name) }

// mount gives a node a disk of its own, where the test has leave to.
func (s *siege) mount(n *node) {
	s.t.Helper()
	dir := s.disk(n)
	require.NoError(s.t, os.Mkdir(dir, 0o700))
	if err := syscall.Mount("leaderd-e2e", dir, "tmpfs", 0, "size="+diskSize+",mode=0700"); err != nil {
		s.t.Logf("no leave to mount a disk for %s, which will not be full then: %v", n.name, err)
		return
	}
	s.disks = true
	s.t.Cleanup(func() { require.NoError(s.t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// fillDisk leaves no byte free on the node's disk; the answer removes what it
// wrote.
func (s *siege) fillDisk(n *node) (free func()) {
	s.t.Helper()
	path := filepath.Join(s.disk(n), "filler")
	f, err := os.Create(path)
	require.NoError(s.t, err)
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for block := make([]byte, size); ; {
			if _, err := f.Write(block); err != nil {
				require.ErrorIs(s.t, err, syscall.ENOSPC)
				break
			}
		}
	}
	require.NoError(s.t, f.Close())
	return func() { require.NoError(s.t, os.Remove(path)) }
}

// lease answers the lease of the first key below a prefix.
func (s *siege) lease(ctx context.Context, below string) (clientv3.LeaseID, string, error) {
	resp, err := s.etcd.Client().Get(ctx, prefix+below, clientv3.WithFirstCreate()...)
	if err != nil {
		return 0, "", err
	}
	if len(resp.Kvs) == 0 {
		return 0, "", fmt.Errorf("there is no key below %s", below)
	}
	return clientv3.LeaseID(resp.Kvs[0].GetLease()), string(resp.Kvs[0].GetKey()), nil
}

// compact has etcd forget all of its past that the ledger has read.
func (s *siege) compact(ctx context.Context) error {
	seen, err := s.ledger.catchUp(ctx)
	if err != nil {
		return err
	}
	_, err = s.etcd.Client().Compact(ctx, seen)
	return err
}

// heal ends all that is wrong with a node's network.
func (w *wires) heal() {
	for _, p := range w.all() {
		p.Delay(faultproxy.Both, 0)
		p.Throttle(faultproxy.Both, 0)
		p.Heal()
	}
}
