package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// JobReader reads one job linearizably. *store.Store is one.
type JobReader interface {
	GetJob(ctx context.Context, id state.JobID) (store.JobEntry, error)
}

// JobLister answers pages of jobs that show every change committed before the
// call. *store.JobsCache and *store.Store are such.
type JobLister interface {
	ListJobs(ctx context.Context, l store.ListJobs) (store.JobPage, error)
}

// VersionLister answers pages of jobs' versions. *store.Store is one.
type VersionLister interface {
	ListAllVersions(ctx context.Context, l store.ListVersions) (store.VersionPage, error)
}

// JobPutter creates and replaces jobs, and deletes them. *store.Store is one.
type JobPutter interface {
	PutJob(ctx context.Context, p store.PutJob) (store.PutJobResult, error)
	DeleteJob(ctx context.Context, c store.ChangeJob) error
}

// JobPauser pauses and resumes jobs. *store.Store is one.
type JobPauser interface {
	PauseJob(ctx context.Context, c store.ChangeJob) (store.JobEntry, bool, error)
	ResumeJob(ctx context.Context, c store.ChangeJob) (store.JobEntry, bool, error)
}

// Triggerer makes the wish for a run durable. *store.Store is one.
type Triggerer interface {
	PutPending(ctx context.Context, p state.Pending) (state.Pending, error)
}

// Submitter takes wishes for runs, and answers what became of them. *store.Store is one.
type Submitter interface {
	Submit(ctx context.Context, sub state.Submission) (run state.RunID, duplicate bool, err error)
	SubmitSpec(ctx context.Context, sub store.SubmitSpec) (job state.JobID, run state.RunID, duplicate bool, err error)
	WaitRun(ctx context.Context, id state.JobID, run state.RunID) (store.RunEntry, error)
	GetResult(ctx context.Context, id state.JobID, run state.RunID) ([]byte, error)
}

// Backfiller keeps backfills. *store.Store is one.
type Backfiller interface {
	CreateBackfill(ctx context.Context, b state.Backfill, slots []time.Time, job int64) (state.Backfill, error)
	GetBackfill(ctx context.Context, id state.JobID, b state.BackfillID) (state.Backfill, error)
	ListBackfills(ctx context.Context, l store.ListBackfills) (page []store.BackfillEntry, more bool, err error)
	CancelBackfill(ctx context.Context, id state.JobID, b state.BackfillID, actor, reason string, running bool, now time.Time) (state.Backfill, error)
	// BackfilledSlots are the slots in [from, to) that runs of backfills are for which
	// are under way or have succeeded.
	BackfilledSlots(ctx context.Context, id state.JobID, from, to time.Time) (map[time.Time]state.RunID, error)
}

// CheckpointKeeper reads, puts and removes what runs have saved, and tells how far they
// have come. *store.Store is one.
type CheckpointKeeper interface {
	ListCheckpoints(ctx context.Context, of state.CheckpointRef) ([]state.SavedCheckpoint, error)
	ListJobCheckpoints(ctx context.Context, l store.ListJobCheckpoints) (page []store.JobCheckpoint, more bool, err error)
	SetCheckpoint(ctx context.Context, c store.SetCheckpoint) (store.CheckpointSet, state.SavedCheckpoint, error)
	DeleteCheckpoints(ctx context.Context, id state.JobID) error
	ListProgress(ctx context.Context, id state.JobID, run state.RunID) (map[store.ProgressKey]store.Reported, error)
}

// Canceller ends runs. *store.Store is one.
type Canceller interface {
	CancelRun(ctx context.Context, c state.Cancel) (store.RunEntry, error)
}

// RunReader reads runs, live and past. *store.Store is one.
type RunReader interface {
	GetRun(ctx context.Context, id state.JobID, run state.RunID) (store.RunEntry, error)
	ListRuns(ctx context.Context, l store.ListRuns) (store.RunPage, error)
	ListSlots(ctx context.Context, l store.ListSlots) (store.SlotPage, error)
	GateHolder(ctx context.Context, id state.JobID) (holder state.Live, held bool, err error)
	Floor(ctx context.Context, id state.JobID) (state.Floor, error)
}

// WatermarkReader reads the watermark; its Revision is 0 before the first.
// *store.Store is one.
type WatermarkReader interface {
	GetWatermark(ctx context.Context) (state.Watermark, error)
	// GateKey is where the record lies that holds a job's gate.
	GateKey(id state.JobID) string
}

// Leadership tells who leads, as this node sees it; the node is empty and the
// term 0 while nobody does.
type Leadership interface {
	Leader() (node string, term int64)
}

// NodeLister tells the registered nodes in order of name. *store.NodesCache is
// one.
type NodeLister interface {
	Nodes() []state.Node
}

// JobCounter tells how many jobs are stored and how many of them are broken, and
// how many are due together. *planner.Catalog is one.
type JobCounter interface {
	Len() (jobs, broken int)
	// Adhoc is how many of them submissions made, and Has whether a job is among them all.
	Adhoc() int
	Has(id state.JobID) bool
	Together(instants []time.Time, except state.JobID) (jobs int, found []planner.Together)
}

// Config has what the services answer from. All fields but Wall
// and Logger are required.
type Config struct {
	// Node is the name of the answering node.
	Node string

	Reader      JobReader
	Lister      JobLister
	Versions    VersionLister
	Putter      JobPutter
	Pauser      JobPauser
	Triggerer   Triggerer
	Submitter   Submitter
	Backfills   Backfiller
	Calendars   CalendarKeeper
	Canceller   Canceller
	Repeater    Repeater
	Checkpoint  CheckpointKeeper
	Runs        RunReader
	DeadLetters DeadLetterKeeper
	Circuits    CircuitKeeper
	Watermark   WatermarkReader
	Leadership  Leadership
	Nodes       NodeLister
	Jobs        JobCounter
	Queue       LeaderQueue
	Holders     HolderReader
	// Wall is the wall clock that changes and triggers are stamped with. It must
	// not block, and is called from many goroutines. Default: time.Now.
	Wall func() time.Time
	// Logger gets what the driver of the store says. Default: none.
	Logger hclog.Logger
}

// Validate answers all violations.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		unset bool
	}{
		{"Node", c.Node == ""},
		{"Reader", c.Reader == nil},
		{"Lister", c.Lister == nil},
		{"Versions", c.Versions == nil},
		{"Putter", c.Putter == nil},
		{"Pauser", c.Pauser == nil},
		{"Triggerer", c.Triggerer == nil},
		{"Submitter", c.Submitter == nil},
		{"Backfills", c.Backfills == nil},
		{"Calendars", c.Calendars == nil},
		{"Canceller", c.Canceller == nil},
		{"Repeater", c.Repeater == nil},
		{"Checkpoint", c.Checkpoint == nil},
		{"Runs", c.Runs == nil},
		{"DeadLetters", c.DeadLetters == nil},
		{"Circuits", c.Circuits == nil},
		{"Watermark", c.Watermark == nil},
		{"Leadership", c.Leadership == nil},
		{"Nodes", c.Nodes == nil},
		{"Jobs", c.Jobs == nil},
		{"Queue", c.Queue == nil},
		{"Holders", c.Holders == nil},
	} {
		if f.unset {
			errs = append(errs, fmt.Errorf("%s: is required", f.name))
		}
	}
	return errors.Join(errs...)
}

// Server is the services. It starts nothing and keeps no state.
type Server struct {
	jobs      *jobService
	saved     *checkpointService
	runs      *runService
	timeline  *timelineService
	backfills *backfillService
	calendars *calendarService
	cluster   *clusterService
	dead      *deadLetterService
	circuits  *circuitService
	submitted *submissionService
	queue     *queueService
}

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Server{
		jobs:      &jobService{cfg: &cfg},
		saved:     &checkpointService{cfg: &cfg},
		runs:      &runService{cfg: &cfg},
		timeline:  &timelineService{cfg: &cfg},
		backfills: &backfillService{cfg: &cfg},
		calendars: &calendarService{cfg: &cfg},
		queue:     &queueService{cfg: &cfg},
		cluster:   &clusterService{cfg: &cfg},
		dead:      &deadLetterService{cfg: &cfg},
		circuits:  &circuitService{cfg: &cfg},
		submitted: newSubmissionService(&cfg),
	}, nil
}

// Register makes r serve the services. Call it before r serves.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	leaderdv1.RegisterJobServiceServer(r, s.jobs)
	leaderdv1.RegisterRunServiceServer(r, s.runs)
	leaderdv1.RegisterCheckpointServiceServer(r, s.saved)
	leaderdv1.RegisterCalendarServiceServer(r, s.calendars)
	leaderdv1.RegisterTimelineServiceServer(r, s.timeline)
	leaderdv1.RegisterBackfillServiceServer(r, s.backfills)
	leaderdv1.RegisterClusterServiceServer(r, s.cluster)
	leaderdv1.RegisterDeadLetterServiceServer(r, s.dead)
	leaderdv1.RegisterCircuitServiceServer(r, s.circuits)
	leaderdv1.RegisterSubmissionServiceServer(r, s.submitted)
	leaderdv1.RegisterQueueServiceServer(r, s.queue)
}
