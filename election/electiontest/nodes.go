package electiontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/test/etcdtest"
	"github.com/leaderd/leaderd/test/faultproxy"
)

// Limit bounds every wait of the harness. It is no assertion about speed.
const Limit = 90 * time.Second

// Event is the beginning or the end of a term's work.
type Event struct {
	Node  int
	Term  election.Term
	Ended bool
	// Cause is why the work's context ended, nil where it did not; Ahead is how
	// long the term was still trusted by its deadline when that was noticed.
	Cause error
	Ahead time.Duration
}

// Node is one candidate with its own client, whose connections pass its proxy.
type Node struct {
	Name    string
	Proxy   *faultproxy.Proxy
	Client  *clientv3.Client
	Elector *election.Elector
	Metrics *prometheus.Registry
	Log     *Log

	stop context.CancelFunc
	done chan struct{}
	err  error
}

// Nodes is a set of candidates of one election and what they did.
type Nodes struct {
	Ledger Ledger

	t      testing.TB
	etcd   *etcdtest.Server
	config election.Config
	lead   func(n *Node) election.Lead
	client func(*clientv3.Client)
	all    []*Node

	mu      sync.Mutex
	events  []Event
	changed chan struct{}
}

// Option changes how Start starts the nodes.
type Option func(*Nodes)

// WithConfig sets the configuration of all nodes; name, address, logger and
// metrics are set for each. Default: the least TTL.
func WithConfig(c election.Config) Option { return func(ns *Nodes) { ns.config = c } }

// WithLead sets the work that each term does beside acting. It runs until it
// returns. Default: to wait for its context.
func WithLead(lead func(n *Node) election.Lead) Option { return func(ns *Nodes) { ns.lead = lead } }

// WithClient changes each node's client before its elector gets it, so that a test
// can put another implementation of one of its interfaces in place.
func WithClient(change func(*clientv3.Client)) Option {
	return func(ns *Nodes) { ns.client = change }
}

// Start starts n candidates and stops them in the test's cleanup, where it also
// checks the ledger and every elector's error, ErrFatal excepted.
func Start(t testing.TB, etcd *etcdtest.Server, n int, opts ...Option) *Nodes {
	t.Helper()
	ns := &Nodes{
		t:       t,
		etcd:    etcd,
		config:  election.Config{TTL: election.MinTTL},
		lead:    func(*Node) election.Lead { return wait },
		client:  func(*clientv3.Client) {},
		changed: make(chan struct{}),
	}
	for _, o := range opts {
		o(ns)
	}
	t.Cleanup(ns.close)
	for i := range n {
		ns.add(i)
	}
	return ns
}

func wait(ctx context.Context, _ election.Term) error {
	<-ctx.Done()
	return nil
}

func (ns *Nodes) add(i int) {
	ns.t.Helper()
	proxy, err := faultproxy.Listen(ns.etcd.Endpoints()[i%len(ns.etcd.Endpoints())])
	if err != nil {
		ns.t.Fatalf("start proxy: %v", err)
	}
	client, err := newClient(proxy.Addr())
	if err != nil {
		proxy.Close()
		ns.t.Fatalf("make etcd client: %v", err)
	}
	ns.client(client)
	ctx, cancel := context.WithCancel(context.Background())
	node := &Node{
		Name:    fmt.Sprintf("n%d", i),
		Proxy:   proxy,
		Client:  client,
		Metrics: prometheus.NewRegistry(),
		Log:     &Log{},
		stop:    cancel,
		done:    make(chan struct{}),
	}
	ns.all = append(ns.all, node)
	cfg := ns.config
	cfg.Name, cfg.Address, cfg.Metrics = node.Name, fmt.Sprintf("%s.test:7000", node.Name), node.Metrics
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: node.Name, Level: hclog.Debug, Output: node.Log})
	if node.Elector, err = election.New(node.Client, cfg); err != nil {
		close(node.done)
		ns.t.Fatalf("make elector: %v", err)
	}
	go func() {
		defer close(node.done)
		node.err = node.Elector.Run(ctx, ns.work(i, node))
	}()
}

// NewClient makes a client of one endpoint that reconnects without long pauses,
// and closes it in the test's cleanup.
func NewClient(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := newClient(endpoint)
	if err != nil {
		t.Fatalf("make etcd client: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() }) // reports only that its context ended
	return c
}

func newClient(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 300 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
}

// work acts for as long as the term is trusted, whatever its context says, and
// does the test's own work beside.
func (ns *Nodes) work(i int, node *Node) election.Lead {
	return func(ctx context.Context, term election.Term) error {
		ns.record(Event{Node: i, Term: term})
		over := make(chan struct{})
		var acting sync.WaitGroup
		acting.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ns.Ledger.Act(node.Name, term) {
				select {
				case <-over:
					return
				case <-tick.C:
				}
			}
		})
		acting.Go(func() {
			select {
			case <-ctx.Done():
			case <-over:
			}
			ns.record(Event{
				Node: i, Term: term, Ended: true, Cause: context.Cause(ctx), Ahead: time.Until(term.Deadline()),
			})
		})
		defer acting.Wait()
		defer close(over)
		return ns.lead(node)(ctx, term)
	}
}

func (ns *Nodes) record(e Event) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.events = append(ns.events, e)
	close(ns.changed)
	ns.changed = make(chan struct{})
}

// Events are all events so far, in their order.
func (ns *Nodes) Events() []Event {
	events, _ := ns.follow()
	return events
}

func (ns *Nodes) follow() ([]Event, <-chan struct{}) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return slices.Clip(ns.events), ns.changed
}

// Await waits for an event, among those past and to come, that pred accepts.
func (ns *Nodes) Await(what string, pred func(Event) bool) Event {
	ns.t.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	for {
		events, changed := ns.follow()
		for _, e := range events {
			if pred(e) {
				return e
			}
		}
		select {
		case <-changed:
		case <-limit.C:
			ns.t.Fatalf("no event within %s: %s\n%s", Limit, what, ns.logs())
		}
	}
}

// AwaitTerm waits for the beginning of a term later than the given number.
func (ns *Nodes) AwaitTerm(after int64) Event {
	ns.t.Helper()
	return ns.Await(fmt.Sprintf("a term after %d", after), func(e Event) bool {
		return !e.Ended && e.Term.Number > after
	})
}

// AwaitEnd waits for the end of the given term.
func (ns *Nodes) AwaitEnd(term int64) Event {
	ns.t.Helper()
	return ns.Await(fmt.Sprintf("the end of term %d", term), func(e Event) bool {
		return e.Ended && e.Term.Number == term
	})
}

// Node is node i.
func (ns *Nodes) Node(i int) *Node { return ns.all[i] }

// Stop ends node i's Run and answers its error.
func (ns *Nodes) Stop(i int) error {
	ns.all[i].stop()
	return ns.Wait(i)
}

// Wait waits until node i's Run returns, and answers its error.
func (ns *Nodes) Wait(i int) error {
	ns.t.Helper()
	select {
	case <-ns.all[i].done:
		return ns.all[i].err
	case <-time.After(Limit):
		ns.t.Fatalf("%s still runs after %s\n%s", ns.all[i].Name, Limit, ns.logs())
		return nil
	}
}

func (ns *Nodes) logs() string {
	var b strings.Builder
	for _, n := range ns.all {
		b.WriteString(n.Log.String())
	}
	return b.String()
}

func (ns *Nodes) close() {
	for _, n := range ns.all {
		n.stop()
	}
	for _, n := range ns.all {
		<-n.done
		if n.err != nil && !errors.Is(n.err, election.ErrFatal) {
			ns.t.Errorf("%s: %v", n.Name, n.err)
		}
		_ = n.Client.Close() // reports only that its context ended
		n.Proxy.Close()
	}
	if err := ns.Ledger.Check(); err != nil {
		ns.t.Errorf("ledger: %v", err)
	}
	if ns.t.Failed() {
		ns.t.Log(ns.logs())
	}
}

// Log is a node's log. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
