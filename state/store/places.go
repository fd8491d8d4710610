package store

import (
	"errors"
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
	switch {
	case h.run == "":
		return "the run of the key " + h.key + ", which cannot be read,"
	case h.job == to:
		return "run " + string(h.run)
	}
	return "run " + string(h.run) + " of " + h.job.String()
}

// takersAt reads the places of a gate or a limit, in order of their keys. One that cannot
// be read is taken by a run that nobody knows. So is a key that is none: see full.
func (s *Store) takersAt(prefix, namespace string, kvs []kv.KeyValue) []taker {
	all := make([]taker, len(kvs))
	for i, found := range kvs {
		t := taker{key: found.Key, mod: found.ModRevision}
		name := found.Key[len(prefix):]
		var p statev1.Place
		var err error
		t.place, err = strconv.Atoi(name)
		switch {
		case err != nil || placePart(t.place) != name || t.place > state.MaxConcurrent:
			t.place, err = 0, errNoPlace
		default:
			if err = proto.Unmarshal(found.Value, &p); err == nil && p.GetRun() == "" {
				err = errNoPlace
			}
		}
		if err != nil {
			s.log.Error("unreadable place counts as taken; delete its key once no run that could have it is at work", "key", found.Key, "err", err)
			all[i] = t
			continue
		}
		t.job, t.run = state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()}, state.RunID(p.GetRun())
		if t.job.Namespace == "" { // as places at gates have it
			t.job.Namespace = namespace
		}
		all[i] = t
	}
	return all
}

var errNoPlace = errors.New("it is no place of a run")

// placePart is the last part of the key of a place, from 1. They sort by number.
func placePart(n int) string { return fmt.Sprintf("%04d", n) }

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
	if full(t.places, v.taken, c.Gate.Limit) {
		return v.taken
	}
	return nil
}

// full tells whether none of so many places can be taken. The limit counts: so one that
// was lowered, or that is another job's, is reached while a place beyond it is taken. What
// is no place is as good as one where claims, which compare that nothing is beyond the
// limit, meet it.
func full(prefix string, taken []taker, limit int) bool {
	n, beyond := 0, prefix+placePart(limit+1)
	for i := range taken {
		if taken[i].key >= beyond {
			return true
		}
		if taken[i].place > 0 {
			n++
		}
	}
	return n >= limit
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
