package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/history"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// ledgerEnd is the key of the ledger's own events, by which it knows that it has
// seen all before them.
const ledgerEnd = prefix + "versions/~"

// ledger follows the versions of all jobs as etcd stores them, so that etcd's past
// may be compacted. It reads behind leaderd's back and outlasts faults of etcd.
type ledger struct {
	t      testing.TB
	client *clientv3.Client

	mu       sync.Mutex
	versions map[string][]history.Version
	seen     int64 // revision up to which all events were seen
	changed  chan struct{}
}

// follow starts a ledger of all versions since the first revision; it ends with
// the test.
func follow(t testing.TB, client *clientv3.Client) *ledger {
	t.Helper()
	l := &ledger{t: t, client: client, versions: map[string][]history.Version{}, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func (l *ledger) run(ctx context.Context) {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		for resp := range l.client.Watch(clientv3.WithRequireLeader(watching), prefix+"versions/", clientv3.WithPrefix(), clientv3.WithRev(l.next())) {
			if errors.Is(resp.Err(), rpctypes.ErrCompacted) {
				l.t.Errorf("the versions of jobs were compacted before the test had read them: %v", resp.Err())
				stop()
				return
			}
			if resp.Err() != nil {
				break
			}
			l.add(resp.Events)
		}
		stop()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (l *ledger) next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen + 1
}

func (l *ledger) add(events []*clientv3.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		job, v, err := versionIn(e)
		if err != nil {
			l.t.Error(err)
		} else if job != "" {
			l.versions[job] = append(l.versions[job], v)
		}
		l.seen = e.GetKv().GetModRevision()
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// catchUp waits until the ledger has seen all that is stored by now, and answers
// the revision.
func (l *ledger) catchUp(ctx context.Context) (int64, error) {
	done, err := l.client.Put(ctx, ledgerEnd, "")
	if err != nil {
		return 0, err
	}
	for {
		l.mu.Lock()
		seen, changed := l.seen, l.changed
		l.mu.Unlock()
		if seen >= done.Header.GetRevision() {
			return seen, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// all answers all versions stored by now.
func (l *ledger) all() map[string][]history.Version {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	_, err := l.catchUp(ctx)
	require.NoError(l.t, err, "read the versions of all jobs")
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string][]history.Version{}
	for job, versions := range l.versions {
		out[job] = append([]history.Version(nil), versions...)
	}
	return out
}

// versionIn is the version that an event stored with a change of a job, in the
// same transaction: so it has its revision.
// It answers no job for other events: an old version that is swept, and the test's
// own.
func versionIn(e *clientv3.Event) (job string, v history.Version, err error) {
	parts := strings.Split(strings.TrimPrefix(string(e.GetKv().GetKey()), prefix), "/")
	if e.GetType() != clientv3.EventTypePut || len(parts) != 4 {
		return "", v, nil
	}
	var stored statev1.Version
	if err := proto.Unmarshal(e.GetKv().GetValue(), &stored); err != nil {
		return "", v, fmt.Errorf("parse %s: %w", e.GetKv().GetKey(), err)
	}
	v = versionOf(stored.GetJob())
	v.Revision = e.GetKv().GetModRevision()
	if state.Change(stored.GetChange()) == state.ChangeDelete {
		v.Deleted, v.Effective = true, time.UnixMicro(stored.GetTime()).UTC()
	}
	return parts[2], v, nil
}
