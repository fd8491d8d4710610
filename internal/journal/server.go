package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// Recorder carries out entries; *store.Store is one. Its methods block until
// the outcome is known or ctx ends, may be called concurrently, and are
// idempotent.
type Recorder interface {
	Claim(ctx context.Context, c state.Claim) (state.ClaimResult, error)
	Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error)
	Checkpoint(ctx context.Context, c state.Checkpoint) (state.CheckpointResult, error)
	SaveProgress(ctx context.Context, p state.ProgressReport) (state.TokenStatus, error)
	NoteHook(ctx context.Context, r state.HookReport) error
	NoteDouble(ctx context.Context, r state.DoubleReport) error
}

// Checkpoints reads what runs have saved; *store.Store is one.
type Checkpoints interface {
	GetCheckpoint(ctx context.Context, of state.CheckpointRef) (state.SavedCheckpoint, error)
}

// Payloads reads what runs are to work on; *store.Store is one.
type Payloads interface {
	GetPayload(ctx context.Context, id state.JobID, run state.RunID) ([]byte, error)
}

// Registry keeps registrations; *store.Store is one.
type Registry interface {
	Register(ctx context.Context, n state.Node, ttl time.Duration) (state.Registration, error)
	KeepAliveNode(ctx context.Context, reg state.Registration) (time.Duration, error)
	Deregister(ctx context.Context, reg state.Registration) error
}

// Store is all that a Server asks of the store.
type Store interface {
	Recorder
	Checkpoints
	Payloads
	Registry
}

// Leader is who leads; the zero Leader means that nobody does, or nobody knows.
type Leader struct {
	Name    string
	Address string
	Term    int64
}

// Leaders knows who leads.
type Leaders interface {
	// Follow is the leader as last known, with a channel that is closed when that
	// has changed. It does not block.
	Follow() (Leader, <-chan struct{})
}

// Config shapes a Server.
type Config struct {
	// MaxInFlight is how many entries of one stream may be begun and not yet
	// answered, at least MaxEntries. Default 4096.
	MaxInFlight int
	// Linger is for how long entries go on after their stream has ended,
	// 100ms–1m. Default 5s.
	Linger time.Duration
	// PulseInterval is how often a follower of the leader hears something,
	// 100ms–1m. Default 2s.
	PulseInterval time.Duration
	// Logger gets what the server has to say. Default: none.
	Logger hclog.Logger
	// Registerer gets the server's metrics. Default: none.
	Registerer prometheus.Registerer
}

// WithDefaults fills every unset field with its default.
func (c Config) WithDefaults() Config {
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 4096
	}
	if c.Linger == 0 {
		c.Linger = 5 * time.Second
	}
	if c.PulseInterval == 0 {
		c.PulseInterval = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate answers all violations.
func (c Config) Validate() error {
	var errs []error
	if c.MaxInFlight < MaxEntries || c.MaxInFlight > 1<<20 {
		errs = append(errs, fmt.Errorf("max_in_flight: %d is outside %d–%d", c.MaxInFlight, MaxEntries, 1<<20))
	}
	within := func(name string, d time.Duration) {
		if d < 100*time.Millisecond || d > time.Minute {
			errs = append(errs, fmt.Errorf("%s: %s is outside 100ms–1m", name, d))
		}
	}
	within("linger", c.Linger)
	within("pulse_interval", c.PulseInterval)
	return errors.Join(errs...)
}

// Server is workerv1.JournalService. Register it with a gRPC server.
type Server struct {
	workerv1.UnimplementedJournalServiceServer
	store   Store
	leaders Leaders
	cfg     Config
	log     hclog.Logger
	metrics *metrics

	stop chan struct{} // closed by Drain
	once sync.Once
}

// NewServer makes a Server and starts nothing. The error lists all violations of
// the configuration.
func NewServer(st Store, leaders Leaders, cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure journal server: %w", err)
	}
	return &Server{
		store:   st,
		leaders: leaders,
		cfg:     cfg,
		log:     cfg.Logger,
		metrics: newMetrics(cfg.Registerer),
		stop:    make(chan struct{}),
	}, nil
}

// Drain makes every stream end, so that the gRPC server can stop gracefully:
// what was begun is carried out and answered, further entries are left to other
// nodes. It does not wait, and may be called twice.
func (s *Server) Drain() { s.once.Do(func() { close(s.stop) }) }

// errDraining ends the streams of a node that is about to leave.
var errDraining = status.Error(codes.Unavailable, "node is shutting down")

// Register implements workerv1.JournalService.
func (s *Server) Register(ctx context.Context, req *workerv1.RegisterRequest) (*workerv1.RegisterResponse, error) {
	n := codec.NodeFromProto(req.GetNode())
	n.Name = req.GetName()
	ttl := req.GetTtl().AsDuration()
	if err := checkRegister(&n, ttl); err != nil {
		return nil, s.failed("register", err)
	}
	reg, err := s.store.Register(ctx, n, ttl)
	if err != nil {
		return nil, s.failed("register", err)
	}
	return &workerv1.RegisterResponse{
		OwnerRevision: reg.Owner.Revision, Lease: reg.Lease, Ttl: durationpb.New(reg.TTL),
	}, nil
}

// KeepAlive implements workerv1.JournalService.
func (s *Server) KeepAlive(ctx context.Context, req *workerv1.KeepAliveRequest) (*workerv1.KeepAliveResponse, error) {
	ttl, err := s.store.KeepAliveNode(ctx, registration(req.GetName(), req.GetOwnerRevision(), req.GetLease()))
	if err != nil {
		return nil, s.failed("keep alive", err)
	}
	return &workerv1.KeepAliveResponse{Ttl: durationpb.New(ttl)}, nil
}

// Deregister implements workerv1.JournalService.
func (s *Server) Deregister(ctx context.Context, req *workerv1.DeregisterRequest) (*workerv1.DeregisterResponse, error) {
	err := s.store.Deregister(ctx, registration(req.GetName(), req.GetOwnerRevision(), req.GetLease()))
	if err != nil {
		return nil, s.failed("deregister", err)
	}
	return &workerv1.DeregisterResponse{}, nil
}

func registration(name string, revision, lease int64) state.Registration {
	return state.Registration{Owner: state.Owner{Node: name, Revision: revision}, Lease: lease}
}

// GetPayload implements workerv1.JournalService.
func (s *Server) GetPayload(ctx context.Context, req *workerv1.GetPayloadRequest) (*workerv1.GetPayloadResponse, error) {
	id, run := state.JobID{Namespace: req.GetNamespace(), Name: req.GetJob()}, state.RunID(req.GetRun())
	if err := checkRun(id, run, 0); err != nil {
		return nil, s.failed("get payload", err)
	}
	payload, err := s.store.GetPayload(ctx, id, run)
	if err != nil {
		return nil, s.failed("get payload", err)
	}
	return &workerv1.GetPayloadResponse{Payload: payload}, nil
}

// GetCheckpoint implements workerv1.JournalService.
func (s *Server) GetCheckpoint(ctx context.Context, req *workerv1.GetCheckpointRequest) (*workerv1.GetCheckpointResponse, error) {
	of := state.CheckpointRef{
		Job: state.JobID{Namespace: req.GetNamespace(), Name: req.GetJob()}, Run: state.RunID(req.GetRun()),
		Shard: int(req.GetShard()), OfJob: req.GetOfJob(),
	}
	if err := checkRun(of.Job, of.Run, of.Shard); err != nil {
		return nil, s.failed("get checkpoint", err)
	}
	last, err := s.store.GetCheckpoint(ctx, of)
	if err != nil {
		return nil, s.failed("get checkpoint", err)
	}
	return codec.SavedCheckpointToProto(&last), nil
}

// FollowLeader implements workerv1.JournalService.
func (s *Server) FollowLeader(_ *workerv1.FollowLeaderRequest, stream workerv1.JournalService_FollowLeaderServer) error {
	pulse := time.NewTicker(s.cfg.PulseInterval)
	defer pulse.Stop()
	interval := durationpb.New(s.cfg.PulseInterval)
	for {
		now, changed := s.leaders.Follow()
		if err := stream.Send(&workerv1.FollowLeaderResponse{
			Name: now.Name, Address: now.Address, Term: now.Term, PulseInterval: interval,
		}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-pulse.C:
		case <-s.stop:
			return errDraining
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}
