package election

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errWatchClosed is a watch channel that closed without an error.
var errWatchClosed = errors.New("watch closed")

// owns says whether a key is the one this tenure put. A key that was put again
// without the lease would outlive its owner.
func (t *tenure) owns(kv *mvccpb.KeyValue, term Term) bool {
	return kv.CreateRevision == term.Number && kv.Lease == int64(t.session.Lease())
}

// guard loses the term once its key is no longer this tenure's. It follows the
// key from the revision that was verified, and blocks until ctx ends.
//
// No watch lasts longer than a TTL: it is followed by a read of the key, and a
// new watch from there, so that one which ended silently is found out.
func (t *tenure) guard(ctx context.Context, term Term, revision int64) {
	for ctx.Err() == nil {
		intact, err := t.watchKey(ctx, term, revision+1)
		if !intact {
			t.lose(ReasonKeyGone)
			return
		}
		if err != nil {
			t.log.Debug("watch of the leader key ended, reading it back", "term", term.Number, "err", err)
		}
		if revision, err = t.readBack(ctx, term); err != nil {
			return
		}
	}
}

// watchKey answers false once the key is not this tenure's, and true when the
// watch ended before that.
func (t *tenure) watchKey(ctx context.Context, term Term, revision int64) (intact bool, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), t.cfg.TTL)
	defer cancel()
	for resp := range t.client.Watch(ctx, term.Key, clientv3.WithRev(revision)) {
		if err := resp.Err(); err != nil {
			return true, err
		}
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypeDelete || !t.owns(ev.Kv, term) {
				return false, nil
			}
		}
	}
	if ctx.Err() != nil {
		return true, nil
	}
	return true, errWatchClosed
}

// readBack repeats verify until etcd answers. An error means that the term is
// over, and that everybody who must knows.
func (t *tenure) readBack(ctx context.Context, term Term) (int64, error) {
	pause := time.NewTicker(t.cfg.RetryMin)
	defer pause.Stop()
	for {
		revision, err := t.verify(ctx, term)
		switch {
		case err == nil:
			return revision, nil
		case errors.Is(err, errNotElected):
			t.lose(ReasonKeyGone)
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-pause.C:
		}
	}
}
