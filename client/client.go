package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
	// tryTimeout is after which a call is sent again, perhaps to another node.
	tryTimeout = 10 * time.Second
	// keepAlive is after which silence a node is asked whether it is there during a call, and
	// how long it has to answer. Nodes refuse to be asked much more often.
	keepAlive = 20 * time.Second
	// waitFor is how long one call waits for a run.
	waitFor = 30 * time.Second
	// most is how many wishes, and mostBytes how many bytes of payloads and specs, go in one call.
	most      = 1000
	mostBytes = 3 << 20
)

// reconnect has a node that was away for long found within seconds of its return; gRPC by
// itself would let two minutes pass.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 3 * time.Second,
}

// ErrRefused is wrapped by the errors of wishes that a cluster has refused: to send
// them again is of no use. The error's text says what was wrong.
var ErrRefused = errors.New("refused")

// Client talks to one cluster. It is safe for concurrent use.
type Client struct {
	submissions leaderdv1.SubmissionServiceClient
	runs        leaderdv1.RunServiceClient
	close       func() error
}

// New makes a Client that uses a connection, which stays its caller's.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{
		submissions: leaderdv1.NewSubmissionServiceClient(conn),
		runs:        leaderdv1.NewRunServiceClient(conn),
		close:       func() error { return nil },
	}
}

// Dial makes a Client of the control nodes at addresses (host:port, separated by
// commas), of which it uses the first that answers, and another when that is gone: see
// Conn. creds are credentials.NewTLS(…) or insecure.NewCredentials(); opts are those of the
// connection to each node. It does not block: the first call connects. Close ends it.
func Dial(addresses string, creds credentials.TransportCredentials, opts ...grpc.DialOption) (*Client, error) {
	conn := Over()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAlive}),
		grpc.WithConnectParams(reconnect),
	}, opts...)
	for address := range strings.SplitSeq(addresses, ",") {
		if address = strings.TrimSpace(address); address == "" {
			continue
		}
		node, err := grpc.NewClient("passthrough:///"+address, opts...) // the dialer, perhaps the caller's, looks names up
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial leaderd at %s: %w", address, err), conn.Close())
		}
		conn.nodes = append(conn.nodes, node)
	}
	if len(conn.nodes) == 0 {
		return nil, errors.New("dial leaderd: no address is given; expected host:port[,host:port…]")
	}
	c := New(conn)
	c.close = conn.Close
	return c, nil
}

// Close ends the connection that Dial made. Calls under way fail.
func (c *Client) Close() error { return c.close() }

// Submission is a wish for a run.
type Submission struct {
	// Job is namespace/name; a name alone is of the namespace "default".
	Job string
	// Spec is what to run where that is no job's yet, at most 128 KiB: a job is made for
	// this run, and goes with it; see docs/runs.md. Job names it, and must not be there yet;
	// "" or "namespace/" has a name made up.
	Spec *leaderdv1.JobSpec
	// Payload is what the run is to work on, at most 1 MiB.
	Payload []byte
	// At is when the run is due, at most 366 days ahead; zero, or an instant that has
	// passed: at once.
	At time.Time
	// Delay is another way to say it: this long after the wish is taken.
	Delay time.Duration
	// Key makes wishes one: of those for a job with the same key one makes a run. At
	// most 256 bytes; empty: a random one, for this call.
	Key string
	// KeyTTL is for how long the key is kept at least, 1m–720h; zero: 24h.
	KeyTTL time.Duration
	// LimitKey is at which of the job's limits that are per key the run counts, such as a
	// customer's name; at most 128 bytes.
	LimitKey string
	// AllowOverlap starts the run even if another one of the job is live.
	AllowOverlap bool
	// Reason is why, for the record; at most 512 bytes.
	Reason string
}

// Submitted is a wish that was taken.
type Submitted struct {
	// Run is the run's resource name.
	Run string
	// Duplicate tells that an earlier wish with the key made the run.
	Duplicate bool
	// Err is why the wish was not taken, where many were sent; it wraps ErrRefused.
	Err error
}

func (s *Submission) request() (*leaderdv1.SubmitRunRequest, error) {
	namespace, name, found := strings.Cut(s.Job, "/")
	if !found {
		namespace, name = "default", s.Job
	}
	if namespace == "" || name == "" && s.Spec == nil || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%w: job: %q is not namespace/name", ErrRefused, s.Job)
	}
	job := "namespaces/" + namespace
	if name != "" {
		job += "/jobs/" + name
	}
	if !s.At.IsZero() && s.Delay != 0 {
		return nil, fmt.Errorf("%w: at and delay are both set", ErrRefused)
	}
	req := &leaderdv1.SubmitRunRequest{
		Job: job, Spec: s.Spec, Payload: s.Payload, IdempotencyKey: s.Key,
		AllowOverlap: s.AllowOverlap, Reason: s.Reason, LimitKey: s.LimitKey,
	}
	if s.Key == "" {
		req.IdempotencyKey = "client:" + rand.Text()
	}
	switch {
	case !s.At.IsZero():
		req.When = &leaderdv1.SubmitRunRequest_StartTime{StartTime: timestamppb.New(s.At)}
	case s.Delay != 0:
		req.When = &leaderdv1.SubmitRunRequest_Delay{Delay: durationpb.New(s.Delay)}
	}
	if s.KeyTTL != 0 {
		req.IdempotencyTtl = durationpb.New(s.KeyTTL)
	}
	return req, nil
}

// submitted is the answer to the wish. What looks like an earlier wish with a random key is
// this one, whose first answer was lost.
func (s *Submission) submitted(run string, duplicate bool) Submitted {
	return Submitted{Run: run, Duplicate: duplicate && s.Key != ""}
}

// Submit asks for a run, and blocks until the wish is durable. Errors: ErrRefused, and
// ctx's own; after that the wish may be stored or not, and one with a Key may be sent
// again.
func (c *Client) Submit(ctx context.Context, s Submission) (Submitted, error) {
	req, err := s.request()
	if err != nil {
		return Submitted{}, fmt.Errorf("submit: %w", err)
	}
	var resp *leaderdv1.SubmitRunResponse
	err = again(ctx, tryTimeout, func(ctx context.Context) (err error) {
		resp, err = c.submissions.SubmitRun(ctx, req)
		return err
	})
	if err != nil {
		return Submitted{}, fmt.Errorf("submit %s: %w", cmp.Or(s.Job, "a spec"), err)
	}
	return s.submitted(resp.GetRun(), resp.GetDuplicate()), nil
}

// SubmitAll asks for many runs, in as few calls as may be, and answers for each in
// order: those that were refused have Err. The error is ctx's own; the answers that
// there are by then come with it, and the others are zero.
func (c *Client) SubmitAll(ctx context.Context, all []Submission) ([]Submitted, error) {
	answers := make([]Submitted, len(all))
	batch := &leaderdv1.SubmitRunsRequest{}
	var of []int // which wish each of the batch is
	size := 0
	send := func() error {
		for len(of) > 0 {
			var resp *leaderdv1.SubmitRunsResponse
			err := again(ctx, tryTimeout, func(ctx context.Context) (err error) {
				resp, err = c.submissions.SubmitRuns(ctx, batch)
				return err
			})
			if err != nil {
				return fmt.Errorf("submit %d runs: %w", len(of), err)
			}
			// What failed for now is sent again, with the same keys.
			left := &leaderdv1.SubmitRunsRequest{}
			var leftOf []int
			for i, r := range resp.GetResults() {
				switch e := r.GetError(); {
				case e == nil:
					answers[of[i]] = all[of[i]].submitted(r.GetRun(), r.GetDuplicate())
				case passing(codes.Code(e.GetCode())): //nolint:gosec // codes are small
					left.Requests, leftOf = append(left.GetRequests(), batch.GetRequests()[i]), append(leftOf, of[i])
				default:
					answers[of[i]].Err = fmt.Errorf("%w: %s", ErrRefused, e.GetMessage())
				}
			}
			batch, of = left, leftOf
			if len(of) > 0 {
				pause(ctx, minPause)
			}
		}
		batch, size = &leaderdv1.SubmitRunsRequest{}, 0
		return nil
	}
	for i := range all {
		req, err := all[i].request()
		if err != nil {
			answers[i].Err = err
			continue
		}
		bytes := len(req.GetPayload()) + proto.Size(req.GetSpec())
		if len(of) == most || len(of) > 0 && size+bytes > mostBytes {
			if err := send(); err != nil {
				return answers, err
			}
		}
		batch.Requests, of = append(batch.GetRequests(), req), append(of, i)
		size += bytes
	}
	return answers, send()
}

// Wait blocks until a run has its verdict, and answers it. Errors: ErrRefused where
// there is no such run, and ctx's own.
func (c *Client) Wait(ctx context.Context, run string) (*leaderdv1.Run, error) {
	for {
		var resp *leaderdv1.WaitRunResponse
		err := again(ctx, waitFor+tryTimeout, func(ctx context.Context) (err error) {
			resp, err = c.submissions.WaitRun(ctx, &leaderdv1.WaitRunRequest{Name: run, Timeout: durationpb.New(waitFor)})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", run, err)
		}
		if resp.GetDone() {
			return resp.GetRun(), nil
		}
	}
}

// Result answers what a run left. Errors: ErrRefused where it left nothing, and ctx's
// own.
func (c *Client) Result(ctx context.Context, run string) ([]byte, error) {
	var resp *leaderdv1.GetRunResultResponse
	err := again(ctx, tryTimeout, func(ctx context.Context) (err error) {
		resp, err = c.submissions.GetRunResult(ctx, &leaderdv1.GetRunResultRequest{Name: run})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", run, err)
	}
	return resp.GetResult(), nil
}

// Cancel asks for a run's end, and answers when the wish is durable. Errors: ErrRefused
// where there is no such run or it is over, and ctx's own.
func (c *Client) Cancel(ctx context.Context, run, reason string) error {
	err := again(ctx, tryTimeout, func(ctx context.Context) error {
		_, err := c.runs.CancelRun(ctx, &leaderdv1.CancelRunRequest{Name: run, Reason: reason})
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel %s: %w", run, err)
	}
	return nil
}

// again calls try until it answers something else than a passing failure, or ctx ends.
func again(ctx context.Context, each time.Duration, try func(context.Context) error) error {
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		once, cancel := context.WithTimeout(ctx, each)
		err := try(once)
		cancel()
		switch code := status.Code(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case !passing(code):
			return fmt.Errorf("%w: %s (%s)", ErrRefused, status.Convert(err).Message(), code)
		}
		pause(ctx, wait)
	}
}

// passing tells errors after which the same call may yet be answered. Unknown is what
// a store says that did not answer in time.
func passing(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.Canceled:
		return true
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
