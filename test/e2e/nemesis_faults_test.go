package e2e

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/test/faultproxy"
)

// kindOfFault is one way to break something.
type kindOfFault struct {
	name string
	// weight is how often it is chosen, beside the others'.
	weight int
	// least and most are how long it lasts.
	least, most time.Duration
	// begin breaks something, and says in the fault what, what it holds and how it
	// is mended. It answers false where nothing whole is there to break.
	begin func(*nemesis, *fault) bool
}

// Parts that faults hold, beside nodes by their names.
const (
	partEtcd  = "etcd"
	partSpace = "space"
)

// catalogue is all there are.
var catalogue []kindOfFault

// The faults reach the catalogue through the nemesis, so it cannot be initialised
// where it is declared.
func init() {
	s := time.Second
	catalogue = []kindOfFault{
		{"node killed", 10, s / 2, 8 * s, (*nemesis).killNode},
		{"node drained", 5, s / 2, 4 * s, (*nemesis).drainNode},
		{"node stopped", 10, s / 2, 9 * s, (*nemesis).stopNode},
		{"node starved of CPU", 5, 2 * s, 10 * s, (*nemesis).starveNode},
		{"all nodes killed", 1, s, 15 * s, (*nemesis).blackout},
		{"disk full", 4, 2 * s, 10 * s, (*nemesis).fillNode},
		{"lease revoked", 5, 0, 0, (*nemesis).revokeLease},
		{"all leases revoked", 2, 0, 0, (*nemesis).revokeAll},
		{"leader key deleted", 4, 0, 0, (*nemesis).deleteLeaderKey},
		{"etcd link silent", 10, s, 10 * s, (*nemesis).silenceStore},
		{"etcd link cut", 5, s / 2, 8 * s, (*nemesis).cutStore},
		{"etcd link slow", 5, 2 * s, 10 * s, (*nemesis).slowStore},
		{"node link silent", 8, s, 10 * s, (*nemesis).silencePeers},
		{"node link cut", 5, s / 2, 8 * s, (*nemesis).cutPeers},
		{"node link slow", 5, 2 * s, 10 * s, (*nemesis).slowPeers},
		{"etcd leader killed", 5, s / 2, 5 * s, (*nemesis).killMember},
		{"etcd leader stopped", 5, s / 2, 6 * s, (*nemesis).stopMember},
		{"etcd leader isolated", 4, s, 8 * s, (*nemesis).isolateMember},
		{"etcd leader moved", 4, 0, 0, (*nemesis).moveMember},
		{"etcd restarted", 2, s / 2, 6 * s, (*nemesis).restartEtcd},
		{"etcd compacted", 4, 0, 0, (*nemesis).compactEtcd},
		{"no space in etcd", 2, s, 8 * s, (*nemesis).noSpace},
	}
}

func (n *nemesis) killNode(f *fault) bool {
	x := n.victim(nil)
	if x == nil {
		return false
	}
	f.hold(x.name, x.name)
	x.kill()
	f.mend = x.start
	return true
}

func (n *nemesis) drainNode(f *fault) bool {
	x := n.victim(nil)
	if x == nil {
		return false
	}
	f.hold(x.name, x.name)
	x.signal(syscall.SIGTERM)
	f.mend = func() {
		if code := x.wait(patience); code != 0 {
			n.t.Errorf("%s ended with status %d after SIGTERM", x.name, code)
		}
		x.start()
	}
	return true
}

func (n *nemesis) stopNode(f *fault) bool {
	x := n.victim(nil)
	if x == nil {
		return false
	}
	f.hold(x.name, x.name)
	x.pause()
	f.mend = x.resume
	return true
}

// starveNode leaves a node a tenth of a CPU or less, in slices.
func (n *nemesis) starveNode(f *fault) bool {
	x := n.victim(nil)
	if x == nil {
		return false
	}
	off := n.span(90*time.Millisecond, 400*time.Millisecond)
	f.hold(fmt.Sprintf("%s, 10 ms in %s", x.name, off.Round(time.Millisecond)), x.name)
	f.mend = starve(x, off, 10*time.Millisecond)
	return true
}

// starve has a process run in slices only, until the answer is called.
func starve(x *node, off, on time.Duration) (end func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	process := x.cmd.Process
	wg.Go(func() {
		for {
			for _, slice := range []struct {
				signal syscall.Signal
				length time.Duration
			}{{syscall.SIGSTOP, off}, {syscall.SIGCONT, on}} {
				if process.Signal(slice.signal) != nil {
					return // it ended
				}
				select {
				case <-time.After(slice.length):
				case <-done:
					_ = process.Signal(syscall.SIGCONT)
					return
				}
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func (n *nemesis) blackout(f *fault) bool {
	for _, x := range n.nodes {
		if !n.free(x.name) {
			return false
		}
	}
	f.hold(names(n.nodes))
	for _, x := range n.nodes {
		f.holds = append(f.holds, x.name)
		x.signal(syscall.SIGKILL)
	}
	for _, x := range n.nodes {
		x.wait(patience)
	}
	f.mend = func() {
		for _, x := range n.nodes {
			x.start()
		}
	}
	return true
}

func (n *nemesis) fillNode(f *fault) bool {
	x := n.victim(nil)
	if x == nil || !n.disks {
		return false
	}
	f.hold(x.name, x.name)
	f.mend = n.fillDisk(x)
	return true
}

// storeLink picks the links of a control node to etcd: to all members, or to one.
func (n *nemesis) storeLink(f *fault) []*faultproxy.Proxy {
	x := n.victim(n.control)
	if x == nil {
		return nil
	}
	links := n.wires[x.name].store
	f.hold(x.name+" to all members", x.name)
	if at := n.rng.IntN(len(links) + 2); at < len(links) && len(links) > 1 {
		f.what = fmt.Sprintf("%s to member %d", x.name, at)
		links = links[at : at+1]
	}
	f.mend = n.wires[x.name].heal
	return links
}

// peerLink picks the link by which others reach a node.
func (n *nemesis) peerLink(f *fault) []*faultproxy.Proxy {
	x := n.victim(nil)
	if x == nil {
		return nil
	}
	f.hold("others to "+x.name, x.name)
	f.mend = n.wires[x.name].heal
	return []*faultproxy.Proxy{n.wires[x.name].peers}
}

// silence drops all packets of one or both directions.
func (n *nemesis) silence(f *fault, links []*faultproxy.Proxy) bool {
	way := []faultproxy.Direction{faultproxy.Both, faultproxy.Both, faultproxy.Up, faultproxy.Down}[n.rng.IntN(4)]
	f.what += map[faultproxy.Direction]string{faultproxy.Both: "", faultproxy.Up: ", there", faultproxy.Down: ", back"}[way]
	for _, p := range links {
		p.Blackhole(way)
	}
	return len(links) > 0
}

func (n *nemesis) cut(_ *fault, links []*faultproxy.Proxy) bool {
	for _, p := range links {
		p.Cut()
	}
	return len(links) > 0
}

// slow makes a link of great latency or of little width.
func (n *nemesis) slow(f *fault, links []*faultproxy.Proxy) bool {
	delay := n.span(20*time.Millisecond, 400*time.Millisecond)
	rate := 0
	if n.rng.IntN(2) == 0 {
		delay, rate = 0, 4<<10+n.rng.IntN(60<<10)
		f.what += fmt.Sprintf(", %d KiB/s", rate>>10)
	} else {
		f.what += fmt.Sprintf(", %s each way", delay.Round(time.Millisecond))
	}
	for _, p := range links {
		p.Delay(faultproxy.Both, delay)
		p.Throttle(faultproxy.Both, rate)
	}
	return len(links) > 0
}

func (n *nemesis) silenceStore(f *fault) bool { return n.silence(f, n.storeLink(f)) }
func (n *nemesis) cutStore(f *fault) bool     { return n.cut(f, n.storeLink(f)) }
func (n *nemesis) slowStore(f *fault) bool    { return n.slow(f, n.storeLink(f)) }
func (n *nemesis) silencePeers(f *fault) bool { return n.silence(f, n.peerLink(f)) }
func (n *nemesis) cutPeers(f *fault) bool     { return n.cut(f, n.peerLink(f)) }
func (n *nemesis) slowPeers(f *fault) bool    { return n.slow(f, n.peerLink(f)) }

// presentLeader is the node that leads by what the nodes say, or none.
func (n *nemesis) presentLeader() string {
	ctx, cancel := context.WithTimeout(n.t.Context(), callTimeout)
	defer cancel()
	for _, conn := range n.conns {
		one, stop := context.WithTimeout(ctx, callTimeout/6)
		s, err := leaderdv1.NewClusterServiceClient(conn).GetClusterStatus(one, &leaderdv1.GetClusterStatusRequest{})
		stop()
		if err == nil && s.GetLeader() != "" {
			return s.GetLeader()
		}
	}
	return ""
}
