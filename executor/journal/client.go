package journal

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/executor"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// Dial makes a connection to a control node's address. It must not wait for the
// connection to stand. The client closes it.
type Dial func(address string) (*grpc.ClientConn, error)

// Static answers the same addresses for ever.
func Static(addresses ...string) func() []string { return func() []string { return addresses } }

// Client is an executor's journal at the control nodes. Its methods may be called
// concurrently, and before Run, which they may wait for.
type Client struct {
	cfg     Config
	log     hclog.Logger
	metrics *metrics
	nodes   *nodes
	leader  leader

	wake chan struct{} // of one: the queue is not empty

	mu     sync.Mutex
	closed bool
	queue  []*call          // to be sent
	open   map[uint64]*call // sent on the stream that stands, and not answered
	sends  []*message       // of that stream, oldest first; answered ones go when they are first
	lastID uint64           // of an entry; never used again
	heard  time.Time        // when the stream last gave an answer, or began to owe one
}

var (
	_ executor.BlockingJournal = (*Client)(nil)
	_ executor.Leaders         = (*Client)(nil)
)

// New makes a Client and starts nothing: see Run. It asks the control nodes whose
// host:port addresses answers, one at a time; addresses is called often, must not
// block, and may answer others each time. The error lists all violations of the
// configuration.
func New(addresses func() []string, dial Dial, cfg Config) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure journal: %w", err)
	}
	return &Client{
		cfg:     cfg,
		log:     cfg.Logger,
		metrics: newMetrics(cfg.Registerer),
		nodes:   newNodes(addresses, dial),
		leader:  newLeader(),
		wake:    make(chan struct{}, 1),
		open:    make(map[uint64]*call),
	}, nil
}

// Run keeps the streams until ctx ends, which is its only end, and closes all
// connections. Callers that then still wait get ErrClosed, or kv.ErrUnknown where
// their entry was sent; so whoever uses the client ends first. It is called once.
func (c *Client) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { c.record(ctx); return nil })
	group.Go(func() error { c.followLeader(ctx); return nil })
	err := group.Wait()
	c.close()
	return err
}

// Claim implements executor.BlockingJournal: see state.Claim. It asks again, node after
// node, until it is answered or ctx ends; the error then wraps kv.ErrUnknown if
// the claim may have been made.
func (c *Client) Claim(ctx context.Context, claim state.Claim) (state.ClaimResult, error) {
	res, err := c.claim(ctx, &claim)
	if err != nil {
		return res, fmt.Errorf("claim %s %s: %w", claim.Job, claim.Live.Run, err)
	}
	return res, nil
}

func (c *Client) claim(ctx context.Context, claim *state.Claim) (state.ClaimResult, error) {
	k := &struct {
		call
		kind workerv1.RecordEntry_Claim
	}{}
	k.bytes = claimBytes(claim)
	k.kind.Claim = codec.ClaimToProto(claim)
	k.entry.Kind = &k.kind
	a, err := c.do(ctx, &k.call)
	if err != nil {
		return state.ClaimResult{}, err
	}
	res := codec.ClaimResultFromProto(claim, a.GetClaim())
	if res.Status == 0 {
		return res, unknownStatus(a.GetClaim().GetStatus())
	}
	return res, nil
}

// Finish implements executor.BlockingJournal: see state.Finish. It asks again as Claim
// does.
func (c *Client) Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error) {
	status, err := c.finish(ctx, &f)
	if err != nil {
		return 0, fmt.Errorf("finish %s %s: %w", f.Live.Job, f.Live.Run, err)
	}
	return status, nil
}

func (c *Client) finish(ctx context.Context, f *state.Finish) (state.TokenStatus, error) {
	f.Tail = bytes.Clone(f.Tail) // its owner may go on before it is sent
	k := &struct {
		call
		kind workerv1.RecordEntry_Finish
	}{}
	k.bytes = finishBytes(f)
	k.kind.Finish = codec.FinishToProto(f)
	k.entry.Kind = &k.kind
	a, err := c.do(ctx, &k.call)
	if err != nil {
		return 0, err
	}
	status := codec.TokenStatusFromProto(a.GetToken())
	if status == 0 {
		return 0, unknownStatus(a.GetToken().GetStatus())
	}
	return status, nil
}

// Checkpoint saves an attempt's progress: see state.Checkpoint. It asks again as
// Claim does. The error wraps state.ErrCheckpointChanged where the last
// checkpoint is not the one that the request names.
func (c *Client) Checkpoint(ctx context.Context, cp state.Checkpoint) (state.CheckpointResult, error) {
	res, err := c.checkpoint(ctx, &cp)
	if err != nil {
		return res, fmt.Errorf("checkpoint %s %s: %w", cp.Live.Job, cp.Live.Run, err)
	}
	return res, nil
}

func (c *Client) checkpoint(ctx context.Context, cp *state.Checkpoint) (state.CheckpointResult, error) {
	cp.Data = bytes.Clone(cp.Data) // its owner may go on before it is sent
	k := &struct {
		call
		kind workerv1.RecordEntry_Checkpoint
	}{}
	k.bytes = checkpointBytes(cp)
	k.kind.Checkpoint = codec.CheckpointToProto(cp)
	k.entry.Kind = &k.kind
	a, err := c.do(ctx, &k.call)
	if err != nil {
		return state.CheckpointResult{}, err
	}
	res := codec.CheckpointResultFromProto(a.GetToken())
	if res.Status == 0 {
		return res, unknownStatus(a.GetToken().GetStatus())
	}
	return res, nil
}

// SaveProgress implements executor.Keeper. It asks again as Claim does.
func (c *Client) SaveProgress(ctx context.Context, p state.ProgressReport) (state.TokenStatus, error) {
	k := &struct {
		call
		kind workerv1.RecordEntry_Progress
	}{}
	k.bytes = progressBytes(&p)
	k.kind.Progress = codec.ProgressReportToProto(&p)
	k.entry.Kind = &k.kind
	a, err := c.do(ctx, &k.call)
	if err != nil {
		return 0, fmt.Errorf("save progress of %s %s: %w", p.Live.Job, p.Live.Run, err)
	}
	status := codec.TokenStatusFromProto(a.GetToken())
	if status == 0 {
		return 0, unknownStatus(a.GetToken().GetStatus())
	}
	return status, nil
}

// NoteHook implements executor.HookKeeper. It asks again as Claim does.
func (c *Client) NoteHook(ctx context.Context, r state.HookReport) error {
	k := &struct {
		call
		kind workerv1.RecordEntry_Hook
	}{}
	k.bytes = hookBytes(&r)
	k.kind.Hook = codec.HookReportToProto(&r)
	k.entry.Kind = &k.kind
	if _, err := c.do(ctx, &k.call); err != nil {
		return fmt.Errorf("note hook %s of %s %s: %w", r.Hook.Name, r.Job, r.Run, err)
	}
	return nil
}

// NoteDouble implements executor.DoubleKeeper. It asks again as Claim does.
func (c *Client) NoteDouble(ctx context.Context, r state.DoubleReport) error {
	k := &struct {
		call
		kind workerv1.RecordEntry_Double
	}{}
	k.bytes = doubleBytes(&r)
	k.kind.Double = codec.DoubleReportToProto(&r)
	k.entry.Kind = &k.kind
	if _, err := c.do(ctx, &k.call); err != nil {
		return fmt.Errorf("note an unclaimed attempt at %s %s: %w", r.Job, r.Run, err)
	}
	return nil
}

func unknownStatus(s uint32) error {
	return fmt.Errorf("the control node answered with status %d, which this version does not know", s)
}
