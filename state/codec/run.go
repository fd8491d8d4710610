package codec

import (
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// LiveToProto is a live record in its stored form. Job, Token and Exclusive are
// the key's to tell.
func LiveToProto(l *state.Live) *statev1.Live {
	return &statev1.Live{
		Run:           string(l.Run),
		Shard:         int32(l.Shard),  //nolint:gosec // bounded by the spec
		Shards:        int32(l.Shards), //nolint:gosec // bounded by the spec
		Generation:    l.Generation,
		State:         uint32(l.State),
		Attempt:       int32(l.Attempt), //nolint:gosec // bounded by the spec
		Owner:         l.Owner.Node,
		OwnerRevision: l.Owner.Revision,
		Term:          l.Term,
		Due:           Micros(l.Due),
		Claimed:       Micros(l.Claimed),
		NextTry:       Micros(l.NextTry),
		AtMostOnce:    l.AtMostOnce,
		Attempts:      AttemptsToProto(l.Attempts),

		ConcurrencyKey: l.GateKey,
		Place:          int32(l.Place), //nolint:gosec // bounded by its limit

		Tries:   int32(l.Tries),   //nolint:gosec // bounded by MaxAttempts
		Snoozes: int32(l.Snoozes), //nolint:gosec // bounded by MaxSnoozes
		Origin:  string(l.Origin),

		DeadLetter: l.DeadLetter,
		Header:     l.Header,
		End:        shardEndToProto(l.End),
		Split:      SplitToProto(l.Split),
		Listing:    recordedShards(l.Listing),
		Holds:      holdsToProto(l.Holds),

		Circuit:     breakerToProto(l.Circuit),
		LimitKey:    l.LimitKey,
		Correlation: l.Correlation,
		Upstream:    UpstreamToProto(l.Upstream),
	}
}

// LiveFromProto is the inverse of LiveToProto.
func LiveFromProto(p *statev1.Live) state.Live {
	return state.Live{
		Run:        state.RunID(p.GetRun()),
		Shard:      int(p.GetShard()),
		Shards:     int(p.GetShards()),
		Generation: p.GetGeneration(),
		State:      runState(p.GetState()),
		Attempt:    int(p.GetAttempt()),
		Owner:      state.Owner{Node: p.GetOwner(), Revision: p.GetOwnerRevision()},
		Term:       p.GetTerm(),
		Due:        Time(p.GetDue()),
		Claimed:    Time(p.GetClaimed()),
		NextTry:    Time(p.GetNextTry()),
		AtMostOnce: p.GetAtMostOnce(),
		GateKey:    p.GetConcurrencyKey(),
		Place:      int(p.GetPlace()),
		Attempts:   AttemptsFromProto(p.GetAttempts()),
		Tries:      int(p.GetTries()),
		Snoozes:    int(p.GetSnoozes()),
		Origin:     state.RunID(p.GetOrigin()),
		DeadLetter: p.GetDeadLetter(),
		Header:     p.GetHeader(),
		End:        shardEndFromProto(p.GetEnd()),
		Split:      SplitFromProto(p.GetSplit()),
		Listing:    ShardsFromProto(p.GetListing()),
		Holds:      holdsFromProto(p.GetHolds()),
		Circuit:    breakerFromProto(p.GetCircuit()),
		LimitKey:   p.GetLimitKey(),
		Chain:      ChainFromProto(p),
	}
}

func runState(s uint32) state.RunState {
	if s > 0xff {
		return state.StateNone
	}
	return state.RunState(s)
}

// AttemptToProto is an attempt in its stored form.
func AttemptToProto(a *state.Attempt) *statev1.Attempt {
	p := &statev1.Attempt{
		Number:  int32(a.Number), //nolint:gosec // bounded by the spec
		Node:    a.Node,
		Token:   a.Token,
		Term:    a.Term,
		Claimed: Micros(a.Claimed),
		Started: Micros(a.Started),
		Ended:   Micros(a.Ended),
		State:   uint32(a.State),
		Error:   a.Error,

		ProgressDone: a.Done, ProgressTotal: a.Total, ProgressMessage: a.Message,
		Snoozed: a.Snoozed, Unclaimed: a.Unclaimed,
	}
	if a.HasCode {
		code := int32(a.ExitCode) //nolint:gosec // an exit code or status
		p.ExitCode = &code
	}
	return p
}

// AttemptFromProto is the inverse of AttemptToProto.
func AttemptFromProto(p *statev1.Attempt) state.Attempt {
	return state.Attempt{
		Number:   int(p.GetNumber()),
		Node:     p.GetNode(),
		Token:    p.GetToken(),
		Term:     p.GetTerm(),
		Claimed:  Time(p.GetClaimed()),
		Started:  Time(p.GetStarted()),
		Ended:    Time(p.GetEnded()),
		State:    runState(p.GetState()),
		ExitCode: int(p.GetExitCode()),
		HasCode:  p.ExitCode != nil,
		Error:    p.GetError(),

		Done: p.GetProgressDone(), Total: p.GetProgressTotal(), Message: p.GetProgressMessage(),
		Snoozed: p.GetSnoozed(), Unclaimed: p.GetUnclaimed(),
	}
}

// AttemptsToProto is a list of attempts in its stored form.
func AttemptsToProto(as []state.Attempt) []*statev1.Attempt {
	if len(as) == 0 {
		return nil
	}
	ps := make([]*statev1.Attempt, len(as))
	for i := range as {
		ps[i] = AttemptToProto(&as[i])
	}
	return ps
}

// AttemptsFromProto is the inverse of AttemptsToProto.
func AttemptsFromProto(ps []*statev1.Attempt) []state.Attempt {
	if len(ps) == 0 {
		return nil
	}
	as := make([]state.Attempt, len(ps))
	for i, p := range ps {
		as[i] = AttemptFromProto(p)
	}
	return as
}

// RecordToProto is a verdict in its stored form. Job, Run and Revision are the
// key's to tell.
func RecordToProto(r *state.Record) *statev1.Record {
	return &statev1.Record{
		Generation:  r.Generation,
		State:       uint32(r.State),
		Reason:      r.Reason,
		Detail:      r.Detail,
		Due:         Micros(r.Due),
		Until:       Micros(r.Until),
		Count:       r.Count,
		Recorded:    Micros(r.Recorded),
		Shards:      int32(r.Shards), //nolint:gosec // bounded by the spec
		Attempts:    AttemptsToProto(r.Attempts),
		Tail:        r.Tail,
		OutputBytes: r.OutputBytes,
		Origin:      string(r.Origin),
		Tries:       int32(r.Tries), //nolint:gosec // bounded by MaxAttempts
		Ends:        endsToProto(r.Ends),
		Split:       SplitToProto(r.Split),
		Hooks:       hookRunsToProto(r.Hooks),
		Result:      r.Result,
		LimitKey:    r.LimitKey,
		Doubles:     AttemptsToProto(r.Doubles),
		Correlation: r.Correlation,
		Upstream:    UpstreamToProto(r.Upstream),
	}
}

// RecordFromProto is the inverse of RecordToProto.
func RecordFromProto(p *statev1.Record) state.Record {
	return state.Record{
		Generation:  p.GetGeneration(),
		State:       runState(p.GetState()),
		Reason:      p.GetReason(),
		Detail:      p.GetDetail(),
		Due:         Time(p.GetDue()),
		Until:       Time(p.GetUntil()),
		Count:       p.GetCount(),
		Recorded:    Time(p.GetRecorded()),
		Shards:      int(p.GetShards()),
		Attempts:    AttemptsFromProto(p.GetAttempts()),
		Tail:        p.GetTail(),
		OutputBytes: p.GetOutputBytes(),
		Origin:      state.RunID(p.GetOrigin()),
		Tries:       int(p.GetTries()),
		Ends:        endsFromProto(p.GetEnds()),
		Split:       SplitFromProto(p.GetSplit()),
		Hooks:       hookRunsFromProto(p.GetHooks()),
		Result:      p.GetResult(),
		LimitKey:    p.GetLimitKey(),
		Doubles:     AttemptsFromProto(p.GetDoubles()),
		Chain:       ChainFromProto(p),
	}
}
