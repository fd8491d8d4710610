package journal

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// Limits of the protocol, beside those of package state.
const (
	// MaxEntries is how many entries a message has at most.
	MaxEntries = 512
	// maxAnswerBytes is where a message of answers is cut.
	maxAnswerBytes = 1 << 20
	// maxRunBytes bounds a run's id.
	maxRunBytes = 64
	// maxShards bounds a run's shards.
	maxShards = 1 << 20
	// maxAddressBytes bounds a node's address and version each.
	maxAddressBytes = 512
	// maxCorrelation bounds a correlation: a job's name and a run's id.
	maxCorrelation = state.MaxNameBytes + 1 + maxRunBytes

	minTTL = time.Second
	maxTTL = time.Hour
)

// checkMessage answers the status with which a stream ends.
func checkMessage(m *workerv1.RecordRequest) error {
	if n := len(m.GetEntries()); n > MaxEntries {
		return status.Errorf(codes.InvalidArgument, "record: message has %d entries; at most %d are allowed", n, MaxEntries)
	}
	return nil
}

// checkRegister answers state.Violations, or nil.
func checkRegister(n *state.Node, ttl time.Duration) error {
	var v state.Violations
	if why := state.CheckName(n.Name); why != "" {
		v.Add("name", "%s", why)
	}
	if !n.Control && !n.Executor {
		v.Add("node", "has no role; control, executor or both are required")
	}
	if n.Capacity < 0 || n.Capacity > state.MaxCapacity {
		v.Add("node.capacity", "%d is outside 0–%d", n.Capacity, state.MaxCapacity)
	}
	n.Resources.Check(&v, "node.resources")
	if count := len(n.Labels); count > state.MaxLabels {
		v.Add("node.labels", "has %d labels; at most %d are allowed", count, state.MaxLabels)
	}
	for _, key := range sortedKeys(n.Labels) {
		if key == "" || len(key) > state.MaxLabelBytes {
			v.Add("node.labels", "a key has %d bytes; 1–%d are allowed", len(key), state.MaxLabelBytes)
		}
		if value := n.Labels[key]; len(value) > state.MaxLabelBytes {
			v.Add("node.labels", "a value has %d bytes; at most %d are allowed", len(value), state.MaxLabelBytes)
		}
	}
	for name, text := range map[string]string{"address": n.Address, "version": n.Version} {
		if len(text) > maxAddressBytes {
			v.Add("node."+name, "has %d bytes; at most %d are allowed", len(text), maxAddressBytes)
		}
	}
	if ttl < minTTL || ttl > maxTTL {
		v.Add("ttl", "%s is outside %s–%s", ttl, minTTL, maxTTL)
	}
	slices.SortStableFunc(v, func(a, b state.FieldViolation) int {
		switch {
		case a.Field < b.Field:
			return -1
		case a.Field > b.Field:
			return 1
		}
		return 0
	})
	return v.Err()
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// checkRun answers state.Violations of what names a shard, or nil.
func checkRun(id state.JobID, run state.RunID, shard int) error {
	var v state.Violations
	addRun(&v, id, run, shard)
	return v.Err()
}

func addRun(v *state.Violations, id state.JobID, run state.RunID, shard int) {
	if why := state.CheckName(id.Namespace); why != "" {
		v.Add("namespace", "%s", why)
	}
	if why := state.CheckName(id.Name); why != "" {
		v.Add("job", "%s", why)
	}
	if why := checkRunID(run); why != "" {
		v.Add("run", "%s", why)
	}
	if (shard < 0 || shard >= maxShards) && shard != state.ListShard {
		v.Add("shard", "%d is outside 0–%d, and is not %d", shard, maxShards-1, state.ListShard)
	}
}

// checkRunID says what is wrong with a run's id: other letters could not be
// looked for, and would be ours to escape for ever.
func checkRunID(run state.RunID) string {
	if run == "" || len(run) > maxRunBytes {
		return fmt.Sprintf("has %d bytes; 1–%d are allowed", len(run), maxRunBytes)
	}
	return state.CheckName(string(run))
}

func checkClaim(c *state.Claim) error {
	var v state.Violations
	l := &c.Live
	addRun(&v, c.Job, l.Run, l.Shard)
	if l.Shards < 1 || l.Shards > maxShards || l.Shard >= l.Shards {
		v.Add("live.shards", "%d is not above the shard %d and at most %d", l.Shards, l.Shard, maxShards)
	}
	addListing(&v, l)
	if l.Attempt < 1 {
		v.Add("live.attempt", "%d is below 1", l.Attempt)
	}
	if why := state.CheckName(l.Owner.Node); why != "" {
		v.Add("live.owner", "%s", why)
	}
	if l.Owner.Revision <= 0 {
		v.Add("live.ownerRevision", "%d names no registration", l.Owner.Revision)
	}
	if c.JobRevision <= 0 {
		v.Add("jobRevision", "%d is no revision of a job", c.JobRevision)
	}
	if l.Due.IsZero() {
		v.Add("live.due", "is missing")
	}
	g := &c.Gate
	if g.Limit < 0 || g.Limit > state.MaxConcurrent {
		v.Add("gate.limit", "%d is outside 0–%d", g.Limit, state.MaxConcurrent)
	}
	if g.QueueLimit < 0 || g.QueueLimit > state.MaxQueue {
		v.Add("gate.queueLimit", "%d is outside 0–%d", g.QueueLimit, state.MaxQueue)
	}
	if n := len(g.Key); n > state.MaxConcurrencyKey {
		v.Add("gate.concurrencyKey", "has %d bytes; at most %d are allowed", n, state.MaxConcurrencyKey)
	}
	if bad, ok := errors.AsType[state.Violations](state.CheckLimits("limits", c.Limits)); ok {
		v = append(v, bad...)
	}
	addAttempts(&v, "live.attempts", l.Attempts)
	addCircuit(&v, l.Circuit)
	if why := state.CheckLimitKey(l.LimitKey); why != "" {
		v.Add("live.limitKey", "%s", why)
	}
	if n := len(l.Correlation); n > maxCorrelation {
		v.Add("live.correlation", "has %d bytes; at most %d are allowed", n, maxCorrelation)
	}
	if n := len(l.Upstream); n > state.MaxAfter {
		v.Add("live.upstream", "has %d runs; at most %d are allowed", n, state.MaxAfter)
	}
	return v.Err()
}

func checkFinish(f *state.Finish) error {
	var v state.Violations
	addRun(&v, f.Live.Job, f.Live.Run, f.Live.Shard)
	addListing(&v, f.Live)
	if l := f.Live.Listing; len(f.List) > 0 && !l.Listed() {
		v.Add("list", "is not allowed but for a first step that is to list shards")
	} else if l.Listed() {
		if err := l.Dynamic.CheckList(f.List, false); err != nil {
			v.Add("list", "%s", err)
		}
	}
	if f.Live.Token <= 0 {
		v.Add("token", "%d is no token", f.Live.Token)
	}
	if err := state.CheckTransition(state.StateRunning, finishState(f)); err != nil {
		v.Add("attempt.state", "%s", err)
	}
	if p := f.Live.Place; p < 0 || p > state.MaxConcurrent {
		v.Add("live.place", "%d is outside 0–%d", p, state.MaxConcurrent)
	}
	if n := len(f.Live.Holds); n > state.MaxJobLimits {
		v.Add("live.holds", "has %d entries; at most %d are allowed", n, state.MaxJobLimits)
	}
	for i := range f.Live.Holds {
		h := &f.Live.Holds[i]
		if why := state.CheckName(h.Limit.Name); why != "" {
			v.Add(fmt.Sprintf("live.holds[%d].name", i), "%s", why)
		}
		if why := state.CheckLimitKey(h.Limit.Key); why != "" {
			v.Add(fmt.Sprintf("live.holds[%d].key", i), "%s", why)
		}
		if h.Place < 1 || h.Place > state.MaxConcurrent {
			v.Add(fmt.Sprintf("live.holds[%d].place", i), "%d is outside 1–%d", h.Place, state.MaxConcurrent)
		}
	}
	addAttempts(&v, "live.attempts", f.Live.Attempts)
	addAttempts(&v, "attempt", []state.Attempt{f.Attempt})
	addCircuit(&v, f.Live.Circuit)
	for i := range f.Hooks {
		addHook(&v, &f.Hooks[i])
	}
	if n := len(f.Tail); n > state.MaxTailBytes {
		v.Add("tail", "has %d bytes; at most %d are allowed", n, state.MaxTailBytes)
	}
	if n := len(f.Reason); n > state.MaxReasonBytes {
		v.Add("reason", "has %d bytes; at most %d are allowed", n, state.MaxReasonBytes)
	}
	if n := len(f.Detail); n > state.MaxDetailBytes {
		v.Add("detail", "has %d bytes; at most %d are allowed", n, state.MaxDetailBytes)
	}
	return v.Err()
}

// finishState is the state in which a finish leaves its run.
func finishState(f *state.Finish) state.RunState {
	if !f.Retry.IsZero() {
		return state.StateWaiting
	}
	return f.Attempt.State
}

func addAttempts(v *state.Violations, field string, as []state.Attempt) {
	if n := len(as); n > state.MaxAttemptRecords {
		v.Add(field, "has %d attempts; at most %d are allowed", n, state.MaxAttemptRecords)
		return
	}
	for i := range as {
		if n := len(as[i].Error); n > state.MaxErrorBytes {
			v.Add(field, "an error has %d bytes; at most %d are allowed", n, state.MaxErrorBytes)
		}
		if n := len(as[i].Message); n > state.MaxProgressMessage {
			v.Add(field, "a message has %d bytes; at most %d are allowed", n, state.MaxProgressMessage)
		}
		if n := len(as[i].Node); n > state.MaxNameBytes {
			v.Add(field, "a node has %d bytes; at most %d are allowed", n, state.MaxNameBytes)
		}
	}
}

func checkCheckpoint(c *state.Checkpoint) error {
	var v state.Violations
	addRun(&v, c.Live.Job, c.Live.Run, c.Live.Shard)
	if c.Live.Token <= 0 {
		v.Add("token", "%d is no token", c.Live.Token)
	}
	if n := len(c.Data); n > state.MaxCheckpoint {
		v.Add("data", "has %d bytes; at most %d are allowed", n, state.MaxCheckpoint)
	}
	if c.Number < 1 {
		v.Add("number", "%d is no number of a checkpoint; the first is 1", c.Number)
	}
	if c.Keep < 0 || c.Keep > state.MaxCheckpointsKept {
		v.Add("keep", "%d is outside 0–%d", c.Keep, state.MaxCheckpointsKept)
	}
	return v.Err()
}

func checkProgress(p *state.ProgressReport) error {
	var v state.Violations
	addRun(&v, p.Live.Job, p.Live.Run, p.Live.Shard)
	if p.Live.Token <= 0 {
		v.Add("token", "%d is no token", p.Live.Token)
	}
	if n := len(p.Progress.Message); n > state.MaxProgressMessage {
		v.Add("progress.message", "has %d bytes; at most %d are allowed", n, state.MaxProgressMessage)
	}
	return v.Err()
}

// addListing checks what a first step says of how it is to list shards.
func addListing(v *state.Violations, l *state.Live) {
	switch s := l.Listing; {
	case s == nil:
	case l.Shard != state.ListShard || !s.Listed() || len(s.Params) > 0:
		v.Add("live.listing", "is not allowed but for shard %d, with dynamic and without params", state.ListShard)
	case s.Dynamic.Max < 0 || s.Dynamic.Max > state.MaxShards:
		v.Add("live.listing.dynamic.max", "%d is outside 0–%d", s.Dynamic.Max, state.MaxShards)
	case s.MinSuccess < 0 || s.MinSuccess > state.MaxShards:
		v.Add("live.listing.minSuccess", "%d is outside 0–%d", s.MinSuccess, state.MaxShards)
	}
}

func addCircuit(v *state.Violations, b *state.CircuitBreaker) {
	if b == nil {
		return
	}
	if why := state.CheckName(b.Target); b.Target != "" && why != "" {
		v.Add("live.circuit.target", "%s", why)
	}
	if b.Window < 0 || b.Window > state.MaxCircuitWindow {
		v.Add("live.circuit.window", "%d is outside 0–%d", b.Window, state.MaxCircuitWindow)
	}
}

func addHook(v *state.Violations, h *state.HookRun) {
	if h.Name < state.HookOnSuccess || h.Name > state.HookOnExit {
		v.Add("hook.name", "%d is none that this version knows", h.Name)
	}
	if n := len(h.Error); n > state.MaxErrorBytes {
		v.Add("hook.error", "has %d bytes; at most %d are allowed", n, state.MaxErrorBytes)
	}
	if n := len(h.Tail); n > state.MaxHookTail {
		v.Add("hook.tail", "has %d bytes; at most %d are allowed", n, state.MaxHookTail)
	}
}

func checkHook(r *state.HookReport) error {
	var v state.Violations
	addRun(&v, r.Job, r.Run, 0)
	if r.Token <= 0 {
		v.Add("token", "%d is no token", r.Token)
	}
	addHook(&v, &r.Hook)
	return v.Err()
}

func checkDouble(r *state.DoubleReport) error {
	var v state.Violations
	addRun(&v, r.Job, r.Run, 0)
	if !r.Attempt.Unclaimed || !r.Attempt.State.Verdict() {
		v.Add("attempt", "is none that began without a claim and has ended")
	}
	addAttempts(&v, "attempt", []state.Attempt{r.Attempt})
	return v.Err()
}
