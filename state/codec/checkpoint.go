package codec

import (
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// checkpointToProto writes what a spec says of checkpoints, drains and outages.
func checkpointToProto(s *state.JobSpec, p *leaderdv1.JobSpec) {
	if c := s.Checkpoint; c != nil {
		p.Checkpoint = &leaderdv1.CheckpointPolicy{Keep: int32(c.Keep), Body: c.Body} //nolint:gosec // bounded by its limit
		if c.Scope == state.CheckpointOfJob {
			p.Checkpoint.Scope = leaderdv1.CheckpointPolicy_SCOPE_JOB
		}
	}
	if s.Drain == state.DrainHandover {
		p.Drain = leaderdv1.Drain_DRAIN_HANDOVER
	}
	if s.StoreOutage == state.OutageRunPlanned {
		p.StoreOutage = leaderdv1.StoreOutage_STORE_OUTAGE_RUN_PLANNED
	}
}

// checkpointFromProto is the inverse of checkpointToProto.
func checkpointFromProto(p *leaderdv1.JobSpec, s *state.JobSpec) {
	if c := p.GetCheckpoint(); c != nil {
		s.Checkpoint = &state.CheckpointPolicy{Keep: int(c.GetKeep()), Body: c.GetBody()}
		if c.GetScope() == leaderdv1.CheckpointPolicy_SCOPE_JOB {
			s.Checkpoint.Scope = state.CheckpointOfJob
		}
	}
	if p.GetDrain() == leaderdv1.Drain_DRAIN_HANDOVER {
		s.Drain = state.DrainHandover
	}
	if p.GetStoreOutage() == leaderdv1.StoreOutage_STORE_OUTAGE_RUN_PLANNED {
		s.StoreOutage = state.OutageRunPlanned
	}
}

// CheckpointToProto is a checkpoint as the journal's protocol has it. Of c.Live
// it has what names the run and its token.
func CheckpointToProto(c *state.Checkpoint) *workerv1.Checkpoint {
	return &workerv1.Checkpoint{
		Namespace: c.Live.Job.Namespace,
		Job:       c.Live.Job.Name,
		Run:       string(c.Live.Run),
		Shard:     int32(c.Live.Shard), //nolint:gosec // bounded by the spec
		Exclusive: c.Live.Exclusive,
		Token:     c.Live.Token,
		Data:      c.Data,
		Previous:  c.Previous,
		Saved:     Micros(c.Saved),
		Number:    c.Number,
		Keep:      int32(c.Keep), //nolint:gosec // bounded by its limit
		OfJob:     c.OfJob,
	}
}

// CheckpointFromProto is the inverse of CheckpointToProto.
func CheckpointFromProto(p *workerv1.Checkpoint) state.Checkpoint {
	return state.Checkpoint{
		Live: state.Live{
			Job:       state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()},
			Run:       state.RunID(p.GetRun()),
			Shard:     int(p.GetShard()),
			Exclusive: p.GetExclusive(),
			Token:     p.GetToken(),
		},
		Data:     p.GetData(),
		Previous: p.GetPrevious(),
		Saved:    Time(p.GetSaved()),
		Number:   p.GetNumber(),
		Keep:     int(p.GetKeep()),
		OfJob:    p.GetOfJob(),
	}
}

// CheckpointResultToProto is the answer to a checkpoint.
func CheckpointResultToProto(r state.CheckpointResult) *workerv1.TokenAnswer {
	return &workerv1.TokenAnswer{Status: uint32(r.Status), Revision: r.Revision}
}

// CheckpointResultFromProto is the inverse of CheckpointResultToProto.
func CheckpointResultFromProto(p *workerv1.TokenAnswer) state.CheckpointResult {
	return state.CheckpointResult{Status: TokenStatusFromProto(p), Revision: p.GetRevision()}
}

// SavedCheckpointToProto is an accepted checkpoint as the journal answers it.
func SavedCheckpointToProto(c *state.SavedCheckpoint) *workerv1.GetCheckpointResponse {
	return &workerv1.GetCheckpointResponse{
		Data: c.Data, Revision: c.Revision, Number: c.Number, Token: c.Token, Saved: Micros(c.Saved), Run: string(c.Run),
	}
}

// SavedCheckpointFromProto is the inverse of SavedCheckpointToProto.
func SavedCheckpointFromProto(p *workerv1.GetCheckpointResponse) state.SavedCheckpoint {
	return state.SavedCheckpoint{
		Data: p.GetData(), Revision: p.GetRevision(), Number: p.GetNumber(), Token: p.GetToken(), Saved: Time(p.GetSaved()),
		Run: state.RunID(p.GetRun()),
	}
}

// ProgressToProto is progress in its stored form.
func ProgressToProto(p *state.Progress, token int64) *statev1.Progress {
	return &statev1.Progress{
		Done: p.Done, Total: p.Total, Message: p.Message, Reported: Micros(p.Reported),
		Begun: p.Begun, BegunAt: Micros(p.BegunAt), Token: token,
	}
}

// ProgressFromProto is the inverse of ProgressToProto, but for the token.
func ProgressFromProto(p *statev1.Progress) state.Progress {
	return state.Progress{
		Done: p.GetDone(), Total: p.GetTotal(), Message: p.GetMessage(), Reported: Time(p.GetReported()),
		Begun: p.GetBegun(), BegunAt: Time(p.GetBegunAt()),
	}
}

// ProgressReportToProto is a report as the journal's protocol has it. Of r.Live it
// has what names the run and its token.
func ProgressReportToProto(r *state.ProgressReport) *workerv1.SaveProgress {
	return &workerv1.SaveProgress{
		Namespace: r.Live.Job.Namespace,
		Job:       r.Live.Job.Name,
		Run:       string(r.Live.Run),
		Shard:     int32(r.Live.Shard), //nolint:gosec // bounded by the spec
		Exclusive: r.Live.Exclusive,
		Token:     r.Live.Token,
		Progress:  ProgressToProto(&r.Progress, r.Live.Token),
	}
}

// ProgressReportFromProto is the inverse of ProgressReportToProto.
func ProgressReportFromProto(p *workerv1.SaveProgress) state.ProgressReport {
	return state.ProgressReport{
		Live: state.Live{
			Job:       state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()},
			Run:       state.RunID(p.GetRun()),
			Shard:     int(p.GetShard()),
			Exclusive: p.GetExclusive(),
			Token:     p.GetToken(),
		},
		Progress: ProgressFromProto(p.GetProgress()),
	}
}
