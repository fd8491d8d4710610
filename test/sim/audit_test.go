package sim

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// event is one change in the store.
type event struct {
	kv.Event
	revision int64
	at       time.Time
}

// audit reads every event of the store.
type audit struct {
	mem   *memkv.Store
	store *store.Store // to decode

	mu     sync.Mutex
	events []event
	// revoked are registrations that a test ended behind their owners' backs.
	revoked map[state.Owner]bool
}

func newAudit(mem *memkv.Store, s *store.Store) *audit {
	return &audit{mem: mem, store: s, revoked: map[state.Owner]bool{}}
}

func (a *audit) run(ctx context.Context) {
	w, err := a.mem.Watch(ctx, store.DefaultPrefix, kv.PrefixEnd(store.DefaultPrefix), 1)
	if err != nil {
		panic(err)
	}
	defer w.Close()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				panic(err)
			}
			return
		}
		now := time.Now()
		a.mu.Lock()
		for _, e := range b.Events {
			a.events = append(a.events, event{e, e.KV.ModRevision, now})
		}
		a.mu.Unlock()
	}
}

func (a *audit) forced(o state.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked[o] = true
}

func (a *audit) all() []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]event(nil), a.events...)
}

// part is the kind of an event's key, "jobs" or "timeline/watermark", and the
// rest of it.
func (e *event) part() (kind, rest string) {
	key := strings.TrimPrefix(e.KV.Key, store.DefaultPrefix)
	kind, rest, _ = strings.Cut(key, "/")
	return kind, rest
}

// jobOf reads the job from the rest of a key. The tests' names need no escapes.
func jobOf(rest string) (id state.JobID, more string) {
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 2 {
		return id, ""
	}
	id = state.JobID{Namespace: parts[0], Name: parts[1]}
	if len(parts) == 3 {
		more = parts[2]
	}
	return id, more
}

func (e *event) live() (state.Live, error) {
	_, rest := e.part()
	id, more := jobOf(rest)
	var p statev1.Live
	if err := proto.Unmarshal(e.KV.Value, &p); err != nil {
		return state.Live{}, err
	}
	l := codec.LiveFromProto(&p)
	l.Job, l.Exclusive, l.Token = id, more == "~", e.KV.ModRevision
	return l, nil
}

func (e *event) record() (state.Record, error) {
	_, rest := e.part()
	id, more := jobOf(rest)
	var p statev1.Record
	if err := proto.Unmarshal(e.KV.Value, &p); err != nil {
		return state.Record{}, err
	}
	r := codec.RecordFromProto(&p)
	r.Job, r.Run, r.Revision = id, state.RunID(more), e.KV.CreateRevision
	return r, nil
}

func (e *event) pending() (state.Pending, error) {
	_, rest := e.part()
	id, more := jobOf(rest)
	var p statev1.Pending
	err := proto.Unmarshal(e.KV.Value, &p)
	return state.Pending{
		Job: id, Run: state.RunID(more), Requested: codec.Time(p.GetRequested()), AllowOverlap: p.GetAllowOverlap(),
		Queued: codec.Time(p.GetQueued()), Revision: e.revision,
	}, err
}

func (e *event) watermark() (mark, error) {
	var p statev1.Watermark
	if err := proto.Unmarshal(e.KV.Value, &p); err != nil {
		return mark{}, err
	}
	return mark{codec.Time(p.GetInstant()), e.revision, p.GetTerm(), p.GetJobs()}, nil
}
