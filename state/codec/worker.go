package codec

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// ClaimToProto is a claim as the journal's protocol has it. Of c.Live the
// token is left out, and Job and Exclusive are those of the claim itself.
func ClaimToProto(c *state.Claim) *workerv1.Claim {
	return &workerv1.Claim{
		Namespace:      c.Job.Namespace,
		Job:            c.Job.Name,
		JobRevision:    c.JobRevision,
		Live:           LiveToProto(&c.Live),
		Exclusive:      c.Exclusive,
		Token:          c.Token,
		Pending:        c.Pending,
		ClosedRevision: c.ClosedRevision,
		ApplyOverlap:   c.ApplyOverlap,
		Gate:           gateToProto(&c.Gate),
		Split:          c.Split,
		Limits:         LimitsToProto(c.Limits),
	}
}

func gateToProto(g *state.Gate) *workerv1.Gate {
	if *g == (state.Gate{}) {
		return nil
	}
	return &workerv1.Gate{
		Policy:         overlapToProto(g.Policy),
		Limit:          int32(g.Limit), //nolint:gosec // bounded by its limit
		ConcurrencyKey: g.Key,
		QueueLimit:     int32(g.QueueLimit), //nolint:gosec // bounded by its limit
	}
}

func gateFromProto(p *workerv1.Gate) state.Gate {
	if p == nil {
		return state.Gate{}
	}
	return state.Gate{
		Policy:     overlapFromProto(p.GetPolicy()),
		Limit:      int(p.GetLimit()),
		Key:        p.GetConcurrencyKey(),
		QueueLimit: int(p.GetQueueLimit()),
	}
}

// ClaimFromProto is the inverse of ClaimToProto.
func ClaimFromProto(p *workerv1.Claim) state.Claim {
	job := state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()}
	live := LiveFromProto(p.GetLive())
	live.Job, live.Exclusive = job, p.GetExclusive()
	return state.Claim{
		Job:            job,
		JobRevision:    p.GetJobRevision(),
		Live:           live,
		Exclusive:      p.GetExclusive(),
		Token:          p.GetToken(),
		Pending:        p.GetPending(),
		ClosedRevision: p.GetClosedRevision(),
		ApplyOverlap:   p.GetApplyOverlap(),
		Gate:           gateFromProto(p.GetGate()),
		Split:          p.GetSplit(),
		Limits:         LimitsFromProto(p.GetLimits()),
	}
}

// ClaimResultToProto is the answer to the claim asked. The record itself is
// part of it only where it is not as the claim had it, and so is whether it
// holds the gate.
func ClaimResultToProto(asked *state.Claim, r *state.ClaimResult) *workerv1.ClaimAnswer {
	p := &workerv1.ClaimAnswer{Status: uint32(r.Status), Limit: int32(r.Limit), NotBefore: Micros(r.NotBefore)} //nolint:gosec // bounded by state.MaxJobLimits
	if r.Status != state.Claimed {
		return p
	}
	p.Token = r.Live.Token
	p.Part = PartToProto(&r.Part)
	p.Attempts = AttemptsToProto(r.Live.Attempts)
	if r.Live.Exclusive != asked.Exclusive {
		p.Exclusive = new(r.Live.Exclusive)
	}
	if !sameWords(&asked.Live, r.Live) {
		bare := *r.Live
		bare.Attempts = nil
		p.Live = LiveToProto(&bare)
	}
	return p
}

// ClaimResultFromProto reads the answer to the claim asked.
func ClaimResultFromProto(asked *state.Claim, p *workerv1.ClaimAnswer) state.ClaimResult {
	r := state.ClaimResult{Status: claimStatus(p.GetStatus()), Limit: int(p.GetLimit()), NotBefore: Time(p.GetNotBefore())}
	if r.Status != state.Claimed {
		return r
	}
	live := asked.Live
	r.Live = &live
	if p.GetLive() != nil {
		live = LiveFromProto(p.GetLive())
	} else {
		live.State, live.NextTry = state.StateRunning, time.Time{}
	}
	r.Live.Job, r.Live.Exclusive = asked.Job, asked.Exclusive
	if p.Exclusive != nil {
		r.Live.Exclusive = p.GetExclusive()
	}
	r.Live.Attempts = AttemptsFromProto(p.GetAttempts())
	r.Live.Token = p.GetToken()
	r.Part = PartFromProto(p.GetPart())
	return r
}

// sameWords tells whether a stored record is the one that a claim asked for, as
// far as a claim says it.
func sameWords(asked, stored *state.Live) bool {
	return asked.Run == stored.Run && asked.Shard == stored.Shard && asked.Shards == stored.Shards &&
		asked.Generation == stored.Generation && asked.Attempt == stored.Attempt && asked.Owner == stored.Owner &&
		asked.Term == stored.Term && asked.AtMostOnce == stored.AtMostOnce &&
		asked.Header == stored.Header && sameListing(asked.Listing, stored.Listing) && asked.Place == stored.Place && asked.GateKey == stored.GateKey &&
		slices.Equal(asked.Holds, stored.Holds) && asked.LimitKey == stored.LimitKey &&
		asked.Tries == stored.Tries && asked.Snoozes == stored.Snoozes && asked.Origin == stored.Origin && asked.DeadLetter == stored.DeadLetter &&
		sameBreaker(asked.Circuit, stored.Circuit) && asked.Correlation == stored.Correlation && slices.Equal(asked.Upstream, stored.Upstream) &&
		Micros(asked.Due) == Micros(stored.Due) && Micros(asked.Claimed) == Micros(stored.Claimed)
}

func sameListing(a, b *state.Shards) bool {
	return a == b || a != nil && b != nil && proto.Equal(recordedShards(a), recordedShards(b))
}

func sameBreaker(a, b *state.CircuitBreaker) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// FinishToProto is a finish as the journal's protocol has it.
func FinishToProto(f *state.Finish) *workerv1.Finish {
	return &workerv1.Finish{
		Namespace:   f.Live.Job.Namespace,
		Job:         f.Live.Job.Name,
		Live:        LiveToProto(f.Live),
		Exclusive:   f.Live.Exclusive,
		Token:       f.Live.Token,
		Attempt:     AttemptToProto(&f.Attempt),
		Tail:        f.Tail,
		OutputBytes: f.OutputBytes,
		Reason:      f.Reason,
		Detail:      f.Detail,
		Retry:       Micros(f.Retry),
		Saved:       f.Saved,
		Reported:    f.Reported,
		Result:      f.Result,
		List:        shardListToProto(f.List),
		Hooks:       hookRunsToProto(f.Hooks),
	}
}

// FinishFromProto is the inverse of FinishToProto.
func FinishFromProto(p *workerv1.Finish) state.Finish {
	live := LiveFromProto(p.GetLive())
	live.Job = state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()}
	live.Exclusive, live.Token = p.GetExclusive(), p.GetToken()
	f := state.Finish{
		Live:        &live,
		Retry:       Time(p.GetRetry()),
		Reason:      p.GetReason(),
		Detail:      p.GetDetail(),
		Tail:        p.GetTail(),
		OutputBytes: p.GetOutputBytes(),
		Saved:       p.GetSaved(),
		Reported:    p.GetReported(),
		Result:      p.GetResult(),
		List:        shardListFromProto(p.GetList()),
		Hooks:       hookRunsFromProto(p.GetHooks()),
	}
	if a := p.GetAttempt(); a != nil {
		f.Attempt = AttemptFromProto(a)
	}
	return f
}

// TokenAnswer is the answer to a finish.
func TokenAnswer(s state.TokenStatus) *workerv1.TokenAnswer {
	return &workerv1.TokenAnswer{Status: uint32(s)}
}

// TokenStatusFromProto reads the answer to a finish. A status that this version
// does not know reads as 0.
func TokenStatusFromProto(p *workerv1.TokenAnswer) state.TokenStatus {
	if s := p.GetStatus(); s <= uint32(state.TokenFenced) {
		return state.TokenStatus(s)
	}
	return 0
}

// RegistrationFromProto reads a registration of the node name.
func RegistrationFromProto(name string, p *workerv1.RegisterResponse) state.Registration {
	return state.Registration{
		Owner: state.Owner{Node: name, Revision: p.GetOwnerRevision()},
		Lease: p.GetLease(),
		TTL:   p.GetTtl().AsDuration(),
	}
}

// claimStatus reads a status; one that this version does not know is 0.
func claimStatus(s uint32) state.ClaimStatus {
	if s <= uint32(state.ClaimQueued) {
		return state.ClaimStatus(s)
	}
	return 0
}
