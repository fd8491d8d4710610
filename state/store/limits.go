package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A run's first claim takes a place at each of its job's limits that has places, and a
// token of each that has a rate, in the claim's own transaction. Places are those of
// gates: see places. The tokens of a rate are one key, which each claim compares and
// writes. Claims that meet at a limit never share a batch.

// limitPlaces is where a limit's places lie.
func (k keys) limitPlaces(id state.LimitID) string { return k.prefix + "limits/" + limitPart(id) + "/" }

// limitPlace is one of them.
func (k keys) limitPlace(id state.LimitID, n int) string { return k.limitPlaces(id) + placePart(n) }

// limitRate is the key of a rate's tokens.
func (k keys) limitRate(id state.LimitID) string { return k.prefix + "rates/" + limitPart(id) }

// limitPart keeps those of keys apart: no name of a limit reaches to them.
func limitPart(id state.LimitID) string {
	if id.Key != "" {
		whole := state.LimitID{Namespace: id.Namespace, Name: id.Name}
		return "keyed/" + limitPart(whole) + "/" + escape(id.Key)
	}
	if id.Namespace == "" {
		return "cluster/" + escape(id.Name)
	}
	return "namespace/" + escape(id.Namespace) + "/" + escape(id.Name)
}

// buckets remembers the tokens of rates as claims of this process left or found them. It
// is only a guess: claims compare it.
type buckets struct {
	mu sync.Mutex
	of map[string]bucket // by key
}

type bucket struct {
	state.Bucket
	mod int64
}

func (b *buckets) get(key string) bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[key]
}

func (b *buckets) set(key string, to bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = make(map[string]bucket)
	}
	if _, ok := b.of[key]; !ok && len(b.of) >= maxPlaceSets {
		for other := range b.of {
			delete(b.of, other)
			break
		}
	}
	b.of[key] = to
}

// limitTry is a limit as one try of a claim meets it.
type limitTry struct {
	*state.Limit
	id state.LimitID
	// key is the prefix of its places, or the key of its rate.
	key string
	// place is the one that is taken, or was and next are the tokens before and after.
	place     int
	was, next bucket
}

// limitsOf are the limits of a claim.
func (s *Store) limitsOf(c *state.Claim) []limitTry {
	if len(c.Limits) == 0 || c.Token != 0 {
		return nil
	}
	tries := make([]limitTry, len(c.Limits))
	for i := range c.Limits {
		l := &c.Limits[i]
		t := limitTry{Limit: l, id: l.ID(c.Job.Namespace, c.Live.LimitKey)}
		if t.key = s.keys.limitPlaces(t.id); l.Max == 0 {
			t.key = s.keys.limitRate(t.id)
		}
		tries[i] = t
	}
	return tries
}

// guessLimits chooses a place or a token at each limit, by what is known. It is in vain
// where there is no token, which is true however old the knowledge: tokens are only taken.
func (s *Store) guessLimits(t *claimTry, again bool) (inVain bool) {
	t.live.Holds = nil
	for i := range t.limits {
		l := &t.limits[i]
		if l.Max > 0 {
			l.place = s.places.take(l.key, l.Max, again)
			t.live.Holds = append(t.live.Holds, state.Hold{Limit: l.id, Place: l.place})
			continue
		}
		var ok bool
		l.was = s.buckets.get(l.key)
		if l.next.Bucket, _, ok = l.Rate.Take(l.was.Bucket, t.starts()); !ok {
			inVain = true
		}
	}
	return inVain
}

// starts is when the run of a claim starts, which is made ahead of that.
func (t *claimTry) starts() time.Time {
	if t.live.Due.After(t.live.Claimed) {
		return t.live.Due
	}
	return t.live.Claimed
}

// takeLimits has a claim take its places and tokens, if they are there to be taken, and
// none is taken beyond a limit.
func (s *Store) takeLimits(t *claimTry, r *request) {
	for i := range t.limits {
		l := &t.limits[i]
		if l.Max == 0 {
			r.txn.If = append(r.txn.If, unchanged(l.key, l.was.mod))
			r.txn.Then = append(r.txn.Then, kv.Put(l.key, marshalBucket(l.next.Bucket), 0))
			r.writes = append(r.writes, s.batch.hash(l.key))
			continue
		}
		key := s.keys.limitPlace(l.id, l.place)
		if !mutant.Off(mutant.Places) {
			r.txn.If = append(r.txn.If, absent(key), kv.Compare{
				Key: s.keys.limitPlace(l.id, l.Max+1), End: end(l.key), Target: kv.TargetCreateRevision,
			})
		}
		r.txn.Then = append(r.txn.Then, kv.Put(key, marshalHold(t.live), 0))
		// Jobs may differ in their limits: then a place is beyond that of another.
		r.writes = append(r.writes, s.batch.hash(key), s.batch.hash(l.key))
	}
	if len(t.limits) > 0 && t.slot && t.c.Pending == 0 && !t.queues() {
		// A slot that was found to have to wait is claimed by its pending key.
		own := s.keys.pendingRun(t.c.Job, t.live.Run)
		r.txn.If = append(r.txn.If, absent(own))
		r.reads = append(r.reads, s.batch.hash(own))
	}
}

// dropHolds gives a run's places at limits back with its verdict. They are its own by its
// token.
func (s *Store) dropHolds(r *request, l *state.Live) {
	for i := range l.Holds {
		key := s.keys.limitPlace(l.Holds[i].Limit, l.Holds[i].Place)
		r.txn.Then = append(r.txn.Then, kv.Delete(key))
		r.writes = append(r.writes, s.batch.hash(key))
	}
}

// freeHolds takes them for free.
func (s *Store) freeHolds(l *state.Live) {
	for i := range l.Holds {
		s.places.free(s.keys.limitPlaces(l.Holds[i].Limit), l.Holds[i].Place)
	}
}

func marshalHold(l *state.Live) []byte {
	value, err := proto.Marshal(&statev1.Place{Namespace: l.Job.Namespace, Job: l.Job.Name, Run: string(l.Run)})
	if err != nil { // only text that is no UTF-8, which names never are
		return nil
	}
	return value
}

func marshalBucket(b state.Bucket) []byte {
	value, err := proto.Marshal(&statev1.Bucket{Full: codec.Micros(b.Full), Taken: codec.Micros(b.Taken)})
	if err != nil { // numbers always can be
		return nil
	}
	return value
}

// readLimits are the reads that tell which limits of a refused claim are reached.
func readLimits(t *claimTry) []kv.Op {
	var reads []kv.Op
	for i := range t.limits {
		if l := &t.limits[i]; l.Max > 0 {
			reads = append(reads, kv.GetRange(l.key, end(l.key), 0))
		} else {
			reads = append(reads, kv.Get(l.key))
		}
	}
	return reads
}

// reached is a limit that keeps a claim from being made.
type reached struct {
	limit int // from 1; 0: none does
	// takers have its places; next is from when on there is a token.
	takers []taker
	next   time.Time
}

// decodeLimits takes the reads of readLimits: it learns from them, and answers the first
// limit that is reached.
func (s *Store) decodeLimits(t *claimTry, read []kv.Result) reached {
	var first reached
	for i := range t.limits {
		l := &t.limits[i]
		found := reached{limit: i + 1}
		if l.Max > 0 {
			taken := s.takersAt(l.key, "", read[i].KVs)
			s.places.learn(l.key, taken)
			if !full(l.key, taken, l.Max) {
				continue
			}
			found.takers = taken
		} else {
			b := s.bucketOf(l.key, read[i].KVs)
			s.buckets.set(l.key, b)
			_, next, ok := l.Rate.Take(b.Bucket, t.starts())
			if ok {
				continue
			}
			found.next = next
		}
		if first.limit == 0 {
			first = found
		}
	}
	return first
}

// bucketOf reads a rate's tokens. What cannot be read is full.
func (s *Store) bucketOf(key string, kvs []kv.KeyValue) bucket {
	if len(kvs) == 0 {
		return bucket{}
	}
	b := bucket{mod: kvs[0].ModRevision}
	var p statev1.Bucket
	if err := proto.Unmarshal(kvs[0].Value, &p); err != nil {
		s.log.Error("the tokens of a rate cannot be read, and count as all there", "key", key, "err", err)
		return b
	}
	b.Full, b.Taken = codec.Time(p.GetFull()), codec.Time(p.GetTaken())
	return b
}

// waitAtLimit lets a due run of a job without a queue wait, since a limit is reached. Of
// slots as many wait as may be live at a time; those due beyond are skipped. Runs that
// were asked for all wait.
func (s *Store) waitAtLimit(ctx context.Context, t *claimTry, v *refusal) (status state.ClaimStatus, again bool, err error) {
	c, live := t.c, t.live
	q, err := s.readQueue(ctx, t, nil, c.Pending != 0) // of which there may be very many
	if err != nil {
		return 0, false, err
	}
	if c.Pending != 0 && q.own.Revision == c.Pending && !q.own.Queued.IsZero() {
		return state.ClaimHeld, false, nil
	}
	r := s.undecidedRun(t, v)
	if c.Pending == 0 {
		most := state.MaxQueue
		switch {
		case live.Exclusive:
			most = 1
		case c.Gate.Limit > 0:
			most = c.Gate.Limit
		}
		if n := len(q.waiting); n >= most {
			why := t.limits[v.reached.limit-1].id.String()
			detail := fmt.Sprintf("%d runs of the job wait for %s", n, why)
			if n == 1 {
				detail = "run " + string(q.waiting[0].Run) + " waits for " + why
			}
			return s.skip(ctx, t, v, state.ReasonOverlap, detail)
		}
		queueKey := s.keys.pendingOf(c.Job)
		r.txn.If = append(r.txn.If, kv.Compare{
			Key: queueKey, End: end(queueKey), Target: kv.TargetModRevision, Relation: kv.Less, Int: q.seen + 1,
		})
		r.writes = append(r.writes, s.batch.hash(queueKey)) // which claims of the job read
	}
	value, err := queuedValue(&q.own, live)
	if err != nil {
		return 0, false, err
	}
	r.txn.Then = []kv.Op{kv.Put(s.keys.pendingRun(c.Job, live.Run), value, 0)}
	return s.decideOverlap(ctx, t, v, r, state.ClaimQueued)
}
