package api

import (
	"context"
	"strconv"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// ListJobVersions implements leaderdv1.JobServiceServer.
func (s *jobService) ListJobVersions(ctx context.Context, req *leaderdv1.ListJobVersionsRequest) (*leaderdv1.ListJobVersionsResponse, error) {
	var v state.Violations
	l := store.ListVersions{Limit: pageSize(&v, req.GetPageSize())}
	l.Namespace, l.Job = parseJobParent(&v, req.GetParent())
	scope := "versions of " + req.GetParent()
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 3); parts != nil {
		l.AfterJob = state.JobID{Namespace: parts[0], Name: parts[1]}
		generation, err := strconv.ParseInt(parts[2], 10, 64)
		l.AfterGeneration = generation
		// A token is no proof: it must not lead out of the parent.
		if err != nil || generation < 1 || l.Namespace != "" && l.Namespace != parts[0] || l.Job != "" && l.Job != parts[1] {
			v.Add("pageToken", "is no page token of this parent")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, err := s.cfg.Versions.ListAllVersions(ctx, l)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetParent(), err)
	}
	res := &leaderdv1.ListJobVersionsResponse{}
	for i := range page.Versions {
		res.Versions = append(res.Versions, versionOf(&page.Versions[i]))
	}
	if page.More && len(page.Versions) > 0 {
		last := page.Versions[len(page.Versions)-1].Version.Job
		res.NextPageToken = pageToken(scope, last.ID.Namespace, last.ID.Name, strconv.FormatInt(last.Generation, 10))
	}
	return res, nil
}

// versionOf is a stored version as it is answered.
func versionOf(e *store.VersionEntry) *leaderdv1.JobVersion {
	job := &e.Version.Job
	res := &leaderdv1.JobVersion{
		Name: jobName(job.ID) + "/versions/" + strconv.FormatInt(job.Generation, 10), Generation: job.Generation, Revision: e.Revision,
	}
	if e.Broken != nil {
		res.Quarantine = "its stored value cannot be read"
		return res
	}
	if int(e.Version.Change) < len(changes) {
		res.Change = changes[e.Version.Change]
	}
	res.Actor = e.Version.Actor
	res.Reason = e.Version.Reason
	res.ChangeTime = timeOf(e.Version.Time)
	res.AnchorTime = timeOf(job.Anchor)
	res.Uid = job.UID
	res.Spec = e.Message.GetJob().GetSpec()
	res.Calendars = e.Message.GetJob().GetCalendars()
	res.Paused = job.Paused
	begins := job.Effective
	if e.Version.Change == state.ChangeDelete || job.Paused {
		// These leave the job's own instant alone, since they make no slot due.
		begins = e.Version.Time
	}
	res.EffectiveTime = timeOf(begins)
	if e.Version.Change != state.ChangeDelete {
		if broken := planner.Compile(job).Broken; broken != nil {
			res.Quarantine = broken.Error()
		}
	}
	return res
}

// changes are the API's names of the changes; a test holds them to the domain's.
var changes = [...]leaderdv1.JobVersion_Change{
	state.ChangeCreate: leaderdv1.JobVersion_CHANGE_CREATE,
	state.ChangeUpdate: leaderdv1.JobVersion_CHANGE_UPDATE,
	state.ChangePause:  leaderdv1.JobVersion_CHANGE_PAUSE,
	state.ChangeResume: leaderdv1.JobVersion_CHANGE_RESUME,
	state.ChangeDelete: leaderdv1.JobVersion_CHANGE_DELETE,

	state.ChangeCalendar: leaderdv1.JobVersion_CHANGE_CALENDAR,
}
