package api

import (
	"context"
	"sync"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// JobFeed delivers all jobs and then their changes. *store.JobsCache is one.
type JobFeed interface {
	Subscribe() *store.Subscription
}

// JobDecoder reads a job from its key and value. *store.Store is one.
type JobDecoder interface {
	DecodeJob(from kv.KeyValue) (state.Job, error)
}

// Tally counts the stored jobs and those that are broken, as they change, so
// that nobody has to look at all of them to know. It remembers only the keys of
// the jobs, and may be asked concurrently.
type Tally struct {
	feed    JobFeed
	decoder JobDecoder

	mu   sync.Mutex
	jobs map[string]bool // by key: whether it is broken
	bad  int64
}

// NewTally makes a tally that knows nothing; run it.
func NewTally(feed JobFeed, decoder JobDecoder) *Tally {
	return &Tally{feed: feed, decoder: decoder, jobs: make(map[string]bool)}
}

// Run follows the feed until ctx ends, then answers nil.
func (t *Tally) Run(ctx context.Context) error {
	sub := t.feed.Subscribe()
	defer sub.Close()
	for {
		u, err := sub.Next(ctx)
		if err != nil {
			return nil //nolint:nilerr // Next only ends with ctx
		}
		t.apply(&u)
	}
}

func (t *Tally) apply(u *store.Update) {
	if u.Reset {
		jobs, bad := make(map[string]bool, len(u.All)), int64(0)
		for _, item := range u.All {
			broken := t.broken(item)
			jobs[item.Key] = broken
			if broken {
				bad++
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.jobs, t.bad = jobs, bad
		return
	}
	for i := range u.Events {
		e := &u.Events[i]
		broken := !e.Deleted && t.broken(&e.KV)
		t.mu.Lock()
		if t.jobs[e.KV.Key] {
			t.bad--
		}
		if broken {
			t.bad++
		}
		if e.Deleted {
			delete(t.jobs, e.KV.Key)
		} else {
			t.jobs[e.KV.Key] = broken
		}
		t.mu.Unlock()
	}
}

func (t *Tally) broken(from *kv.KeyValue) bool {
	job, err := t.decoder.DecodeJob(*from)
	_, err = quarantine(&job, err)
	return err != nil
}

// Counts answers how many jobs there are and how many of them are broken, as
// far as the feed has told.
func (t *Tally) Counts() (jobs, quarantined int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.jobs)), t.bad
}
