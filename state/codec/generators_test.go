package codec

import (
	"time"

	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

// The generators make values as the rest of leaderd does: instants of whole
// microseconds in UTC or none, and nil for what is empty.
var (
	texts   = rapid.StringMatching(`[a-zA-Z0-9 _./é-]{0,12}`)
	numbers = rapid.Int64()
	smalls  = rapid.Custom(func(t *rapid.T) int { return int(rapid.Int32().Draw(t, "n")) })
	times   = rapid.Custom(func(t *rapid.T) time.Time {
		us := rapid.Int64Range(-1<<50, 1<<52).Draw(t, "us")
		if us == 0 {
			return time.Time{}
		}
		return time.UnixMicro(us).UTC()
	})
	durations = rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(1<<55)).Draw(t, "d"))
	})
	maps = rapid.Custom(func(t *rapid.T) map[string]string {
		m := rapid.MapOfN(texts, texts, 0, 3).Draw(t, "map")
		if len(m) == 0 {
			return nil
		}
		return m
	})
	blobs  = emptyIsNil(rapid.SliceOfN(rapid.Byte(), 0, 20))
	lists  = emptyIsNil(rapid.SliceOfN(texts, 0, 3))
	states = rapid.Custom(func(t *rapid.T) state.RunState {
		return state.RunState(rapid.IntRange(0, int(state.StateMissed)).Draw(t, "state"))
	})
	jobIDs = rapid.Custom(func(t *rapid.T) state.JobID {
		return state.JobID{Namespace: texts.Draw(t, "namespace"), Name: texts.Draw(t, "name")}
	})
	attempts = rapid.Custom(func(t *rapid.T) state.Attempt {
		a := state.Attempt{
			Number: smalls.Draw(t, "number"), Node: texts.Draw(t, "node"), Token: numbers.Draw(t, "token"), Term: numbers.Draw(t, "term"),
			Claimed: times.Draw(t, "claimed"), Started: times.Draw(t, "started"), Ended: times.Draw(t, "ended"),
			State: states.Draw(t, "state"), HasCode: rapid.Bool().Draw(t, "has"), Error: texts.Draw(t, "error"),
			Done: numbers.Draw(t, "done"), Total: numbers.Draw(t, "total"), Message: texts.Draw(t, "message"),
		}
		if a.HasCode {
			a.ExitCode = smalls.Draw(t, "code")
		}
		return a
	})
	attemptLists = emptyIsNil(rapid.SliceOfN(attempts, 0, 3))
	shardEnds    = rapid.Custom(func(t *rapid.T) *state.ShardEnd {
		if rapid.Bool().Draw(t, "lives") {
			return nil
		}
		return &state.ShardEnd{
			Reason: texts.Draw(t, "reason"), Detail: texts.Draw(t, "detail"), Recorded: times.Draw(t, "recorded"),
			Tail: blobs.Draw(t, "tail"), OutputBytes: numbers.Draw(t, "bytes"),
		}
	})
	shardSpecs = rapid.Custom(func(t *rapid.T) *state.Shards {
		if rapid.Bool().Draw(t, "whole") {
			return nil
		}
		s := &state.Shards{
			Count: smalls.Draw(t, "count"), Broadcast: rapid.Bool().Draw(t, "broadcast"), MinSuccess: smalls.Draw(t, "needed"),
			StopOnFailure: rapid.Bool().Draw(t, "stop"), Params: emptyIsNil(rapid.SliceOfN(maps, 0, 3)).Draw(t, "params"),
		}
		if rapid.Bool().Draw(t, "numbered") {
			s.Range = &state.ShardRange{From: numbers.Draw(t, "from"), To: numbers.Draw(t, "to")}
		}
		if rapid.Bool().Draw(t, "listed") {
			s.Dynamic = &state.Listing{Max: smalls.Draw(t, "most")}
		}
		return s
	})
	// specShards are of specs, which say what the first step runs.
	specShards = rapid.Custom(func(t *rapid.T) *state.Shards {
		s := shardSpecs.Draw(t, "shards")
		if s.Listed() {
			switch rapid.IntRange(0, 2).Draw(t, "target") {
			case 0:
				s.Dynamic.Command = commands.Draw(t, "command")
			case 1:
				s.Dynamic.HTTP = requests.Draw(t, "http")
			}
		}
		return s
	})
	breakers = rapid.Custom(func(t *rapid.T) *state.CircuitBreaker {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &state.CircuitBreaker{
			Failures: smalls.Draw(t, "failures"), Rate: smalls.Draw(t, "rate"), Window: smalls.Draw(t, "window"),
			CoolDown: durations.Draw(t, "cool-down"), Target: texts.Draw(t, "target"),
		}
	})
	upstreams = rapid.Custom(func(t *rapid.T) state.Upstream {
		return state.Upstream{Job: texts.Draw(t, "job"), Run: state.RunID(texts.Draw(t, "run")), State: states.Draw(t, "state"), ResultLost: rapid.Bool().Draw(t, "result lost")}
	})
	chains = rapid.Custom(func(t *rapid.T) state.Chain {
		return state.Chain{Correlation: texts.Draw(t, "correlation"), Upstream: emptyIsNil(rapid.SliceOfN(upstreams, 0, 3)).Draw(t, "upstream")}
	})
	hookRuns = rapid.Custom(func(t *rapid.T) state.HookRun {
		h := state.HookRun{
			Name: state.HookName(rapid.IntRange(0, 3).Draw(t, "name")), State: states.Draw(t, "state"),
			Started: times.Draw(t, "started"), Ended: times.Draw(t, "ended"), HasCode: rapid.Bool().Draw(t, "has"),
			Error: texts.Draw(t, "error"), Tail: blobs.Draw(t, "tail"),
		}
		if h.HasCode {
			h.ExitCode = smalls.Draw(t, "code")
		}
		return h
	})
	hookLists = emptyIsNil(rapid.SliceOfN(hookRuns, 0, 2))
	commands  = rapid.Custom(func(t *rapid.T) *state.Command {
		return &state.Command{
			Argv: lists.Draw(t, "argv"), Shell: texts.Draw(t, "shell"), Env: maps.Draw(t, "env"), Dir: texts.Draw(t, "dir"),
		}
	})
	requests = rapid.Custom(func(t *rapid.T) *state.HTTP {
		return &state.HTTP{
			Method: texts.Draw(t, "method"), URL: texts.Draw(t, "url"), Header: maps.Draw(t, "header"), Body: blobs.Draw(t, "body"),
			ExpectedCodes: emptyIsNil(rapid.SliceOfN(rapid.IntRange(100, 599), 0, 3)).Draw(t, "codes"),
		}
	})
	hooks = rapid.Custom(func(t *rapid.T) *state.Hook {
		h := &state.Hook{Timeout: durations.Draw(t, "timeout")}
		switch rapid.IntRange(0, 3).Draw(t, "hook") {
		case 0:
			return nil
		case 1:
			h.Command = commands.Draw(t, "command")
		case 2:
			h.HTTP = requests.Draw(t, "http")
		}
		return h
	})
	shardsOf = emptyIsNil(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.ShardsOf {
		return state.ShardsOf{
			Run:    state.RunID(texts.Draw(t, "run")),
			Shards: rapid.SliceOfN(rapid.IntRange(0, state.MaxShards), 1, 5).Draw(t, "shards"),
		}
	}), 0, 3))

	splits = rapid.Custom(func(t *rapid.T) *state.Split {
		s := shardSpecs.Draw(t, "shards")
		if s == nil {
			return nil
		}
		return &state.Split{
			Shards: *s, Nodes: emptyIsNil(rapid.SliceOfN(texts, 0, 3)).Draw(t, "nodes"),
			Carried: shardsOf.Draw(t, "carried"), Resumed: shardsOf.Draw(t, "resumed"),
		}
	})
	holds = emptyIsNil(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.Hold {
		return state.Hold{
			Limit: state.LimitID{Namespace: texts.Draw(t, "namespace"), Name: texts.Draw(t, "name"), Key: texts.Draw(t, "key")},
			Place: rapid.IntRange(0, state.MaxConcurrent).Draw(t, "place"),
		}
	}), 0, 3))
	lives = rapid.Custom(func(t *rapid.T) state.Live {
		return state.Live{
			Run: state.RunID(texts.Draw(t, "run")), Shard: smalls.Draw(t, "shard"), Shards: smalls.Draw(t, "shards"),
			Generation: numbers.Draw(t, "generation"), State: states.Draw(t, "state"), Attempt: smalls.Draw(t, "attempt"),
			Owner: state.Owner{Node: texts.Draw(t, "owner"), Revision: numbers.Draw(t, "revision")},
			Term:  numbers.Draw(t, "term"), Due: times.Draw(t, "due"), Claimed: times.Draw(t, "claimed"), NextTry: times.Draw(t, "next"),
			GateKey: rapid.SampledFrom([]string{"", "db", "ü/%"}).Draw(t, "gate key"), Place: rapid.IntRange(0, state.MaxConcurrent).Draw(t, "place"),
			AtMostOnce: rapid.Bool().Draw(t, "amo"), Attempts: attemptLists.Draw(t, "attempts"),
			Header: numbers.Draw(t, "header"), End: shardEnds.Draw(t, "end"), Split: splits.Draw(t, "split"),
			Listing: shardSpecs.Draw(t, "listing"),
			Circuit: breakers.Draw(t, "circuit"), Chain: chains.Draw(t, "chain"),
			LimitKey: texts.Draw(t, "limit key"), Holds: holds.Draw(t, "holds"),
		}
	})
	// keyed are live records with what their key tells.
	keyed = rapid.Custom(func(t *rapid.T) state.Live {
		l := lives.Draw(t, "live")
		l.Job, l.Exclusive, l.Token = jobIDs.Draw(t, "job"), rapid.Bool().Draw(t, "exclusive"), numbers.Draw(t, "token")
		return l
	})
	claims = rapid.Custom(func(t *rapid.T) state.Claim {
		c := state.Claim{
			JobRevision: numbers.Draw(t, "job revision"), Live: keyed.Draw(t, "live"), Token: numbers.Draw(t, "token"),
			Pending: numbers.Draw(t, "pending"), ClosedRevision: numbers.Draw(t, "closed"), ApplyOverlap: rapid.Bool().Draw(t, "overlap"),
			Gate: state.Gate{Policy: state.Overlap(rapid.IntRange(0, int(state.OverlapReplace)).Draw(t, "policy")), Limit: rapid.IntRange(0, 9).Draw(t, "limit"), Key: texts.Draw(t, "gate"), QueueLimit: rapid.IntRange(0, 9).Draw(t, "queue")},
		}
		c.Split = rapid.Bool().Draw(t, "is split")
		c.Job, c.Exclusive, c.Live.Token = c.Live.Job, c.Live.Exclusive, 0
		return c
	})
)

func emptyIsNil[E any](of *rapid.Generator[[]E]) *rapid.Generator[[]E] {
	return rapid.Custom(func(t *rapid.T) []E {
		if s := of.Draw(t, "slice"); len(s) > 0 {
			return s
		}
		return nil
	})
}
