package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"google.golang.org/grpc"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

// node is a control node to ask.
type node struct {
	address string
	client  workerv1.JournalServiceClient
}

// nodes chooses the control node to ask: the same one until it fails, then the
// next in the list. Which is the first is left to chance, so that executors
// spread. It keeps a connection to each node that was asked.
type nodes struct {
	addresses func() []string
	dial      Dial

	mu        sync.Mutex
	preferred string
	conns     map[string]*grpc.ClientConn
	closed    bool
}

func newNodes(addresses func() []string, dial Dial) *nodes {
	return &nodes{addresses: addresses, dial: dial, conns: make(map[string]*grpc.ClientConn)}
}

// pick answers the node to ask now. On error the node has its address, if that is
// known, and no client.
func (n *nodes) pick() (node, error) {
	list := n.addresses()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return node{}, ErrClosed
	}
	n.forget(list)
	if len(list) == 0 {
		return node{}, ErrNoNode
	}
	if !slices.Contains(list, n.preferred) {
		n.preferred = list[rand.IntN(len(list))]
	}
	conn := n.conns[n.preferred]
	if conn == nil {
		var err error
		if conn, err = n.dial(n.preferred); err != nil {
			return node{address: n.preferred}, fmt.Errorf("dial %s: %w", n.preferred, err)
		}
		n.conns[n.preferred] = conn
	}
	return node{n.preferred, workerv1.NewJournalServiceClient(conn)}, nil
}

// failed lets the node after this one be the next to ask, unless another caller
// has seen to that already.
func (n *nodes) failed(was node) {
	list := n.addresses()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.preferred != was.address {
		return
	}
	if i := slices.Index(list, was.address); i >= 0 {
		n.preferred = list[(i+1)%len(list)]
	}
}

// forget closes the connections to nodes that are not in the list any more.
func (n *nodes) forget(list []string) {
	for address, conn := range n.conns {
		if !slices.Contains(list, address) {
			delete(n.conns, address)
			_ = conn.Close() // fails only where it is closed already
		}
	}
}

func (n *nodes) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.forget(nil)
}
