package store

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// maxPlaceSets bounds what places remembers: about 10 MB.
const maxPlaceSets = 1 << 15

// places remembers which places at gates were taken and freed by claims and
// finishes of this process. It is only a guess: a wrong one costs a claim another
// try.
type places struct {
	mu sync.Mutex
	of map[string]*placeSet // by the prefix of their keys
}

// placeSet has a bit for each place that is taken.
type placeSet [(state.MaxConcurrent + 64) / 64]uint64

func (p *placeSet) has(n int) bool { return p[n/64]&(1<<(n%64)) != 0 }
func (p *placeSet) add(n int)      { p[n/64] |= 1 << (n % 64) }
func (p *placeSet) drop(n int)     { p[n/64] &^= 1 << (n % 64) }

// take answers a place of the first limit to try, and takes it for taken. Where
// all seem taken it is the first: the refusal tells. Those who try again draw, so
// that they do not meet again.
func (p *places) take(gate string, limit int, again bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.at(gate)
	from := 0
	if again {
		from = rand.IntN(limit)
	}
	for i := range limit {
		if n := (from+i)%limit + 1; !set.has(n) {
			set.add(n)
			return n
		}
	}
	return 1
}

// free takes a place for free.
func (p *places) free(gate string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set := p.of[gate]; set != nil {
		set.drop(n)
	}
}

// learn takes those places for taken that were found so, and no others.
func (p *places) learn(gate string, found []taker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.at(gate)
	*set = placeSet{}
	for i := range found {
		if n := found[i].place; n > 0 && n <= state.MaxConcurrent {
			set.add(n)
		}
	}
}

func (p *places) at(gate string) *placeSet {
	if set := p.of[gate]; set != nil {
		return set
	}
	if p.of == nil {
		p.of = make(map[string]*placeSet)
	}
	if len(p.of) >= maxPlaceSets {
		for other := range p.of {
			delete(p.of, other)
			break
		}
	}
	set := &placeSet{}
	p.of[gate] = set
	return set
}

// taker is a run that is live: one that has a place at a gate, or that is at the
// job's gate record or beside it.
type taker struct {
	key   string
	mod   int64
	place int // 0: none
	job   state.JobID
	run   state.RunID
}

// name is how a verdict names it to a job.
func (h *taker) name(to state.JobID) string {
	if h.job == to {
		return "run " + string(h.run)
	}
	return "run " + string(h.run) + " of " + h.job.String()
}

// takers reads the places at a claim's gate. One that cannot be read is taken by
// a run that nobody knows.
func takers(t *claimTry, kvs []kv.KeyValue) ([]taker, error) {
	all := make([]taker, len(kvs))
	for i, found := range kvs {
		n, err := strconv.Atoi(found.Key[len(t.places):])
		if err != nil {
			return nil, fmt.Errorf("%w: key %q is no place at a gate", ErrCorrupt, found.Key)
		}
		all[i] = taker{key: found.Key, mod: found.ModRevision, place: n, job: state.JobID{Namespace: t.c.Job.Namespace}}
		var p statev1.Place
		if err := proto.Unmarshal(found.Value, &p); err == nil {
			all[i].job.Name, all[i].run = p.GetJob(), state.RunID(p.GetRun())
		}
	}
	return all, nil
}

// holders are the runs that keep a refused claim's gate shut; nil: it is open.
func (v *refusal) holders(t *claimTry) []taker {
	c := t.c
	switch {
	case t.relies() && (t.live.Exclusive || t.places != "") && v.gate.token != 0 && !v.lastDone:
		return []taker{{mod: v.gate.token, job: c.Job, run: v.gate.run}}
	case t.live.Exclusive && v.other.token != 0:
		return []taker{{mod: v.other.token, job: c.Job, run: v.other.run}}
	case t.places == "":
		return nil
	}
	// The limit counts: so a limit that was lowered, or that is another job's,
	// shuts the gate while a place beyond it is taken.
	n := 0
	for i := range v.taken {
		if n++; v.taken[i].place > c.Gate.Limit {
			return v.taken
		}
	}
	if n >= c.Gate.Limit {
		return v.taken
	}
	return nil
}

// takePlace has a claim take its place at the gate, if that is free, and none is
// taken beyond its limit; and if the job's gate record, which may be of before
// the job's policy was changed, is dead.
func (s *Store) takePlace(t *claimTry, r *request) {
	c, live := t.c, t.live
	if t.last.token != 0 && !t.last.over {
		lastHistory := s.keys.historyRun(c.Job, t.last.run)
		r.txn.If = append(r.txn.If, present(lastHistory))
		r.reads = append(r.reads, s.batch.hash(lastHistory))
	}
	key := s.keys.place(c.Job, live.GateKey, live.Place)
	if !mutant.Off(mutant.Places) {
		r.txn.If = append(r.txn.If, absent(key), kv.Compare{
			Key: s.keys.place(c.Job, live.GateKey, c.Gate.Limit+1), End: end(t.places), Target: kv.TargetCreateRevision,
		})
	}
	r.txn.Then = append(r.txn.Then, kv.Put(key, marshalPlace(live), 0))
	r.writes = append(r.writes, s.batch.hash(key))
	if live.GateKey != "" {
		// Jobs may differ in their limits: then a place is beyond that of another.
		r.writes = append(r.writes, s.batch.hash(t.places))
	}
}

func marshalPlace(l *state.Live) []byte {
	value, err := proto.Marshal(&statev1.Place{Job: l.Job.Name, Run: string(l.Run)})
	if err != nil { // only text that is no UTF-8, which names never are
		return nil
	}
	return value
}

// inOrder has a claim fail while runs wait that are due earlier, or the run itself
// does, which then is to be claimed by its pending key.
func (s *Store) inOrder(t *claimTry, r *request) {
	if mutant.Off(mutant.QueueOrder) {
		return
	}
	first, until := s.keys.pendingOf(t.c.Job), s.keys.pendingRun(t.c.Job, t.live.Run)
	if t.c.Pending == 0 {
		until += "\x00"
	}
	r.txn.If = append(r.txn.If, kv.Compare{Key: first, End: until, Target: kv.TargetCreateRevision})
	r.reads = append(r.reads, s.batch.hash(first))
}
