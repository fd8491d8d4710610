package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/state"
)

// DefaultResync is the default of ObserverConfig.Resync.
const DefaultResync = 10 * time.Second

// observerRequest bounds one read of the candidates.
const observerRequest = 3 * time.Second

// Leader is who holds the first key of an election. The zero Leader means that
// there is none.
type Leader struct {
	// Name and Address are empty where the key's value cannot be read.
	Name    string
	Address string
	Term    state.Term
}

// ObserverConfig sets up an Observer.
type ObserverConfig struct {
	// Prefix is that of the electors. Default: DefaultPrefix.
	Prefix string
	// Resync is how often the candidates are read anew although a watch follows
	// them. Positive. Default: DefaultResync.
	Resync time.Duration
	// Logger takes the observer's log. Default: none.
	Logger hclog.Logger
}

// WithDefaults returns a copy in which every zero field has its default.
func (c ObserverConfig) WithDefaults() ObserverConfig {
	setDefault(&c.Prefix, DefaultPrefix)
	setDefault(&c.Resync, DefaultResync)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate reports every violation, each with its field's name, or nil. Call it
// on the result of WithDefaults.
func (c ObserverConfig) Validate() error {
	var errs []error
	if err := validatePrefix(c.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("Prefix: %w", err))
	}
	if c.Resync <= 0 {
		errs = append(errs, fmt.Errorf("Resync: %s is not positive", c.Resync))
	}
	return errors.Join(errs...)
}

// Observer follows who leads. What it knows may be late, and while etcd is away
// it keeps the last known; so the number of a term that acts is compared where it
// acts. Its methods are safe for concurrent use.
type Observer struct {
	client *clientv3.Client
	cfg    ObserverConfig

	mu      sync.Mutex
	leader  Leader
	changed chan struct{} // closed at the next change
	heard   time.Time

	once   sync.Once
	synced chan struct{}
}

// NewObserver returns an observer that uses the client, which stays the caller's
// and must outlive Run. It starts nothing. The error lists all violations.
func NewObserver(client *clientv3.Client, cfg ObserverConfig) (*Observer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure observer: %w", err)
	}
	return &Observer{
		client:  client,
		cfg:     cfg,
		changed: make(chan struct{}),
		synced:  make(chan struct{}),
	}, nil
}

// Current is the leader as last known; zero for none, and before the first
// answer of etcd. It never blocks.
func (o *Observer) Current() Leader {
	leader, _ := o.Follow()
	return leader
}

// Follow is Current with a channel that is closed when that has changed. Changes
// between two calls are seen as one.
func (o *Observer) Follow() (Leader, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leader, o.changed
}

// Synced is closed once the candidates have been read for the first time.
func (o *Observer) Synced() <-chan struct{} { return o.synced }

// Heard is the start of the last read of the candidates that etcd answered; the
// zero time before the first. An observer is healthy while this is younger than
// its Resync and a few seconds.
func (o *Observer) Heard() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heard
}

// Run follows the election until ctx ends, through failures of etcd, compaction
// and watches that end, and then returns nil. It blocks.
func (o *Observer) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = DefaultRetryMin
	pause.MaxInterval = DefaultRetryMax
	failures := 0
	for ctx.Err() == nil {
		switch err := o.follow(ctx); {
		case err == nil:
			if failures > 0 {
				o.cfg.Logger.Info("following the leader again", "failures", failures)
			}
			failures = 0
			pause.Reset()
		case ctx.Err() == nil:
			if failures++; failures == 1 {
				o.cfg.Logger.Warn("following the leader failed, keeping the last known", "err", err)
			}
			timer := time.NewTimer(pause.NextBackOff())
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
	return nil
}

// follow reads all candidates and watches them from there for one Resync. An
// error means that it could not read, or that the watch ended early.
func (o *Observer) follow(ctx context.Context) error {
	prefix := root(o.cfg.Prefix) + "/"
	start := time.Now()
	rctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), observerRequest)
	defer cancel()
	resp, err := o.client.Get(rctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read candidates: %w", err)
	}
	queue := make(map[string]*mvccpb.KeyValue, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		queue[string(kv.Key)] = kv
	}
	o.listed(start)
	o.publish(queue)
	o.once.Do(func() { close(o.synced) })

	wctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), o.cfg.Resync)
	defer cancel()
	watch := o.client.Watch(wctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	for resp := range watch {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch candidates: %w", err)
		}
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypeDelete {
				delete(queue, string(ev.Kv.Key))
			} else {
				queue[string(ev.Kv.Key)] = ev.Kv
			}
		}
		if len(resp.Events) > 0 {
			o.publish(queue)
		}
	}
	if wctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch candidates: %w", errWatchClosed)
}

func (o *Observer) listed(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard = at
}

// publish makes the first of the queue the leader.
func (o *Observer) publish(queue map[string]*mvccpb.KeyValue) {
	var first *mvccpb.KeyValue
	for _, kv := range queue {
		if first == nil || kv.CreateRevision < first.CreateRevision {
			first = kv
		}
	}
	var leader Leader
	var unreadable error
	if first != nil {
		leader.Term = state.Term{Number: first.CreateRevision, Key: string(first.Key)}
		var v value
		v, unreadable = decodeValue(first.Value)
		leader.Name, leader.Address = v.Name, v.Address
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if leader == o.leader {
		return
	}
	if unreadable != nil {
		o.cfg.Logger.Warn("leader has no readable name, taken as unknown", "term", leader.Term.Number, "err", unreadable)
	}
	o.leader = leader
	close(o.changed)
	o.changed = make(chan struct{})
}
