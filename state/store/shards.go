package store

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A run that is split has a header: a live record that stands for the run as a whole,
// and is claimed as the record of any other run is, by whoever claims a shard first.
// All that keeps a run from starting keeps its header from being claimed. A shard is
// claimed under the header: its claim compares that the header is there as it was read,
// that the run has no verdict, and what concerns the shard alone.

// maxHeaders bounds what is remembered of headers.
const maxHeaders = 256

// headers remembers the headers under which this process claimed shards. It is only a
// guess: claims compare it.
type headers struct {
	mu      sync.Mutex
	of      map[headerKey]state.Live
	flights map[headerAsk]*headerFlight
}

type headerKey struct {
	job state.JobID
	run state.RunID
}

// headerAsk are claims of a header that differ in nothing.
type headerAsk struct {
	headerKey
	owner                     state.Owner
	revision, pending, closed int64
	exclusive, due            bool
	gate                      state.Gate
}

// headerFlight is such a claim under way.
type headerFlight struct {
	done chan struct{}
	res  state.ClaimResult
	err  error
	// left is set where who asked has gone: the error is of that.
	left bool
}

func (h *headers) get(k headerKey) (state.Live, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, ok := h.of[k]
	return l, ok
}

func (h *headers) set(k headerKey, l state.Live) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = make(map[headerKey]state.Live)
	}
	if _, ok := h.of[k]; !ok && len(h.of) >= maxHeaders {
		for other := range h.of {
			delete(h.of, other)
			break
		}
	}
	h.of[k] = l
}

func (h *headers) drop(k headerKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, k)
}

// once has one of several equal claims of a header asked for; the others wait for its
// answer.
func (h *headers) once(ctx context.Context, ask headerAsk, claim func() (state.ClaimResult, error)) (state.ClaimResult, error) {
	h.mu.Lock()
	for h.flights[ask] != nil {
		f := h.flights[ask]
		h.mu.Unlock()
		select {
		case <-f.done:
			if !f.left {
				return f.res, f.err
			}
		case <-ctx.Done():
			return state.ClaimResult{}, context.Cause(ctx)
		}
		h.mu.Lock()
	}
	if h.flights == nil {
		h.flights = make(map[headerAsk]*headerFlight)
	}
	f := &headerFlight{done: make(chan struct{})}
	h.flights[ask] = f
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.flights, ask)
		h.mu.Unlock()
		close(f.done)
	}()
	f.res, f.err = claim()
	f.left = f.err != nil && ctx.Err() != nil
	return f.res, f.err
}

// claimShard claims a shard of a run that is split, and the run's header before it where
// there is none.
func (s *Store) claimShard(ctx context.Context, c *state.Claim) (state.ClaimResult, error) {
	switch {
	case c.Live.Owner.Revision == 0:
		return state.ClaimResult{Status: state.ClaimDisowned}, nil
	case c.JobRevision == 0:
		return state.ClaimResult{Status: state.ClaimStale}, nil
	}
	for range maxTries {
		header, res, err := s.header(ctx, c)
		if header == nil || err != nil {
			return res, err
		}
		part := header.Split.Part(c.Live.Shard)
		carried := header.Split.CarriedFrom(c.Live.Shard) != "" && !mutant.Off(mutant.Carried)
		if carried || c.Live.Shard < 0 || c.Live.Shard >= header.Split.Total() || part.Node != "" && part.Node != c.Live.Owner.Node {
			return state.ClaimResult{Status: state.ClaimDecided}, nil // by an older plan: it is not this owner's to run
		}
		live := c.Live
		live.Job, live.Exclusive, live.State = c.Job, false, state.StateRunning
		live.Shards, live.Due, live.Header = header.Split.Total(), header.Due, header.Token
		live.Circuit = nil // which counts the run, by its header
		if c.Token != 0 {
			ok, err := s.carryOnShard(ctx, c, &live)
			if err != nil || !ok {
				return state.ClaimResult{Status: state.ClaimStale}, err
			}
		}
		r := s.shardRequest(c, &live, header)
		if c.Token == 0 && header.Origin != "" {
			if err := s.resumeShard(ctx, r, &live, header.Split.ResumedFrom(live.Shard)); err != nil {
				return state.ClaimResult{}, err
			}
		}
		got, err := s.batch.do(ctx, r)
		if err != nil {
			return state.ClaimResult{}, err
		}
		if got.Succeeded {
			live.Token = got.Revision
			return state.ClaimResult{Status: state.Claimed, Live: &live, Part: part}, nil
		}
		res, again, err := s.shardRefused(ctx, c, &live, header)
		if err != nil || !again {
			if res.Status == state.Claimed {
				res.Part = part
			}
			return res, err
		}
	}
	return state.ClaimResult{}, ErrContended
}

// shardRequest is the claim of one shard.
func (s *Store) shardRequest(c *state.Claim, live, header *state.Live) *request {
	k := s.keys.names(live)
	headerKey := s.keys.live(header)
	r := &request{}
	if !mutant.Off(mutant.Registration) {
		r.guard(s.registered(live.Owner))
	}
	if !mutant.Off(mutant.History) {
		r.txn.If = append(r.txn.If, absent(k.history))
	}
	if !mutant.Off(mutant.JobRevision) {
		r.txn.If = append(r.txn.If, unchanged(k.job, c.JobRevision))
	}
	r.txn.If = append(r.txn.If, unchanged(headerKey, header.Token))
	if !mutant.Off(mutant.LiveRecord) {
		r.txn.If = append(r.txn.If, unchanged(k.live, c.Token)) // 0: it is not there
	}
	r.txn.Then = []kv.Op{kv.Put(k.live, codec.MarshalLive(live), 0)}
	// As of any live record beside the gate: see claimRequest.
	r.reads = []uint64{s.batch.hash(k.history), s.batch.hash(headerKey), s.batch.hash(k.active)}
	r.writes = []uint64{s.batch.hash(k.live)}
	return r
}

// shardRefused says why the claim of a shard was refused, or that it is worth another
// try.
func (s *Store) shardRefused(ctx context.Context, c *state.Claim, live, header *state.Live) (res state.ClaimResult, again bool, err error) {
	read, err := s.look(ctx, keyOnly(s.keys.node(live.Owner.Node)), keyOnly(s.keys.historyRun(c.Job, live.Run)),
		kv.Get(s.keys.live(live)), keyOnly(s.keys.job(c.Job)), keyOnly(s.keys.live(header)))
	if err != nil {
		return res, false, err
	}
	node, own := read.Results[0].KVs, read.Results[2].KVs
	switch {
	case len(node) == 0 || node[0].CreateRevision != live.Owner.Revision:
		return state.ClaimResult{Status: state.ClaimDisowned}, false, nil
	case len(read.Results[1].KVs) > 0:
		return state.ClaimResult{Status: state.ClaimDecided}, false, nil
	}
	if len(own) > 0 {
		stored, err := decodeLive(c.Job, false, own[0])
		if err != nil {
			return res, false, err
		}
		if mine(&stored, live) && !mutant.Off(mutant.ReadBack) {
			return state.ClaimResult{Status: state.Claimed, Live: &stored}, false, nil
		}
		if c.Token == 0 {
			return state.ClaimResult{Status: state.ClaimLive}, false, nil
		}
	}
	switch {
	case modRevision(read.Results[4]) != header.Token:
		s.headers.drop(headerKey{c.Job, live.Run})
		return res, true, nil
	case modRevision(read.Results[3]) != c.JobRevision, modRevision(read.Results[2]) != c.Token:
		return state.ClaimResult{Status: state.ClaimStale}, false, nil
	}
	return res, true, nil
}

// carryOnShard is carryOn for a shard.
func (s *Store) carryOnShard(ctx context.Context, c *state.Claim, live *state.Live) (ok bool, err error) {
	res, err := s.look(ctx, kv.Get(s.keys.live(live)))
	if err != nil || len(res.Results[0].KVs) == 0 {
		return false, err
	}
	before, err := decodeLive(c.Job, false, res.Results[0].KVs[0])
	if err != nil {
		return false, err
	}
	if !mine(&before, live) && (before.Token != c.Token || before.Attempt+1 != live.Attempt ||
		state.CheckTransition(before.State, state.StateRunning) != nil) {
		return false, nil //nolint:nilerr // that a transition is refused is the answer
	}
	live.Attempts, live.Tries, live.Snoozes, live.Origin = before.Attempts, before.Tries, before.Snoozes, before.Origin
	live.Chain, live.LimitKey = before.Chain, before.LimitKey
	return true, nil
}

// header answers the header of a claim's run, made where there is none; nil and the
// claim's answer where there can be none.
func (s *Store) header(ctx context.Context, c *state.Claim) (*state.Live, state.ClaimResult, error) {
	k := headerKey{c.Job, c.Live.Run}
	if known, ok := s.headers.get(k); ok {
		return &known, state.ClaimResult{}, nil
	}
	res, err := s.look(ctx, keyOnly(s.keys.historyRun(k.job, k.run)), kv.Get(s.keys.activeGate(k.job)),
		kv.Get(s.keys.activeShard(k.job, k.run, state.HeaderShard)))
	if err != nil {
		return nil, state.ClaimResult{}, err
	}
	if len(res.Results[0].KVs) > 0 {
		return nil, state.ClaimResult{Status: state.ClaimDecided}, nil
	}
	for i, at := range res.Results[1:] {
		for _, found := range at.KVs {
			l, err := decodeLive(k.job, i == 0, found)
			if err != nil {
				return nil, state.ClaimResult{}, err
			}
			if l.Run == k.run && l.IsHeader() {
				s.headers.set(k, l)
				return &l, state.ClaimResult{}, nil
			}
		}
	}
	if c.Token != 0 {
		return nil, state.ClaimResult{Status: state.ClaimStale}, nil
	}
	ask := headerAsk{k, c.Live.Owner, c.JobRevision, c.Pending, c.ClosedRevision, c.Exclusive, c.ApplyOverlap, c.Gate}
	made, err := s.headers.once(ctx, ask, func() (state.ClaimResult, error) { return s.claimHeader(ctx, c) })
	if err != nil || made.Status != state.Claimed {
		return nil, made, err
	}
	s.headers.set(k, *made.Live)
	return made.Live, state.ClaimResult{}, nil
}

// claimHeader claims the run of a shard's claim as a whole.
func (s *Store) claimHeader(ctx context.Context, c *state.Claim) (state.ClaimResult, error) {
	split, ok, err := s.splitOf(ctx, c)
	if err != nil || !ok {
		return state.ClaimResult{Status: state.ClaimStale}, err
	}
	of := *c
	of.Split = false
	of.Live.Shard, of.Live.Shards, of.Live.Attempt, of.Live.Split = state.HeaderShard, split.Total(), 1, split
	return s.claim(ctx, &of)
}

// splitOf is what a run of the claim's job is split into, as the job is now, or as the
// wish for it has it; ok is false where these are not as the claim has them.
func (s *Store) splitOf(ctx context.Context, c *state.Claim) (split *state.Split, ok bool, err error) {
	if c.Pending != 0 {
		found, err := s.readOne(ctx, s.keys.pendingRun(c.Job, c.Live.Run))
		if err != nil || found.ModRevision != c.Pending {
			return nil, false, err
		}
		p, err := s.DecodePending(found)
		if err != nil || p.Split != nil {
			return p.Split, err == nil, err
		}
	}
	res, err := s.look(ctx, kv.Get(s.keys.job(c.Job)), kv.GetRange(s.keys.nodes(), end(s.keys.nodes()), 0))
	if err != nil {
		return nil, false, err
	}
	if modRevision(res.Results[0]) != c.JobRevision {
		return nil, false, nil
	}
	var stored statev1.Job
	if err := proto.Unmarshal(res.Results[0].KVs[0].Value, &stored); err != nil {
		return nil, false, err
	}
	shards := codec.ShardsFromProto(stored.GetSpec().GetShards())
	if shards == nil || shards.Listed() { // which its first step splits
		return nil, false, nil
	}
	split = &state.Split{Shards: *shards}
	if shards.Broadcast {
		split.Nodes = s.matching(res.Results[1].KVs, stored.GetSpec())
	}
	return split, split.Total() > 0, nil
}

// matching are the names of the executors among nodes that have all labels of a
// job's selector and as much of each resource as it needs, in order.
func (s *Store) matching(nodes []kv.KeyValue, spec *leaderdv1.JobSpec) []string {
	var names []string
	for _, found := range nodes {
		var n statev1.Node
		name, err := unescape(strings.TrimPrefix(found.Key, s.keys.nodes()))
		if err == nil {
			err = proto.Unmarshal(found.Value, &n)
		}
		if err != nil {
			s.log.Error("unreadable node is left out of a broadcast", "key", found.Key, "err", err)
			continue
		}
		fits := n.GetExecutor()
		for resource, amount := range spec.GetResources() {
			fits = fits && n.GetResources()[resource] >= amount
		}
		for label, value := range spec.GetNodeSelector() {
			fits = fits && n.GetLabels()[label] == value
		}
		if fits && len(names) < state.MaxShards {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// marshalClaimed is the value of a record that is claimed. A header is owned by nobody:
// what it stands for goes on whatever becomes of who made it.
func marshalClaimed(l *state.Live) []byte {
	if !l.IsHeader() {
		return codec.MarshalLive(l)
	}
	header := *l
	header.Owner = state.Owner{}
	return codec.MarshalLive(&header)
}
