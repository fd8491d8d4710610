package api

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// maxAttemptBytes is how much the tries of a run may take that is split: of more, only the
// last of each shard is told with the run.
const maxAttemptBytes = 1 << 20

// ListShards implements leaderdv1.RunServiceServer.
func (s *runService) ListShards(ctx context.Context, req *leaderdv1.ListShardsRequest) (*leaderdv1.ListShardsResponse, error) {
	var v state.Violations
	id, run := parseRunName(&v, req.GetName())
	limit := pageSize(&v, req.GetPageSize())
	scope, from := "shards of "+req.GetName(), -1 // which is the first step, where there is one
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 1); parts != nil {
		var err error
		if from, err = strconv.Atoi(parts[0]); err != nil || from < 0 {
			v.Add("pageToken", "is no page token of this run")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	entry, err := s.cfg.Runs.GetRun(ctx, id, run)
	if err == nil && entry.Broken != nil {
		err = entry.Broken
	}
	if err != nil {
		return nil, s.fail(ctx, req.GetName(), err)
	}
	split, shards := shardsOf(&entry)
	res := &leaderdv1.ListShardsResponse{}
	if from < 0 {
		if step := stepOf(&entry); step != nil {
			res.Shards = append(res.Shards, shardOf(&state.Split{}, state.ListShard, step))
			limit--
		}
		from = 0
	}
	if split == nil {
		return res, nil
	}
	until, size := min(from+limit, split.Total()), 0
	for i := from; i < until; i++ {
		shard := shardOf(split, i, shards[i])
		if carried := split.CarriedFrom(i); carried != "" {
			shard.CarriedFrom = runName(id, carried)
			shard.State = leaderdv1.Run_STATE_SUCCEEDED
		}
		if size += proto.Size(shard); i > from && size > store.MaxPageBytes {
			until = i
			break
		}
		res.Shards = append(res.Shards, shard)
	}
	if until < split.Total() {
		res.NextPageToken = pageToken(scope, strconv.Itoa(until))
	}
	return res, nil
}

// shardsOf is what a run is split into, and the records of those shards that have one, by
// number; nil for a run that is not.
func shardsOf(e *store.RunEntry) (*state.Split, map[int]*state.Live) {
	var split *state.Split
	var all []state.Live
	switch {
	case e.Record != nil:
		split, all = e.Record.Split, e.Record.Ends
		if split != nil && split.Listed() && len(all) == 0 && e.Record.State != state.StateSucceeded {
			return nil, nil // its first step has listed none
		}
	case len(e.Live) > 0:
		split, all = e.Live[0].Split, e.Live[1:]
	case e.Pending != nil:
		split = e.Pending.Split
	}
	if split == nil {
		return nil, nil
	}
	by := make(map[int]*state.Live, len(all))
	for i := range all {
		by[all[i].Shard] = &all[i]
	}
	return split, by
}

// stepOf is the first step of a run that lists its shards as a shard is, nil for another
// run. Once it has ended its output is told with the run, if at all.
func stepOf(e *store.RunEntry) *state.Live {
	var attempts []state.Attempt
	switch {
	case e.Record != nil:
		if e.Record.Split == nil || !e.Record.Split.Listed() {
			return nil
		}
		attempts = e.Record.Attempts
	case len(e.Live) == 0:
		return nil
	case e.Live[0].Shard == state.ListShard:
		return &e.Live[0]
	case !e.Live[0].IsHeader() || !e.Live[0].Split.Listed():
		return nil
	default:
		attempts = e.Live[0].Attempts
	}
	step := &state.Live{Shard: state.ListShard, State: state.StateCancelled, Attempts: attempts} // before its first attempt began
	if n := len(attempts); n > 0 {
		step.State = attempts[n-1].State
	}
	if e.Record != nil && len(e.Record.Ends) == 0 { // whose verdict is the run's
		step.State = e.Record.State
		step.End = &state.ShardEnd{Reason: e.Record.Reason, Detail: e.Record.Detail}
	}
	return step
}

// shardOf is a shard as it is answered; l is nil where nobody has claimed it.
func shardOf(split *state.Split, number int, l *state.Live) *leaderdv1.Shard {
	part := split.Part(number)
	res := &leaderdv1.Shard{
		Number: int32(number), State: leaderdv1.Run_STATE_PENDING, Params: part.Params, Node: part.Node, //nolint:gosec // bounded by state.MaxShards
	}
	if part.HasRange {
		res.RangeFrom, res.RangeTo = &part.Range.From, &part.Range.To
	}
	if l == nil {
		return res
	}
	res.State = runStateOf(l.State)
	res.Attempts = attemptsOf(l)
	if l.State == state.StateWaiting {
		res.NextAttemptTime = timeOf(l.NextTry)
	}
	if end := l.End; end != nil {
		res.Reason, res.Detail, res.OutputTail, res.OutputBytes = end.Reason, end.Detail, end.Tail, end.OutputBytes
	}
	return res
}

// attemptsOf are the attempts of a shard, the one that runs too.
func attemptsOf(l *state.Live) []*leaderdv1.Attempt {
	all := appendAttempts(nil, l.Attempts)
	if l.State == state.StateRunning {
		all = append(all, running(l))
	}
	for _, a := range all {
		a.Shard = int32(l.Shard) //nolint:gosec // bounded by state.MaxShards
	}
	return all
}

// ofSplit adds what the shards of a run say of it.
func ofSplit(res *leaderdv1.Run, e *store.RunEntry) {
	if step := stepOf(e); step != nil {
		res.Attempts = attemptsOf(step)
	}
	split, shards := shardsOf(e)
	if split == nil {
		return
	}
	n := &leaderdv1.ShardCounts{
		Total: int32(split.Total()), MinSuccess: int32(split.Needed()), //nolint:gosec // bounded by state.MaxShards
	}
	var last []*leaderdv1.Attempt
	if k := len(res.GetAttempts()); k > 0 {
		last = append(last, res.GetAttempts()[k-1]) // of the first step
	}
	size := 0
	for i := range split.Carried {
		of := &leaderdv1.CarriedShards{Run: runName(e.Job, split.Carried[i].Run)}
		for _, shard := range split.Carried[i].Shards {
			of.Shards = append(of.Shards, int32(shard)) //nolint:gosec // bounded by state.MaxShards
		}
		res.Carried = append(res.Carried, of)
	}
	for i := range split.Total() {
		l := shards[i]
		if split.CarriedFrom(i) != "" {
			n.Succeeded++
			n.Carried++
			continue
		}
		if l == nil {
			n.Pending++
			continue
		}
		all := attemptsOf(l)
		for _, a := range all {
			size += proto.Size(a)
		}
		if len(all) > 0 {
			last = append(last, all[len(all)-1])
		}
		res.Attempts = append(res.GetAttempts(), all...)
		switch l.State { //nolint:exhaustive // all others are ends
		case state.StateRunning:
			n.Running++
		case state.StateWaiting:
			n.Waiting++
		case state.StateSucceeded:
			n.Succeeded++
		default:
			n.Failed++
		}
	}
	res.Shards = n
	if size > maxAttemptBytes {
		res.Attempts = last
	}
	if e.Record != nil || len(e.Live) == 0 {
		return
	}
	header := &e.Live[0]
	res.State, res.DueTime, res.JobGeneration = leaderdv1.Run_STATE_RUNNING, timeOf(header.Due), header.Generation
	if n.GetWaiting() > 0 && n.GetRunning() == 0 && n.GetPending() == 0 {
		res.State = leaderdv1.Run_STATE_WAITING
	}
}
