package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// maxIdle is how many goroutines of a stream wait for further entries. To use
// them again spares their stacks from growing anew for each entry.
const maxIdle = 256

// recording is one Record stream. The handler's goroutine sends; another one
// receives and begins entries; each entry has one of its own while it runs.
type recording struct {
	server *Server
	max    int
	next   chan *workerv1.RecordEntry // to a goroutine that waits; closed with the stream
	idle   atomic.Int32

	mu      sync.Mutex
	answers []*workerv1.RecordAnswer // that wait to be sent
	running int                      // entries that were begun and have no answer
	open    int                      // entries that were begun and not answered on the wire
	closed  bool                     // nothing further is begun
	ended   error                    // why no more is received; io.EOF: the client has said all

	wake chan struct{} // of one: there are answers, or running or ended changed
	room chan struct{} // of one: open sank, or closed
}

// Record implements workerv1.JournalService.
func (s *Server) Record(stream workerv1.JournalService_RecordServer) error {
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	r := &recording{
		server: s,
		max:    s.cfg.MaxInFlight,
		next:   make(chan *workerv1.RecordEntry),
		wake:   make(chan struct{}, 1),
		room:   make(chan struct{}, 1),
	}
	// Entries outlast the stream.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stream.Context()))
	defer cancel(nil)
	// It ends when this handler has returned, at the latest: then Recv fails.
	go r.receive(ctx, stream)
	err := r.send(stream)
	r.finish(cancel)
	return err
}

// receive begins what comes in.
func (r *recording) receive(ctx context.Context, stream workerv1.JournalService_RecordServer) {
	for {
		m, err := stream.Recv()
		if err == nil {
			err = checkMessage(m)
		}
		if err == nil && r.admit(len(m.GetEntries())) {
			for _, e := range m.GetEntries() {
				select {
				case r.next <- e:
				default:
					go r.work(ctx, e)
				}
			}
			continue
		}
		r.mu.Lock()
		r.ended = err
		r.mu.Unlock()
		notify(r.wake)
		close(r.next)
		return
	}
}

// admit waits until n more entries may begin and counts them; false: the stream
// is over.
func (r *recording) admit(n int) bool {
	r.server.metrics.batch.Observe(float64(n))
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return false
		}
		if r.open == 0 || r.open+n <= r.max {
			r.open += n
			r.running += n
			r.mu.Unlock()
			r.server.metrics.entries.Add(float64(n))
			r.server.metrics.inFlight.Add(float64(n))
			return true
		}
		r.mu.Unlock()
		<-r.room
	}
}

// send sends answers until the stream is over: the client is done and has all
// its answers, or it broke, or the node drains and what was begun is answered.
func (r *recording) send(stream workerv1.JournalService_RecordServer) error {
	m := &workerv1.RecordResponse{}
	stop := r.server.stop
	for {
		select {
		case <-r.wake:
		case <-stop:
			stop = nil
			r.close()
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
		for {
			// Entries that are about to be done go first: a greater message is
			// cheaper than a further one.
			runtime.Gosched()
			answers, over, err := r.take(m.GetAnswers()[:0])
			if len(answers) == 0 {
				switch {
				case err != nil:
					return err
				case over && stop == nil:
					return errDraining
				case over:
					return nil
				}
				break
			}
			m.Answers = answers
			if err := stream.Send(m); err != nil {
				return err
			}
			r.sent(len(answers))
		}
	}
}

// take moves answers for one message to into. over: the last one was sent, and
// there will be no more. err: the stream is broken, or must be.
func (r *recording) take(into []*workerv1.RecordAnswer) (_ []*workerv1.RecordAnswer, over bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, bytes := 0, 0
	for ; n < len(r.answers) && n < MaxEntries; n++ {
		if bytes += answerBytes(r.answers[n]); n > 0 && bytes > maxAnswerBytes {
			break
		}
	}
	into = append(into, r.answers[:n]...)
	left := copy(r.answers, r.answers[n:])
	clear(r.answers[left:])
	r.answers = r.answers[:left]
	said := errors.Is(r.ended, io.EOF)
	if !said {
		err = r.ended
	}
	return into, r.running == 0 && left == 0 && (said || r.closed), err
}

// answerBytes is at least the size of an answer.
func answerBytes(a *workerv1.RecordAnswer) int {
	const plain = 64
	if c := a.GetClaim(); c.GetAttempts() != nil || c.GetLive() != nil || a.GetError() != "" {
		return plain + proto.Size(a)
	}
	return plain
}

func (r *recording) sent(n int) {
	r.mu.Lock()
	r.open -= n
	r.mu.Unlock()
	r.server.metrics.inFlight.Sub(float64(n))
	notify(r.room)
}

// close lets nothing further begin.
func (r *recording) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	notify(r.room)
	notify(r.wake)
}

// errEnded is the cause with which entries are given up.
var errEnded = errors.New("stream ended")

// finish waits for the entries that are still running; for those that take
// longer than Linger it ends their context.
func (r *recording) finish(cancel context.CancelCauseFunc) {
	r.close()
	linger := time.NewTimer(r.server.cfg.Linger)
	defer linger.Stop()
	for {
		r.mu.Lock()
		running, open := r.running, r.open
		r.mu.Unlock()
		if running == 0 {
			r.server.metrics.inFlight.Sub(float64(open))
			return
		}
		select {
		case <-r.wake:
		case <-linger.C:
			cancel(errEnded)
		}
	}
}

// work carries out an entry, and then others, while there are not too many that
// could.
func (r *recording) work(ctx context.Context, e *workerv1.RecordEntry) {
	for ok := true; ok; {
		r.carryOut(ctx, e)
		if r.idle.Add(1) > maxIdle {
			r.idle.Add(-1)
			return
		}
		e, ok = <-r.next
		r.idle.Add(-1)
	}
}

// carryOut carries out one entry and leaves its answer to be sent.
func (r *recording) carryOut(ctx context.Context, e *workerv1.RecordEntry) {
	a := r.server.answer(ctx, e)
	r.mu.Lock()
	r.answers = append(r.answers, a)
	r.running--
	r.mu.Unlock()
	notify(r.wake)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// answer carries out one entry. It answers whatever happens.
func (s *Server) answer(ctx context.Context, e *workerv1.RecordEntry) (a *workerv1.RecordAnswer) {
	defer func() {
		if p := recover(); p != nil {
			s.metrics.panics.Inc()
			s.log.Error("panic at a journal entry; it is answered with an error, all else goes on",
				"kind", kind(e), "panic", p, "stack", string(debug.Stack()))
			a = &workerv1.RecordAnswer{Id: e.GetId(), Code: int32(codes.Internal), Error: "internal error"}
		}
	}()
	a = &workerv1.RecordAnswer{Id: e.GetId()}
	if err := s.do(ctx, e, a); err != nil {
		c := classify(err)
		s.metrics.failed.WithLabelValues(c.code.String()).Inc()
		s.logFailure(c.code, kind(e), err)
		a.Code, a.Error = int32(c.code), c.text
	}
	return a
}

// do carries out an entry and puts the answer by its kind into a.
func (s *Server) do(ctx context.Context, e *workerv1.RecordEntry, a *workerv1.RecordAnswer) error {
	switch k := e.GetKind().(type) {
	case *workerv1.RecordEntry_Claim:
		c := codec.ClaimFromProto(k.Claim)
		if err := checkClaim(&c); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		res, err := s.store.Claim(ctx, c)
		if err != nil {
			return err
		}
		a.Kind = &workerv1.RecordAnswer_Claim{Claim: codec.ClaimResultToProto(&c, &res)}
	case *workerv1.RecordEntry_Finish:
		f := codec.FinishFromProto(k.Finish)
		if err := checkFinish(&f); err != nil {
			return fmt.Errorf("finish: %w", err)
		}
		st, err := s.store.Finish(ctx, f)
		if err != nil {
			return err
		}
		a.Kind = &workerv1.RecordAnswer_Token{Token: codec.TokenAnswer(st)}
	case *workerv1.RecordEntry_Checkpoint:
		c := codec.CheckpointFromProto(k.Checkpoint)
		if err := checkCheckpoint(&c); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		res, err := s.store.Checkpoint(ctx, c)
		if err != nil {
			return err
		}
		a.Kind = &workerv1.RecordAnswer_Token{Token: codec.CheckpointResultToProto(res)}
	case *workerv1.RecordEntry_Progress:
		p := codec.ProgressReportFromProto(k.Progress)
		if err := checkProgress(&p); err != nil {
			return fmt.Errorf("progress: %w", err)
		}
		st, err := s.store.SaveProgress(ctx, p)
		if err != nil {
			return err
		}
		a.Kind = &workerv1.RecordAnswer_Token{Token: codec.TokenAnswer(st)}
	case *workerv1.RecordEntry_Hook:
		r := codec.HookReportFromProto(k.Hook)
		if err := checkHook(&r); err != nil {
			return fmt.Errorf("hook: %w", err)
		}
		if err := s.store.NoteHook(ctx, r); err != nil {
			return err
		}
		a.Kind = &workerv1.RecordAnswer_Token{Token: codec.TokenAnswer(state.TokenStored)}
	case *workerv1.RecordEntry_Double:
		r := codec.DoubleReportFromProto(k.Double)
		if err := checkDouble(&r); err != nil {
			return fmt.Errorf("double: %w", err)
		}
		if err := s.store.NoteDouble(ctx, r); err != nil {
			return err
		}
		a.Kind = &workerv1.RecordAnswer_Token{Token: codec.TokenAnswer(state.TokenStored)}
	default:
		return errKind
	}
	return nil
}

// kind is an entry's kind in logs.
func kind(e *workerv1.RecordEntry) string {
	switch e.GetKind().(type) {
	case *workerv1.RecordEntry_Claim:
		return "claim"
	case *workerv1.RecordEntry_Finish:
		return "finish"
	case *workerv1.RecordEntry_Checkpoint:
		return "checkpoint"
	case *workerv1.RecordEntry_Progress:
		return "progress"
	case *workerv1.RecordEntry_Hook:
		return "hook"
	case *workerv1.RecordEntry_Double:
		return "double"
	}
	return "unknown"
}
