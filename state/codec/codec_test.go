package codec

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// sent is a message as it arrives on the other side, which may be of a later
// version: it has a field that we do not know.
func sent[M proto.Message](t *rapid.T, m M) M {
	wire, err := proto.Marshal(m)
	require.NoError(t, err)
	if rapid.Bool().Draw(t, "later version") {
		wire = protowire.AppendTag(wire, 20_000, protowire.BytesType)
		wire = protowire.AppendString(wire, "from the future")
	}
	got, ok := m.ProtoReflect().New().Interface().(M)
	require.True(t, ok)
	require.NoError(t, proto.Unmarshal(wire, got))
	return got
}

func same(t *rapid.T, want, got any) {
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestSpecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := state.JobSpec{
			Description: texts.Draw(t, "description"), Labels: maps.Draw(t, "labels"), Schedules: lists.Draw(t, "schedules"),
			TimeZone:      texts.Draw(t, "zone"),
			Overlap:       state.Overlap(rapid.IntRange(0, int(state.OverlapReplace)).Draw(t, "overlap")),
			MaxConcurrent: rapid.IntRange(0, state.MaxConcurrent).Draw(t, "concurrent"), QueueLimit: rapid.IntRange(0, state.MaxQueue).Draw(t, "queue"),
			ConcurrencyKey: texts.Draw(t, "key"), Shards: specShards.Draw(t, "shards"),
			CatchUp:   rapid.SampledFrom([]state.CatchUp{state.CatchUpLatest, state.CatchUpNone}).Draw(t, "catch up"),
			Guarantee: rapid.SampledFrom([]state.Guarantee{state.AtLeastOnce, state.AtMostOnce}).Draw(t, "guarantee"),
			Selector:  maps.Draw(t, "selector"), StartDeadline: durations.Draw(t, "deadline"),
			Timeout: durations.Draw(t, "timeout"), KillGrace: durations.Draw(t, "grace"),
			Drain: rapid.SampledFrom([]state.Drain{state.DrainWait, state.DrainHandover}).Draw(t, "drain"),
		}
		if rapid.Bool().Draw(t, "checkpoint") {
			s.Checkpoint = &state.CheckpointPolicy{
				Scope: rapid.SampledFrom([]state.CheckpointScope{state.CheckpointOfRun, state.CheckpointOfJob}).Draw(t, "scope"),
				Keep:  smalls.Draw(t, "keep"), Body: rapid.Bool().Draw(t, "body"),
			}
		}
		s.CircuitBreaker, s.KeepResult = breakers.Draw(t, "circuit"), rapid.Bool().Draw(t, "keep result")
		if rapid.Bool().Draw(t, "hooks") {
			s.Hooks = &state.Hooks{OnSuccess: hooks.Draw(t, "success"), OnFailure: hooks.Draw(t, "failure"), OnExit: hooks.Draw(t, "exit")}
		}
		if rapid.Bool().Draw(t, "after") {
			s.After = &state.After{
				Jobs: lists.Draw(t, "jobs"), Mode: state.AfterMode(rapid.IntRange(0, 1).Draw(t, "mode")),
				On: state.AfterCondition(rapid.IntRange(0, 2).Draw(t, "on")),
			}
		}
		switch rapid.IntRange(0, 3).Draw(t, "target") {
		case 1:
			s.Command = commands.Draw(t, "command")
		case 2:
			s.HTTP = requests.Draw(t, "http")
		case 3:
			s.NoOp = true
		}
		same(t, s, SpecFromProto(sent(t, SpecToProto(&s))))
	})
}

// What a spec does not set is not there, so that a job that is read and written
// back is the same.
func TestUnsetStaysUnset(t *testing.T) {
	require.True(t, proto.Equal(&leaderdv1.JobSpec{}, SpecToProto(&state.JobSpec{})))
	require.Equal(t, state.JobSpec{}, SpecFromProto(nil))
}

func TestUnknownEnumsReadAsDefaults(t *testing.T) {
	s := SpecFromProto(&leaderdv1.JobSpec{Overlap: 99, CatchUp: 99, Guarantee: 99})
	require.Equal(t, state.JobSpec{}, s)
	require.Equal(t, state.StateNone, LiveFromProto(&statev1.Live{State: math.MaxUint32}).State)
	require.Zero(t, ClaimResultFromProto(&state.Claim{}, &workerv1.ClaimAnswer{Status: 99}).Status)
	require.Zero(t, TokenStatusFromProto(&workerv1.TokenAnswer{Status: 99}))
}

// A stored job is changed as a message: what this version does not know, at any
// depth, survives.
func TestUnknownFieldsSurviveAChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		future := protowire.AppendVarint(protowire.AppendTag(nil, 20_000, protowire.VarintType), rapid.Uint64().Draw(t, "value"))
		stored := &statev1.Job{
			Uid: texts.Draw(t, "uid"), Generation: numbers.Draw(t, "generation"),
			Spec: &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}},
		}
		for _, m := range []proto.Message{stored, stored.GetSpec(), stored.GetSpec().GetNoop()} {
			m.ProtoReflect().SetUnknown(future)
		}
		read := sent(t, stored)
		read.Paused, read.PauseReason = true, "maintenance"
		again := sent(t, read)
		for _, m := range []proto.Message{again, again.GetSpec(), again.GetSpec().GetNoop()} {
			require.Contains(t, string(m.ProtoReflect().GetUnknown()), string(future))
		}
		job := JobFromProto(again)
		require.True(t, job.Paused)
		require.True(t, job.Spec.NoOp)
		require.Equal(t, stored.GetUid(), job.UID)
	})
}

func TestJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := state.Job{
			UID: texts.Draw(t, "uid"), Generation: numbers.Draw(t, "generation"), Spec: state.JobSpec{NoOp: true},
			Paused: rapid.Bool().Draw(t, "paused"), PauseReason: texts.Draw(t, "reason"), Created: times.Draw(t, "created"),
			Updated: times.Draw(t, "updated"), UpdatedBy: texts.Draw(t, "by"), Effective: times.Draw(t, "effective"), Anchor: times.Draw(t, "anchor"),
		}
		same(t, want, JobFromProto(sent(t, &statev1.Job{
			Spec: SpecToProto(&want.Spec), Uid: want.UID, Generation: want.Generation, Paused: want.Paused, PauseReason: want.PauseReason,
			Created: Micros(want.Created), Updated: Micros(want.Updated), UpdatedBy: want.UpdatedBy,
			Effective: Micros(want.Effective), Anchor: Micros(want.Anchor),
		})))
	})
}

func TestNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := state.Node{
			Control: rapid.Bool().Draw(t, "control"), Executor: rapid.Bool().Draw(t, "executor"), Address: texts.Draw(t, "address"),
			Labels: maps.Draw(t, "labels"), Capacity: rapid.IntRange(0, state.MaxCapacity).Draw(t, "capacity"),
			Version: texts.Draw(t, "version"), Started: times.Draw(t, "started"),
		}
		same(t, n, NodeFromProto(sent(t, NodeToProto(&n))))
	})
}

func TestLiveRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := lives.Draw(t, "live")
		same(t, l, LiveFromProto(sent(t, LiveToProto(&l))))
		var written statev1.Live
		require.NoError(t, proto.Unmarshal(MarshalLive(&l), &written))
		require.True(t, proto.Equal(LiveToProto(&l), &written))
	})
}

func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := state.Record{
			Generation: numbers.Draw(t, "generation"), State: states.Draw(t, "state"), Reason: texts.Draw(t, "reason"),
			Detail: texts.Draw(t, "detail"), Due: times.Draw(t, "due"), Until: times.Draw(t, "until"), Count: numbers.Draw(t, "count"),
			Recorded: times.Draw(t, "recorded"), Shards: smalls.Draw(t, "shards"), Attempts: attemptLists.Draw(t, "attempts"),
			Tail: blobs.Draw(t, "tail"), OutputBytes: numbers.Draw(t, "bytes"),
			Ends: emptyIsNil(rapid.SliceOfN(lives, 0, 3)).Draw(t, "ends"), Split: splits.Draw(t, "split"),
			Hooks: hookLists.Draw(t, "hooks"), Result: rapid.Bool().Draw(t, "result"), Chain: chains.Draw(t, "chain"),
		}
		same(t, r, RecordFromProto(sent(t, RecordToProto(&r))))
		var written statev1.Record
		require.NoError(t, proto.Unmarshal(MarshalRecord(&r), &written))
		require.True(t, proto.Equal(RecordToProto(&r), &written))
	})
}

// What a program printed need not be UTF-8. It must not make a verdict
// unreadable, or keep it from being written.
func TestRecordsTakeAnyText(t *testing.T) {
	r := state.Record{State: state.StateFailed, Attempts: []state.Attempt{{Number: 1, State: state.StateFailed, Error: "no\xff\xfe file"}}}
	var written statev1.Record
	require.NoError(t, proto.Unmarshal(MarshalRecord(&r), &written))
	require.Equal(t, "no\uFFFD file", written.GetAttempts()[0].GetError())
}

func TestClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := claims.Draw(t, "claim")
		same(t, c, ClaimFromProto(sent(t, ClaimToProto(&c))))
	})
}

// The answer has the record as it is stored, whether it is as it was asked for
// or not.
func TestClaimResults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := claims.Draw(t, "claim")
		r := state.ClaimResult{Status: state.ClaimStatus(rapid.IntRange(0, int(state.ClaimDisowned)).Draw(t, "status"))}
		asked := rapid.Bool().Draw(t, "as asked")
		if r.Status == state.Claimed {
			if asked {
				stored := c.Live
				r.Live = &stored
				r.Live.State, r.Live.NextTry = state.StateRunning, time.Time{}
			} else {
				stored := lives.Draw(t, "stored")
				r.Live = &stored
				r.Live.Job = c.Job
				if sameWords(&c.Live, r.Live) {
					t.Skip("by chance")
				}
			}
			r.Live.Exclusive = rapid.Bool().Draw(t, "at the gate")
			r.Part = state.Part{HasRange: rapid.Bool().Draw(t, "numbered"), Params: maps.Draw(t, "params")}
			if r.Part.HasRange {
				r.Part.Range = state.ShardRange{From: numbers.Draw(t, "from"), To: numbers.Draw(t, "to")}
			}
			r.Live.Token, r.Live.Attempts = numbers.Draw(t, "token"), attemptLists.Draw(t, "attempts")
		}
		p := ClaimResultToProto(&c, &r)
		if asked {
			require.Nil(t, p.GetLive(), "it need not be told")
		}
		same(t, r, ClaimResultFromProto(&c, sent(t, p)))
	})
}

func TestFinishes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := keyed.Draw(t, "live")
		f := state.Finish{
			Live: &live, Attempt: attempts.Draw(t, "attempt"), Retry: times.Draw(t, "retry"), Reason: texts.Draw(t, "reason"),
			Tail: blobs.Draw(t, "tail"), OutputBytes: numbers.Draw(t, "bytes"),
			Saved: rapid.Bool().Draw(t, "saved"), Reported: rapid.Bool().Draw(t, "reported"),
			Hooks: hookLists.Draw(t, "hooks"), List: emptyIsNil(rapid.SliceOfN(maps, 0, 3)).Draw(t, "list"),
		}
		same(t, f, FinishFromProto(sent(t, FinishToProto(&f))))
	})
	require.Equal(t, state.Finish{Live: &state.Live{}}, FinishFromProto(nil))
}

// Of a live record a checkpoint has what names the run, and the token.
func TestCheckpoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := keyed.Draw(t, "live")
		c := state.Checkpoint{
			Live: l, Data: blobs.Draw(t, "data"), Previous: numbers.Draw(t, "previous"), Saved: times.Draw(t, "saved"),
			Number: numbers.Draw(t, "number"), Keep: rapid.IntRange(0, 20).Draw(t, "keep"), OfJob: rapid.Bool().Draw(t, "of job"),
		}
		got := CheckpointFromProto(sent(t, CheckpointToProto(&c)))
		c.Live = state.Live{Job: l.Job, Run: l.Run, Shard: l.Shard, Exclusive: l.Exclusive, Token: l.Token}
		same(t, c, got)

		r := state.CheckpointResult{
			Status:   state.TokenStatus(rapid.IntRange(0, int(state.TokenFenced)).Draw(t, "status")),
			Revision: numbers.Draw(t, "revision"),
		}
		same(t, r, CheckpointResultFromProto(sent(t, CheckpointResultToProto(r))))
		require.Equal(t, r.Status, TokenStatusFromProto(sent(t, TokenAnswer(r.Status))))
	})
}

func TestProgressReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := keyed.Draw(t, "live")
		r := state.ProgressReport{Live: l, Progress: state.Progress{
			Done: numbers.Draw(t, "done"), Total: numbers.Draw(t, "total"), Message: texts.Draw(t, "message"),
			Reported: times.Draw(t, "reported"), Begun: numbers.Draw(t, "begun"), BegunAt: times.Draw(t, "begun at"),
		}}
		got := ProgressReportFromProto(sent(t, ProgressReportToProto(&r)))
		r.Live = state.Live{Job: l.Job, Run: l.Run, Shard: l.Shard, Exclusive: l.Exclusive, Token: l.Token}
		same(t, r, got)

		c := state.SavedCheckpoint{
			Number: numbers.Draw(t, "number"), Data: blobs.Draw(t, "data"), Token: numbers.Draw(t, "token"),
			Run: state.RunID(texts.Draw(t, "run")), Saved: times.Draw(t, "saved"), Revision: numbers.Draw(t, "revision"),
		}
		same(t, c, SavedCheckpointFromProto(sent(t, SavedCheckpointToProto(&c))))
	})
}

func TestRegistrations(t *testing.T) {
	require.Equal(t, state.Registration{Owner: state.Owner{Node: "a", Revision: 3}, Lease: 4},
		RegistrationFromProto("a", &workerv1.RegisterResponse{OwnerRevision: 3, Lease: 4}))
}

func TestCircuits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := state.Circuit{
			State: state.CircuitState(rapid.IntRange(0, 2).Draw(t, "state")), Failures: smalls.Draw(t, "failures"), Outcomes: texts.Draw(t, "outcomes"),
			Opened: times.Draw(t, "opened"), Until: times.Draw(t, "until"), Detail: texts.Draw(t, "detail"),
			ProbeJob: texts.Draw(t, "job"), Probe: state.RunID(texts.Draw(t, "probe")),
		}
		value, err := MarshalCircuit(&c)
		require.NoError(t, err)
		got, err := UnmarshalCircuit(value)
		require.NoError(t, err)
		same(t, c, got)
	})
}

func TestHookReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := state.HookReport{
			Job: jobIDs.Draw(t, "job"), Run: state.RunID(texts.Draw(t, "run")), Token: numbers.Draw(t, "token"), Hook: hookRuns.Draw(t, "hook"),
		}
		same(t, r, HookReportFromProto(sent(t, HookReportToProto(&r))))
	})
}
