package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// The ends of a job that others run after are found in its history, by the revisions at
// which the verdicts were made: each follower's key has the revision up to which it has
// looked (at first its own, so that what ended before counts for nothing), and the
// transaction that moves it on makes the runs. So each end makes each run once, whoever
// leads, and a verdict costs nothing more than that of any other job.

// maxEnds is how many ends one step takes in.
const maxEnds = 12

// edge is a follower's key.
type edge struct {
	upstream state.JobID
	key      string
	revision int64
	follow   *statev1.Follow
	moved    bool
}

// ended is the verdict of a run that ended behind an edge's cursor.
type ended struct {
	run      state.RunID
	revision int64 // at which it was made
	record   *statev1.Record
	result   []byte
}

// AdvanceChain makes the runs of a job that are due after the ends of others, as many
// as one step takes, while the term stands: see state.Advance. Errors: state.ErrJobChanged
// where the job has another revision, and those of package kv and state.ErrTermLost; after
// any of them the step may be made again.
func (s *Store) AdvanceChain(ctx context.Context, term state.Term, a state.Advance) (state.Advanced, error) {
	done, err := s.advance(ctx, term, &a)
	if err != nil {
		return state.Advanced{}, fmt.Errorf("look what %s runs after: %w", a.Job, err)
	}
	return done, nil
}

func (s *Store) advance(ctx context.Context, term state.Term, a *state.Advance) (done state.Advanced, err error) {
	edges, found, seen, err := s.readEnds(ctx, a)
	if err != nil || len(edges) != len(a.After.Jobs) {
		// Its newest version has other edges.
		return done, errors.Join(err, lacking(err))
	}
	done.Seen = seen
	for i := range edges {
		if len(found[i]) > maxEnds {
			found[i], done.More = found[i][:maxEnds], true
		}
		if err := s.readVerdicts(ctx, edges[i].upstream, found[i]); err != nil {
			return done, err
		}
	}
	r := &request{}
	if a.After.Mode == state.AfterAny && len(edges) > 1 || len(edges) == 1 {
		err = s.followEach(a, r, edges, found, &done)
	} else {
		err = s.followAll(ctx, a, r, edges, found, &done)
	}
	if err != nil {
		return done, err
	}
	moved := false
	for i := range edges {
		e := &edges[i]
		moved = moved || e.moved
		r.txn.If = append(r.txn.If, unchanged(e.key, e.revision))
		if !e.moved {
			continue
		}
		value, err := proto.Marshal(e.follow)
		if err != nil {
			return done, err
		}
		r.txn.Then = append(r.txn.Then, kv.Put(e.key, value, 0))
		r.writes = append(r.writes, s.batch.hash(e.key))
	}
	if !moved {
		return done, nil
	}
	jobKey := s.keys.job(a.Job)
	r.txn.If = append(r.txn.If, unchanged(jobKey, a.JobRevision))
	r.reads = append(r.reads, s.batch.hash(jobKey))
	r.txn.Else = []kv.Op{keyOnly(jobKey)}
	res, err := s.lead(ctx, term, r)
	switch {
	case err != nil:
		return done, err
	case res.Succeeded:
		return done, nil
	}
	if err := over(term, res); err != nil {
		return done, err
	}
	if modRevision(res.Results[0]) != a.JobRevision {
		return done, state.ErrJobChanged
	}
	// An earlier try of this was carried out, or an edge was made anew: look again.
	return state.Advanced{More: true}, nil
}

// lacking is the error for a job that has not the edges which its version names.
func lacking(err error) error {
	if err == nil {
		return state.ErrJobChanged
	}
	return nil
}

// readEnds reads a job's edges and, of each upstream job, the verdicts that are behind
// the edge's cursor, in the order in which they were made; all as of revision seen.
func (s *Store) readEnds(ctx context.Context, a *state.Advance) (edges []edge, found [][]ended, seen int64, err error) {
	var read kv.Txn
	for _, name := range a.After.Jobs {
		upstream := state.JobID{Namespace: a.Job.Namespace, Name: name}
		history := s.keys.historyOf(upstream)
		keys := kv.GetRange(history, end(history), 0)
		keys.Keys = true
		read.Then = append(read.Then, kv.Get(s.keys.follower(upstream, a.Job.Name)), keys)
	}
	res, _, err := s.send(ctx, read)
	if err != nil {
		return nil, nil, 0, err
	}
	for i, name := range a.After.Jobs {
		upstream := state.JobID{Namespace: a.Job.Namespace, Name: name}
		kvs := res.Results[2*i].KVs
		if len(kvs) == 0 {
			return nil, nil, 0, nil
		}
		e := edge{upstream: upstream, key: kvs[0].Key, revision: kvs[0].ModRevision, follow: &statev1.Follow{}}
		if err := proto.Unmarshal(kvs[0].Value, e.follow); err != nil {
			s.log.Error("unreadable note of what was followed is written anew; ends up to its revision make no run", "key", kvs[0].Key, "err", err)
			e.follow = &statev1.Follow{Cursor: kvs[0].ModRevision}
		}
		if e.follow.GetCursor() == 0 {
			e.follow.Cursor = kvs[0].CreateRevision
		}
		edges, found = append(edges, e), append(found, s.endsBehind(&e, res.Results[2*i+1].KVs))
	}
	return edges, found, res.Revision, nil
}

func (s *Store) endsBehind(e *edge, kvs []kv.KeyValue) []ended {
	var ends []ended
	prefix := s.keys.historyOf(e.upstream)
	for _, found := range kvs {
		if found.CreateRevision < e.follow.GetCursor() {
			continue
		}
		run, err := runPart(found.Key[len(prefix):])
		if err != nil {
			s.log.Error("key of no run is passed over", "key", found.Key, "err", err)
			continue
		}
		if at := e.follow.GetCursorRun(); found.CreateRevision == e.follow.GetCursor() && (at == "" || string(run) <= at) {
			continue
		}
		ends = append(ends, ended{run: run, revision: found.CreateRevision})
	}
	slices.SortFunc(ends, func(a, b ended) int {
		if a.revision != b.revision {
			return int(a.revision - b.revision)
		}
		return strings.Compare(string(a.run), string(b.run))
	})
	return ends
}

// readVerdicts reads the verdicts of ends, and what their runs left. One that cannot be
// read, or was removed meanwhile, has none.
func (s *Store) readVerdicts(ctx context.Context, upstream state.JobID, ends []ended) error {
	if len(ends) == 0 {
		return nil
	}
	var read kv.Txn
	for i := range ends {
		read.Then = append(read.Then, kv.Get(s.keys.historyRun(upstream, ends[i].run)), kv.Get(s.keys.result(upstream, ends[i].run)))
	}
	res, _, err := s.send(ctx, read)
	if err != nil {
		return err
	}
	for i := range ends {
		if kvs := res.Results[2*i].KVs; len(kvs) > 0 {
			rec := &statev1.Record{}
			if err := proto.Unmarshal(kvs[0].Value, rec); err != nil {
				s.log.Error("unreadable verdict makes no run of those that come after it", "key", kvs[0].Key, "err", err)
				continue
			}
			ends[i].record = rec
		}
		if kvs := res.Results[2*i+1].KVs; len(kvs) > 0 {
			ends[i].result = kvs[0].Value
		}
	}
	return nil
}

// counts tells whether an end is one that the job runs after.
func (e *ended) counts(a *state.Advance) bool {
	return e.record != nil && e.record.GetCount() <= 1 && a.After.Counts(state.RunState(min(e.record.GetState(), 0xff)))
}

// pass moves an edge's cursor to an end.
func (g *edge) pass(e *ended) {
	g.follow.Cursor, g.follow.CursorRun, g.moved = e.revision, string(e.run), true
}

// followEach makes a run of each end that counts.
func (s *Store) followEach(a *state.Advance, r *request, edges []edge, found [][]ended, done *state.Advanced) error {
	left := maxEnds // of all edges together: each may make a run with a payload
	for i := range edges {
		g := &edges[i]
		for j := range found[i] {
			e := &found[i][j]
			if left == 0 {
				done.More = true
				break
			}
			left--
			g.pass(e)
			if !e.counts(a) {
				continue
			}
			chain := codec.ChainFromProto(e.record)
			made := state.Chain{
				Correlation: chain.Correlate(g.upstream.Name, e.run),
				Upstream:    []state.Upstream{{Job: g.upstream.Name, Run: e.run, State: state.RunState(e.record.GetState())}},
			}
			if err := s.makeAfter(a, r, made, codec.Time(e.record.GetRecorded()), e.result, done); err != nil {
				return err
			}
		}
	}
	return nil
}

// followAll keeps the newest end of each job that counts, and makes a run of them once
// there is one of each.
func (s *Store) followAll(ctx context.Context, a *state.Advance, r *request, edges []edge, found [][]ended, done *state.Advanced) error {
	results := make([][]byte, len(edges))
	fresh := make([]bool, len(edges))
	complete := true
	for i := range edges {
		g := &edges[i]
		for j := range found[i] {
			e := &found[i][j]
			g.pass(e)
			if !e.counts(a) {
				continue
			}
			chain := codec.ChainFromProto(e.record)
			g.follow.Run, g.follow.State, g.follow.Recorded = string(e.run), e.record.GetState(), e.record.GetRecorded()
			g.follow.Correlation = chain.Correlate(g.upstream.Name, e.run)
			g.follow.Result = len(e.result) > 0
			results[i], fresh[i] = e.result, true
		}
		complete = complete && g.follow.GetRun() != ""
	}
	if !complete {
		return nil
	}
	var chain state.Chain
	var last int64
	given := make([]givenResult, len(edges))
	for i := range edges {
		f := edges[i].follow
		if !fresh[i] {
			kept, err := s.readOne(ctx, s.keys.result(edges[i].upstream, state.RunID(f.GetRun())))
			if err != nil {
				return err
			}
			results[i] = kept.Value
		}
		up := state.Upstream{Job: edges[i].upstream.Name, Run: state.RunID(f.GetRun()), State: state.RunState(f.GetState())}
		up.ResultLost = f.GetResult() && results[i] == nil // by retention, while others were waited for
		chain.Upstream = append(chain.Upstream, up)
		given[i] = givenResult{Job: up.Job, Run: string(up.Run), State: up.State.String(), ResultLost: up.ResultLost}
		if results[i] != nil {
			given[i].Result = base64.StdEncoding.EncodeToString(results[i])
		}
		if f.GetRecorded() >= last { // the chain of the one that was waited for
			last, chain.Correlation = f.GetRecorded(), f.GetCorrelation()
		}
		edges[i].follow.Run, edges[i].follow.State, edges[i].follow.Recorded, edges[i].follow.Correlation = "", 0, 0, ""
		edges[i].follow.Result = false
		edges[i].moved = true
	}
	payload, err := json.Marshal(given)
	if err != nil {
		return err
	}
	return s.makeAfter(a, r, chain, codec.Time(last), payload, done)
}

// givenResult is what a run is given of one of several that it comes after.
type givenResult struct {
	Job    string `json:"job"`
	Run    string `json:"run"`
	State  string `json:"state"`
	Result string `json:"result,omitempty"`
	// ResultLost: it left a result, which has been removed since.
	ResultLost bool `json:"resultLost,omitempty"`
}

// makeAfter has a request make a run. That of a paused job is skipped at once.
func (s *Store) makeAfter(a *state.Advance, r *request, chain state.Chain, at time.Time, payload []byte, done *state.Advanced) error {
	p := state.Pending{
		Job: a.Job, Run: state.AfterRunID(at, chain.Upstream), Requested: a.Now, Actor: state.Leaderd, Chain: chain,
	}
	done.Runs = append(done.Runs, p.Run)
	if a.Paused {
		historyKey := s.keys.historyRun(p.Job, p.Run)
		value := codec.MarshalRecord(&state.Record{
			Generation: a.Generation, State: state.StateSkipped, Reason: state.ReasonPaused, Due: p.Requested, Recorded: a.Now, Shards: 1, Chain: chain,
		})
		r.txn.If = append(r.txn.If, absent(historyKey))
		r.txn.Then = append(r.txn.Then, kv.Put(historyKey, value, 0))
		r.writes = append(r.writes, s.batch.hash(historyKey))
		return nil
	}
	value, err := marshalPending(&p)
	if err != nil {
		return err
	}
	key := s.keys.pendingRun(p.Job, p.Run)
	r.txn.If = append(r.txn.If, absent(key))
	r.txn.Then = append(r.txn.Then, kv.Put(key, value, 0))
	r.writes = append(r.writes, s.batch.hash(key))
	if len(payload) > 0 {
		payloadKey := s.keys.payload(p.Job, p.Run)
		r.txn.Then = append(r.txn.Then, kv.Put(payloadKey, payload, 0))
		r.writes = append(r.writes, s.batch.hash(payloadKey))
	}
	return nil
}
