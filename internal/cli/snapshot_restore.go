package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// heldReason is why a job is paused whose checkpoints are about to be put back: its first
// run is to go on from them.
const heldReason = "its checkpoints are being restored"

// restoration is what a restore does about one thing.
type restoration struct {
	what string // job a/b
	// how is "create", "replace", "same", "conflict" or "skip".
	how string
	// newer is set where it was changed after the snapshot.
	newer bool
	// why says more where that is needed.
	why string
	do  func(ctx context.Context) error
}

func (x *restoration) writes() bool { return x.how == "create" || x.how == "replace" }

// restorer puts a snapshot back.
type restorer struct {
	api    *api
	file   io.ReadSeeker
	s      *snapshot
	reason string

	calendars, jobs, checkpoints []*restoration
	byJob                        map[string]*restoration
	// held are jobs that are made paused until their checkpoints are there.
	held map[string]bool
}

// all are the restorations, in the order in which they are carried out.
func (r *restorer) all() []*restoration {
	return append(append(append([]*restoration(nil), r.calendars...), r.jobs...), r.checkpoints...)
}

// compare tells what a restore would change.
func (r *restorer) compare(ctx context.Context) error {
	now, err := takeSnapshot(ctx, r.api, r.s.taken)
	if err != nil {
		return err
	}
	r.reason = "restored from a snapshot of " + r.s.taken.Format(time.RFC3339)
	calendars := make(map[string]*leaderdv1.Calendar, len(now.calendars))
	for _, c := range now.calendars {
		calendars[c.GetName()] = c
	}
	for _, c := range r.s.calendars {
		x := &restoration{what: "calendar " + shortCalendar(c.GetName()), how: "create", do: func(ctx context.Context) error {
			_, err := r.api.calendars.UpdateCalendar(ctx, &leaderdv1.UpdateCalendarRequest{
				Calendar: &leaderdv1.Calendar{Name: c.GetName(), Spec: c.GetSpec()}, AllowMissing: true, Reason: r.reason,
			})
			return err
		}}
		if have := calendars[c.GetName()]; have != nil {
			x.how, x.newer = "conflict", have.GetUpdateTime().AsTime().After(r.s.taken)
			if proto.Equal(have.GetSpec(), c.GetSpec()) {
				x.how = "same"
			}
		}
		r.calendars = append(r.calendars, x)
	}
	there := make(map[string]*leaderdv1.Job, len(now.jobs))
	for _, j := range now.jobs {
		there[j.GetName()] = j
	}
	saved := make(map[string]*leaderdv1.Job, len(r.s.jobs))
	r.byJob, r.held = make(map[string]*restoration, len(r.s.jobs)), make(map[string]bool)
	at := time.Now()
	for _, j := range inOrder(r.s.jobs, func(j *leaderdv1.Job) *leaderdv1.Job { return j }) {
		x := &restoration{what: "job " + shortJob(j.GetName()), how: "create"}
		x.do = func(ctx context.Context) error { return r.job(ctx, j, x.how == "create") }
		if have := there[j.GetName()]; have != nil {
			x.how, x.newer = "conflict", have.GetUpdateTime().AsTime().After(r.s.taken)
			held := have.GetPauseReason() == heldReason && !pausedAt(j, at) // by a restore that was cut short
			if proto.Equal(have.GetSpec(), j.GetSpec()) && (held || pausedAt(have, at) == pausedAt(j, at)) {
				x.how, r.held[j.GetName()] = "same", held
			}
		}
		saved[j.GetName()], r.byJob[j.GetName()] = j, x
		r.jobs = append(r.jobs, x)
	}
	return r.eachCheckpoint(func(c *leaderdv1.JobCheckpoint) error {
		x, err := r.checkpoint(ctx, c, saved[c.GetJob()], there[c.GetJob()])
		r.checkpoints = append(r.checkpoints, x)
		return err
	})
}

// eachCheckpoint reads the file once more, and calls do for its checkpoints.
func (r *restorer) eachCheckpoint(do func(*leaderdv1.JobCheckpoint) error) error {
	if r.s.checkpoints == 0 {
		return nil
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := decodeSnapshot(r.file, do)
	return err
}

// checkpoint tells what is to be done about a checkpoint of a job, as it is in the file and
// as it is now; either may be nil.
func (r *restorer) checkpoint(ctx context.Context, c *leaderdv1.JobCheckpoint, saved, there *leaderdv1.Job) (*restoration, error) {
	x := &restoration{what: fmt.Sprintf("checkpoint of %s, shard %d", shortJob(c.GetJob()), c.GetShard())}
	switch {
	case there == nil && outlives(saved):
		x.how = "create"
		r.held[c.GetJob()] = true
	case there != nil && outlives(there):
		resp, err := r.api.saved.SetCheckpoint(ctx, setCheckpoint(c, false, true))
		if err != nil {
			return x, fmt.Errorf("%s: %w", x.what, err)
		}
		switch resp.GetResult() {
		case leaderdv1.SetCheckpointResponse_RESULT_UNCHANGED:
			x.how = "same"
		case leaderdv1.SetCheckpointResponse_RESULT_CONFLICT:
			x.how, x.newer = "conflict", resp.GetCheckpoint().GetSaveTime().AsTime().After(r.s.taken)
		case leaderdv1.SetCheckpointResponse_RESULT_CREATED, leaderdv1.SetCheckpointResponse_RESULT_REPLACED,
			leaderdv1.SetCheckpointResponse_RESULT_UNSPECIFIED:
			x.how = "create"
		}
	case there != nil && outlives(saved):
		x.how = "conflict" // as its job is
	default:
		x.how, x.why = "skip", "its job has none that outlive runs"
	}
	return x, nil
}

// outlives tells whether a job's checkpoints outlive its runs.
func outlives(j *leaderdv1.Job) bool {
	return j.GetSpec().GetCheckpoint().GetScope() == leaderdv1.CheckpointPolicy_SCOPE_JOB
}

func setCheckpoint(c *leaderdv1.JobCheckpoint, replace, check bool) *leaderdv1.SetCheckpointRequest {
	is := c.GetCheckpoint()
	return &leaderdv1.SetCheckpointRequest{
		Name: c.GetJob(), Shard: c.GetShard(), Data: is.GetData(), Number: is.GetNumber(), Run: is.GetRun(), SaveTime: is.GetSaveTime(),
		Replace: replace, ValidateOnly: check,
	}
}

// pausedAt tells whether a job is paused, or was, and would be still.
func pausedAt(j *leaderdv1.Job, now time.Time) bool {
	until := j.GetPausedUntil()
	return j.GetPaused() && (until == nil || until.AsTime().After(now))
}

// job puts a job as it was, paused if it was and would be still. One that is there and is
// to be paused is paused before its spec changes.
func (r *restorer) job(ctx context.Context, j *leaderdv1.Job, create bool) error {
	jobs, paused := r.api.jobs, pausedAt(j, time.Now())
	pause := func() error {
		_, err := jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: j.GetName(), Reason: j.GetPauseReason(), Until: j.GetPausedUntil()})
		return err
	}
	req := &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: j.GetName(), Spec: j.GetSpec()}, AllowMissing: true, Reason: r.reason}
	switch {
	case paused:
		req.Paused, req.PauseReason, req.PauseUntil = true, j.GetPauseReason(), j.GetPausedUntil()
	case r.held[j.GetName()]:
		req.Paused, req.PauseReason = true, heldReason
	}
	if paused && !create {
		if err := pause(); err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.FailedPrecondition {
			return err
		}
	}
	resp, err := jobs.UpdateJob(ctx, req)
	if err != nil {
		return err
	}
	switch is := resp.GetJob().GetPaused(); {
	case paused && !is: // by a node of a version before
		return pause()
	case !paused && is && !r.held[j.GetName()]:
		return r.resume(ctx, j.GetName())
	}
	return nil
}

func (r *restorer) resume(ctx context.Context, name string) error {
	_, err := r.api.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: name, Reason: r.reason})
	return err
}

// finish puts the checkpoints back that are to be, says each, and lets the jobs go on that
// were held for them.
func (r *restorer) finish(ctx context.Context, say func(*restoration) error) error {
	i := 0
	err := r.eachCheckpoint(func(c *leaderdv1.JobCheckpoint) error {
		x := r.checkpoints[i]
		i++
		x.do = func(ctx context.Context) error {
			resp, err := r.api.saved.SetCheckpoint(ctx, setCheckpoint(c, x.how == "replace", false))
			if err == nil && resp.GetResult() == leaderdv1.SetCheckpointResponse_RESULT_CONFLICT {
				err = errors.New("another one was saved meanwhile; restore again")
			}
			return err
		}
		return say(x)
	})
	if err != nil {
		return err
	}
	now := time.Now()
	for _, j := range r.s.jobs {
		if r.held[j.GetName()] && !pausedAt(j, now) {
			if err := r.resume(ctx, j.GetName()); err != nil {
				return fmt.Errorf("resume job %s: %w", shortJob(j.GetName()), err)
			}
		}
	}
	return nil
}
