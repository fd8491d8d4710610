package planner_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// site is a store with one leader at a time and no executor: every slot is
// missed, but for those that the test claims.
type site struct {
	t       *testing.T
	db      *memkv.Store
	store   *store.Store
	catalog *planner.Catalog
	planner *planner.Planner
	log     logBuffer
	owner   state.Owner
	reg     state.Registration
	job     state.Job
	// pending are wishes that the planner is told of.
	pending chan []state.Pending
	// behind, if it is set, holds up those who wait for news of the jobs.
	behind   chan struct{}
	registry *prometheus.Registry
	looks    atomic.Int64 // at gates
}

// counted counts the looks at gates.
type counted struct {
	*store.Store
	looks *atomic.Int64
}

func (c counted) CheckGate(ctx context.Context, id state.JobID) error {
	c.looks.Add(1)
	return c.Store.CheckGate(ctx, id)
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var tick = state.JobID{Namespace: "default", Name: "tick"}

func tickSpec() *leaderdv1.JobSpec {
	return &leaderdv1.JobSpec{
		Schedules: []string{"@every 1s"}, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
		CatchUp: leaderdv1.CatchUp_CATCH_UP_NONE,
	}
}

func newSite(t *testing.T) *site {
	s := &site{t: t, db: memkv.New(), catalog: planner.NewCatalog(), pending: make(chan []state.Pending), registry: prometheus.NewRegistry()}
	t.Cleanup(s.db.Close)
	s.behind = make(chan struct{})
	close(s.behind)
	var err error
	s.store, err = store.New(s.db, store.Config{})
	require.NoError(t, err)
	t.Cleanup(s.store.Close)
	put, err := s.store.PutJob(t.Context(), store.PutJob{
		ID: tick, AllowMissing: true, Now: time.Now(), Spec: tickSpec(),
	})
	require.NoError(t, err)
	s.job = put.Entry.Job
	s.catalog.Reset(func(yield func(planner.Stored) bool) { yield(planner.Stored{Job: s.job}) })
	reg, err := s.store.Register(t.Context(), state.Node{Name: "n", Executor: true, Capacity: 1, Started: time.Now()}, time.Hour)
	require.NoError(t, err)
	s.owner, s.reg = reg.Owner, reg
	block := func(ctx context.Context) error { <-ctx.Done(); return nil }
	s.planner, err = planner.New(counted{s.store, &s.looks}, planner.Sources{
		Catalog: s.catalog,
		Fresh: func(ctx context.Context, _ int64) error {
			select {
			case <-s.behind:
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		},
		Cancels: func(ctx context.Context, _ func([]state.Cancel)) error { return block(ctx) },
		Nodes:   func(ctx context.Context, each func([]state.Node)) error { each(nil); return block(ctx) },
		Pending: func(ctx context.Context, each func(are, gone []state.Pending)) error {
			for {
				select {
				case p := <-s.pending:
					each(p, nil)
				case <-ctx.Done():
					return nil
				}
			}
		},
	}, planner.Config{
		Logger: hclog.New(&hclog.LoggerOptions{Output: &s.log, Level: hclog.Info}), Registerer: s.registry,
	})
	require.NoError(t, err)
	return s
}

// lead leads until end is called.
func (s *site) lead(name string) (end func()) {
	key := store.DefaultPrefix + "leader/" + name
	term := state.Term{Key: key, Number: s.put(key, name)}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.planner.Run(ctx, term) }()
	return func() {
		cancel()
		require.NoError(s.t, <-done)
		_, err := s.db.Txn(s.t.Context(), kv.Txn{Then: []kv.Op{kv.Delete(key)}})
		require.NoError(s.t, err)
	}
}

func (s *site) put(key, value string) int64 {
	res, err := s.db.Txn(s.t.Context(), kv.Txn{Then: []kv.Op{kv.Put(key, []byte(value), 0)}})
	require.NoError(s.t, err)
	return res.Revision
}

// claim claims the slot in so many seconds.
func (s *site) claim(in time.Duration) (state.ClaimResult, error) {
	due := time.Now().UTC().Truncate(time.Second).Add(in)
	return s.store.Claim(s.t.Context(), state.Claim{
		Job: tick, JobRevision: s.job.Revision, Exclusive: true,
		Live: state.Live{Run: state.SlotRunID(due), Shards: 1, Generation: 1, Attempt: 1, Owner: s.owner, Due: due, Claimed: time.Now()},
	})
}

// whole requires that every slot from the job's beginning to the watermark has a
// record, and that the watermark is where it should be.
func (s *site) whole(lag time.Duration) {
	s.t.Helper()
	mark, err := s.store.GetWatermark(s.t.Context())
	require.NoError(s.t, err)
	require.WithinDuration(s.t, time.Now(), mark.Instant, lag)
	from := s.job.Effective.Truncate(time.Second).Add(time.Second)
	decided, err := s.store.ListDecided(s.t.Context(), tick, from, mark.Instant)
	require.NoError(s.t, err)
	for slot := from; !slot.After(mark.Instant); slot = slot.Add(time.Second) {
		require.True(s.t, decided.Has(slot), slot)
	}
}

const (
	watermarkKey = store.DefaultPrefix + "timeline/watermark"
	closedKey    = store.DefaultPrefix + "timeline/closed"
)

// TestUnreadableTimeline spoils the leader's own keys between two terms: the next
// leader says so, goes on, and leaves no slot without a verdict.
func TestUnreadableTimeline(t *testing.T) {
	for name, keys := range map[string][]string{
		"watermark": {watermarkKey}, "closed": {closedKey}, "both": {watermarkKey, closedKey},
	} {
		for _, value := range []string{"\xff\xffrubbish", ""} {
			for _, gap := range []time.Duration{2 * time.Second, 20 * time.Minute} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newSite(t)
						end := s.lead("a")
						time.Sleep(20 * time.Minute)
						end()
						s.whole(30 * time.Second)
						closed, err := s.store.GetClosed(t.Context())
						require.NoError(t, err)
						for _, key := range keys {
							s.put(key, value)
						}
						time.Sleep(gap)

						end = s.lead("b")
						defer end()
						time.Sleep(time.Minute)
						for _, key := range keys {
							require.Contains(t, s.log.String(), key)
						}
						require.Contains(t, s.log.String(), "[ERROR]")
						require.NoError(t, s.planner.Trouble())
						s.whole(30 * time.Second)
						now, err := s.store.GetClosed(t.Context())
						require.NoError(t, err)
						require.False(t, now.Instant.Before(closed.Instant), "the timeline was opened")
						res, err := s.claim(time.Second)
						require.NoError(t, err)
						require.Equal(t, state.Claimed, res.Status)
					})
				})
			}
		}
	}
}

// TestClosedSpoiltWhileLeading spoils or deletes what every claim compares: the
// leader puts it right within seconds.
func TestClosedSpoiltWhileLeading(t *testing.T) {
	for name, spoil := range map[string]func(s *site){
		"rubbish": func(s *site) { s.put(closedKey, "rubbish") },
		"deleted": func(s *site) {
			_, err := s.db.Txn(s.t.Context(), kv.Txn{Then: []kv.Op{kv.Delete(closedKey)}})
			require.NoError(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				defer s.lead("a")()
				time.Sleep(12 * time.Minute)
				closed, err := s.store.GetClosed(t.Context())
				require.NoError(t, err)
				spoil(s)
				time.Sleep(3 * time.Second)
				now, err := s.store.GetClosed(t.Context())
				require.NoError(t, err)
				require.False(t, now.Instant.Before(closed.Instant), "the timeline was opened")
				require.Greater(t, now.Revision, closed.Revision)
				res, err := s.claim(2 * time.Second)
				require.NoError(t, err)
				require.Equal(t, state.Claimed, res.Status)
				require.Contains(t, s.log.String(), closedKey[len(store.DefaultPrefix):])
				time.Sleep(time.Minute)
				s.whole(30 * time.Second)
			})
		})
	}
}

// TestUnreadableGate spoils the record at a job's gate: its slots are skipped
// with the reason, and what is published names it, until it is deleted.
func TestUnreadableGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		end := s.lead("a")
		time.Sleep(time.Minute)
		s.put(s.store.GateKey(tick), "rubbish")
		time.Sleep(time.Minute)
		s.whole(10 * time.Second)
		mark, err := s.store.GetWatermark(t.Context())
		require.NoError(t, err)
		require.Equal(t, []state.JobID{tick}, mark.UnreadableGates)
		require.Contains(t, s.log.String(), s.store.GateKey(tick))
		got, err := s.store.GetRun(t.Context(), tick, state.SlotRunID(time.Now().Add(-10*time.Second)))
		require.NoError(t, err)
		require.Equal(t, state.StateSkipped, got.Record.State)
		require.Equal(t, state.ReasonUnreadable, got.Record.Reason)
		require.Contains(t, got.Record.Detail, s.store.GateKey(tick))

		// A successor knows it at once, and works up an outage all the same.
		end()
		time.Sleep(5 * time.Minute)
		defer s.lead("b")()
		time.Sleep(5 * time.Second)
		mark, err = s.store.GetWatermark(t.Context())
		require.NoError(t, err)
		require.Equal(t, []state.JobID{tick}, mark.UnreadableGates)
		time.Sleep(time.Minute)
		s.whole(10 * time.Second)

		_, err = s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Delete(s.store.GateKey(tick))}})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		mark, err = s.store.GetWatermark(t.Context())
		require.NoError(t, err)
		require.Empty(t, mark.UnreadableGates)
		res, err := s.claim(time.Second)
		require.NoError(t, err)
		require.Equal(t, state.Claimed, res.Status)
	})
}

// TestTermThatEndsInTheTakeover ends a term that has not begun to plan: that is no
// trouble. One that cannot is.
func TestTermThatEndsInTheTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.behind = make(chan struct{})
		end := s.lead("a")
		synctest.Wait()
		end()
		require.NoError(t, s.planner.Trouble())
		key := store.DefaultPrefix + "leader/b"
		require.Error(t, s.planner.Run(t.Context(), state.Term{Key: key, Number: s.put(key, "b")}))
		require.ErrorContains(t, s.planner.Trouble(), "led in vain")
	})
}

// TestGaugesEndWithTheirTerm: a node that does not lead any more tells nothing of what
// it saw when it did.
func TestGaugesEndWithTheirTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		end := s.lead("a")
		s.put(s.store.GateKey(tick), "rubbish")
		time.Sleep(2 * time.Minute)
		require.InDelta(t, 1, s.gauge("leaderd_planner_unreadable_gates"), 0)
		end()
		for _, name := range []string{"unreadable_gates", "clock_skew_seconds", "sessions", "open_entries", "horizon_seconds", "watermark_lag_seconds"} {
			require.Zero(t, s.gauge("leaderd_planner_"+name), name)
		}
	})
}

func (s *site) gauge(name string) float64 {
	all, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(s.t, "there is no metric "+name)
	return 0
}

// TestDeadlineNamesItsCause: what kept a run beyond its start deadline is in its record.
func TestDeadlineNamesItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		spec := tickSpec()
		spec.StartDeadline = durationpb.New(3 * time.Second)
		put, err := s.store.PutJob(t.Context(), store.PutJob{ID: tick, AllowMissing: true, Now: time.Now(), Spec: spec})
		require.NoError(t, err)
		s.job = put.Entry.Job
		s.catalog.Reset(func(yield func(planner.Stored) bool) { yield(planner.Stored{Job: s.job}) })
		defer s.lead("a")()
		time.Sleep(time.Minute)
		got, err := s.store.GetRun(t.Context(), tick, state.SlotRunID(time.Now().Add(-30*time.Second)))
		require.NoError(t, err)
		require.Equal(t, state.ReasonDeadline, got.Record.Reason)
		require.Equal(t, "no executor attended the leader", got.Record.Detail)
	})
}

// TestManyChangesWhileNobodyLeads edits a job more often than one page of its versions
// holds: the slots of each get their verdicts.
func TestManyChangesWhileNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		end := s.lead("a")
		time.Sleep(10 * time.Second)
		end()
		for n := range 45 {
			time.Sleep(2 * time.Second)
			spec := tickSpec()
			spec.Description = fmt.Sprint("edit ", n)
			put, err := s.store.PutJob(t.Context(), store.PutJob{ID: tick, Now: time.Now(), Spec: spec})
			require.NoError(t, err)
			s.catalog.Set(planner.Stored{Job: put.Entry.Job})
		}
		defer s.lead("b")()
		time.Sleep(30 * time.Second)
		s.whole(20 * time.Second)
	})
}
