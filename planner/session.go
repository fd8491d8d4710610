package planner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

const (
	// planEntries and planBytes bound one message of a plan.
	planEntries = 4096
	planBytes   = 1 << 20
	// maxUnsent is how many entries may wait for an executor that does not read
	// before its session is given up.
	maxUnsent = 1 << 20
	// maxForgotten is how many references are known after they were taken back.
	maxForgotten = 4096
)

// session is one executor's attendance. The term's loop owns it; its stream's
// goroutines only move messages.
type session struct {
	owner state.Owner
	out   chan *workerv1.AttendResponse
	// gone is closed, with err set, when the loop is done with the session. ended is
	// the same for the loop.
	gone  chan struct{}
	err   error
	ended bool

	refs     map[*Job]uint32
	versions map[uint32]version
	lastRef  uint32
	// forgotten are references that were taken back, the oldest first. Runs of
	// theirs go on, and are reported.
	forgotten []uint32

	// ahead is how far the executor's clock is ahead of the leader's, skewTold when
	// that was last logged.
	ahead    time.Duration
	skewTold time.Time

	unsent  []*workerv1.Entry
	specs   map[uint32]*workerv1.Spec // that unsent entries need and the executor lacks
	revoked []uint32
	cancels []*workerv1.Cancel
}

// version is what a reference of a session stands for.
type version struct {
	timed    *timed
	revision int64
}

func newSession(owner state.Owner) *session {
	return &session{
		owner:    owner,
		out:      make(chan *workerv1.AttendResponse, 16),
		gone:     make(chan struct{}),
		refs:     make(map[*Job]uint32),
		versions: make(map[uint32]version),
		specs:    make(map[uint32]*workerv1.Spec),
	}
}

// plan adds an entry to what the executor is told next.
func (s *session) plan(e *entry) {
	ref, known := s.refs[e.version]
	if !known {
		s.lastRef++
		ref = s.lastRef
		s.refs[e.version] = ref
		s.versions[ref] = version{e.job, e.version.Revision}
		s.specs[ref] = specOf(e.version, ref)
	}
	p := &workerv1.Entry{
		Ref:            ref,
		Due:            e.due,
		Run:            string(e.run),
		Shard:          int32(e.shard),
		ClosedRevision: e.closed,
		Hedge:          len(e.holders) > 1 && e.version.RunPlanned,
	}
	if e.lists() {
		p.Shard, p.List = 0, true // executors that know of no lists run it as one piece of work
	}
	if e.split {
		p.Split, p.Begun, p.Shards = true, e.begun, int32(e.shards)
	}
	if w := e.waiting; w != nil {
		// Its record stays where it is: a gate that the run does not hold is not its
		// to ask for, nor to wait for.
		p.Attempt, p.Token, p.AllowOverlap = int32(w.Attempt+1), w.Token, !w.Exclusive
	}
	if e.pending != nil {
		p.Pending, p.AllowOverlap, p.Queued = e.pending.Revision, e.pending.AllowOverlap, e.waits
		p.Origin, p.LimitKey = string(e.pending.Origin), e.pending.LimitKey
		p.Correlation, p.Upstream = e.pending.Correlation, codec.UpstreamToProto(e.pending.Upstream)
	}
	s.unsent = append(s.unsent, p)
}

// specOf is a job's spec as executors get it. A stored value that was read once
// can be read again.
func specOf(j *Job, ref uint32) *workerv1.Spec {
	var stored statev1.Job
	if err := proto.Unmarshal(j.stored, &stored); err != nil {
		stored.Spec = nil
	}
	return &workerv1.Spec{
		Ref:         ref,
		Namespace:   j.ID.Namespace,
		Job:         j.ID.Name,
		JobRevision: j.Revision,
		Generation:  j.Generation,
		Spec:        stored.GetSpec(),
	}
}

// forget takes back what was planned of a version.
func (s *session) forget(j *Job) {
	ref, known := s.refs[j]
	if !known {
		return
	}
	delete(s.refs, j)
	if s.forgotten = append(s.forgotten, ref); len(s.forgotten) > maxForgotten {
		delete(s.versions, s.forgotten[0])
		s.forgotten = s.forgotten[1:]
	}
	kept := s.unsent[:0]
	for _, e := range s.unsent {
		if e.GetRef() != ref {
			kept = append(kept, e)
		}
	}
	clear(s.unsent[len(kept):])
	s.unsent = kept
	if _, untold := s.specs[ref]; untold {
		delete(s.specs, ref)
		return
	}
	s.revoked = append(s.revoked, ref)
}

// flush sends a session what it has not been told. It never blocks: what does
// not fit waits for the next turn.
func (t *term) flush(s *session) {
	if len(s.unsent) > maxUnsent {
		t.cfg.Logger.Warn("executor does not read its plan; its session is ended", "node", s.owner.Node)
		t.end(s, errSlow)
		return
	}
	for len(s.revoked) > 0 {
		if !s.send(&workerv1.AttendResponse{
			Kind: &workerv1.AttendResponse_Revoke{Revoke: &workerv1.Revoke{Refs: s.revoked}},
		}) {
			return
		}
		s.revoked = nil
	}
	for len(s.cancels) > 0 {
		if !s.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Cancel{Cancel: s.cancels[0]}}) {
			return
		}
		s.cancels = s.cancels[1:]
	}
	for len(s.unsent) > 0 {
		n, specs := s.nextPlan()
		plan := &workerv1.Plan{Entries: s.unsent[:n:n], Specs: specs}
		if !s.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Plan{Plan: plan}}) {
			return
		}
		t.metrics.planned.Add(float64(n))
		for _, spec := range specs {
			delete(s.specs, spec.GetRef())
		}
		s.unsent = s.unsent[n:]
	}
	s.unsent = nil
}

// nextPlan answers how many unsent entries fit into a message, and the specs
// that they need.
func (s *session) nextPlan() (n int, specs []*workerv1.Spec) {
	bytes := 0
	taken := map[uint32]bool{}
	for ; n < len(s.unsent) && n < planEntries; n++ {
		ref := s.unsent[n].GetRef()
		size := entryBytes(s.unsent[n])
		spec := s.specs[ref]
		if taken[ref] {
			spec = nil
		}
		if spec != nil {
			size += proto.Size(spec)
		}
		if bytes += size; n > 0 && bytes > planBytes {
			break
		}
		if spec != nil {
			taken[ref] = true
			specs = append(specs, spec)
		}
	}
	return n, specs
}

// entryBytes is about the size of an entry: what a run came after may be far more than
// the rest.
func entryBytes(e *workerv1.Entry) int {
	n := 32 + len(e.GetRun()) + len(e.GetOrigin()) + len(e.GetCorrelation()) + len(e.GetLimitKey())
	for _, u := range e.GetUpstream() {
		n += 16 + len(u.GetJob()) + len(u.GetRun())
	}
	return n
}

func (s *session) send(m *workerv1.AttendResponse) bool {
	select {
	case s.out <- m:
		return true
	default:
		return false
	}
}

// attend takes a session in. It replaces an older one of the same node.
func (t *term) attend(s *session, hello *workerv1.Hello) {
	node, registered := t.nodes[s.owner.Node]
	if !registered || node.Revision != s.owner.Revision {
		t.end(s, errUnregistered)
		return
	}
	if old := t.sessions[s.owner.Node]; old != nil {
		t.end(old, errReplaced)
	}
	t.sessions[s.owner.Node] = s
	delete(t.unclaimed.returning, s.owner.Node)
	t.metrics.sessions.Set(float64(len(t.sessions)))
	t.failures.audit, t.chains.audit = true, true
	s.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Welcome{Welcome: &workerv1.Welcome{
		Term:          t.leadership.Number,
		Horizon:       durationpb.New(t.cfg.Horizon),
		PulseInterval: durationpb.New(t.cfg.PulseInterval),
	}}})
	for _, h := range hello.GetHeld() {
		t.held(h)
	}
	t.noteUnrecorded(s, hello.GetUnrecorded())
	t.cfg.Logger.Info("executor attends", "node", s.owner.Node, "capacity", node.Capacity, "holds", len(hello.GetHeld()))
	t.moved = true
}

// held closes the entry of a run that an executor has claimed already.
func (t *term) held(h *workerv1.Held) {
	job := t.jobs[state.JobID{Namespace: h.GetNamespace(), Name: h.GetJob()}]
	if job == nil {
		return
	}
	run := state.RunID(h.GetRun())
	for _, e := range job.open {
		if e.runID() == run && e.shard == int(h.GetShard()) && e.waiting == nil {
			t.close(e)
			t.musterOnce(e)
			return
		}
	}
}

// end ends a session, for the loop. What it had is planned elsewhere in the next turn.
func (t *term) end(s *session, why error) {
	select {
	case <-s.gone:
		return
	default:
	}
	s.err, s.ended = why, true
	close(s.gone)
	if t.sessions[s.owner.Node] != s {
		return
	}
	delete(t.sessions, s.owner.Node)
	t.forgetUnrecorded(s)
	t.setSkew(s, 0, t.now())
	t.metrics.sessions.Set(float64(len(t.sessions)))
	if t.ctx.Err() != nil {
		return // nothing is planned any more, and the end of the term waits for this
	}
	t.cfg.Logger.Info("executor no longer attends; what it had is planned elsewhere", "node", s.owner.Node, "reason", why)
	t.moved = true
}

// closeSessions ends all sessions with the term; nothing is planned any more.
func (t *term) closeSessions() {
	for _, s := range t.sessions {
		s.err = errTermOver
		close(s.gone)
	}
	clear(t.sessions)
	// What these tell is of the term; who does not lead tells nothing.
	for _, gauge := range []prometheus.Gauge{
		t.metrics.sessions, t.metrics.open, t.metrics.waiting, t.metrics.horizon, t.metrics.watermarkLag, t.metrics.badGates, t.metrics.skew,
	} {
		gauge.Set(0)
	}
}
