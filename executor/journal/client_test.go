package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/executor"
	"github.com/leaderd/leaderd/executor/journal"
	server "github.com/leaderd/leaderd/internal/journal"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

var (
	job   = state.JobID{Namespace: "default", Name: "job"}
	owner = state.Owner{Node: "executor-1", Revision: 5}
)

// hanging is a store that never answers a claim while its context lasts; asked
// counts them.
func hanging(asked *atomic.Int32) *instant {
	return &instant{claim: func(ctx context.Context, _ state.Claim) (state.ClaimResult, error) {
		asked.Add(1)
		<-ctx.Done()
		return state.ClaimResult{}, fmt.Errorf("%w: %w", kv.ErrUnknown, ctx.Err())
	}}
}

func TestAnswersAreTheStores(t *testing.T) {
	for status := state.Claimed; status <= state.ClaimDisowned; status++ {
		c := newControl(t, &instant{claim: func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			return state.ClaimResult{Status: status, Live: &c.Live}, nil
		}}, server.Config{})
		res, err := newClient(t, journal.Config{}, c).Claim(t.Context(), claimOf(job, 3, owner, 1))
		require.NoError(t, err)
		require.Equal(t, status, res.Status)
	}
	client := newClient(t, journal.Config{}, newControl(t, &instant{}, server.Config{}))
	claim := claimOf(job, 3, owner, 1)
	res, err := client.Claim(t.Context(), claim)
	require.NoError(t, err)
	want := &claim.Live
	want.State, want.Token = state.StateRunning, 42
	require.Equal(t, want, res.Live)
	cp, err := client.Checkpoint(t.Context(), state.Checkpoint{Live: *res.Live, Data: []byte("abc"), Number: 1})
	require.NoError(t, err)
	require.Equal(t, state.CheckpointResult{Status: state.TokenStored, Revision: 3}, cp)
	last, err := client.GetCheckpoint(t.Context(), state.CheckpointRef{Job: job, Run: want.Run})
	require.NoError(t, err)
	require.Equal(t, state.SavedCheckpoint{Data: []byte("half way"), Number: 4, Revision: 9}, last)
	token, err := client.Finish(t.Context(), finishOf(*res.Live))
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, token)
}

// Errors are of the same classes as those of a store in the process.
func TestErrorsKeepTheirClass(t *testing.T) {
	for _, test := range []struct {
		err  error
		is   error
		code codes.Code
	}{
		{fmt.Errorf("x: %w", kv.ErrNoSpace), kv.ErrNoSpace, codes.ResourceExhausted},
		{fmt.Errorf("x: %w", kv.ErrInvalid), kv.ErrInvalid, codes.InvalidArgument},
		{fmt.Errorf("x: %w", kv.ErrPermission), kv.ErrPermission, codes.PermissionDenied},
		{fmt.Errorf("x: %w", store.ErrContended), nil, codes.Aborted},
		{errors.New("who knows"), nil, codes.Internal},
	} {
		c := newControl(t, &instant{claim: func(context.Context, state.Claim) (state.ClaimResult, error) {
			return state.ClaimResult{}, test.err
		}}, server.Config{})
		_, err := newClient(t, journal.Config{}, c).Claim(t.Context(), claimOf(job, 3, owner, 1))
		require.Error(t, err)
		require.Equal(t, test.code, status.Code(err))
		require.NotErrorIs(t, err, kv.ErrUnknown)
		require.NotContains(t, err.Error(), "who knows")
		require.Contains(t, err.Error(), "claim default/job")
		if test.is != nil {
			require.ErrorIs(t, err, test.is)
		}
	}
}

// A panic of the store at one entry is an error of that one.
func TestAPanicHarmsOneEntry(t *testing.T) {
	c := newControl(t, &instant{claim: func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
		if c.Live.Shard == 1 {
			panic("unlucky")
		}
		return state.ClaimResult{Status: state.ClaimLive}, nil
	}}, server.Config{})
	client := newClient(t, journal.Config{}, c)
	var work sync.WaitGroup
	for i := range 100 {
		work.Go(func() {
			claim := claimOf(job, 3, owner, i)
			claim.Live.Shards, claim.Live.Shard = 2, i%2
			_, err := client.Claim(t.Context(), claim)
			if i%2 == 0 {
				require.NoError(t, err)
			} else {
				require.Equal(t, codes.Internal, status.Code(err))
			}
		})
	}
	work.Wait()
}

// A node that says nothing, and one that says it cannot, are left for the next.
func TestUselessNodesAreLeft(t *testing.T) {
	var asked atomic.Int32
	unavailable := &instant{claim: func(context.Context, state.Claim) (state.ClaimResult, error) {
		asked.Add(1)
		return state.ClaimResult{}, store.ErrClosed
	}}
	for name, useless := range map[string]*instant{"hangs": hanging(&asked), "unavailable": unavailable} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			bad := newControl(t, useless, server.Config{Linger: 100 * time.Millisecond})
			good := newControl(t, &instant{}, server.Config{})
			cfg := journal.Config{Patience: 100 * time.Millisecond}
			// The first node is left to chance: some begin at the bad one.
			for i := 0; i < 64 && asked.Load() == 0; i++ {
				res, err := newClient(t, cfg, bad, good).Claim(t.Context(), claimOf(job, 3, owner, 1))
				require.NoError(t, err)
				require.Equal(t, state.Claimed, res.Status)
			}
			require.NotZero(t, asked.Load())
		})
	}
}

func TestUnknownOutcome(t *testing.T) {
	var asked atomic.Int32
	c := newControl(t, hanging(&asked), server.Config{Linger: 100 * time.Millisecond})
	client := newClient(t, journal.Config{}, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	answer := make(chan error, 1)
	go func() {
		_, err := client.Claim(ctx, claimOf(job, 3, owner, 1))
		answer <- err
	}()
	require.Eventually(t, func() bool { return asked.Load() > 0 }, time.Minute, time.Millisecond)
	cancel(why)
	err := <-answer
	require.ErrorIs(t, err, kv.ErrUnknown)
	require.ErrorIs(t, err, why)

	// Where it was never sent, it is known.
	_, err = client.Claim(ctx, claimOf(job, 3, owner, 1))
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, kv.ErrUnknown)

	alone := newClient(t, journal.Config{})
	ctx, cancel2 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel2()
	_, err = alone.Claim(ctx, claimOf(job, 3, owner, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, kv.ErrUnknown)
	_, err = alone.Register(ctx, state.Node{Name: "a"}, time.Second)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTheEndOfRunEndsCallers(t *testing.T) {
	var asked atomic.Int32
	c := newControl(t, hanging(&asked), server.Config{Linger: 100 * time.Millisecond})
	client, err := journal.New(journal.Static(c.address), dial, journal.Config{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- client.Run(ctx) }()
	answer := make(chan error, 1)
	go func() {
		_, err := client.Claim(t.Context(), claimOf(job, 3, owner, 1))
		answer <- err
	}()
	require.Eventually(t, func() bool { return asked.Load() > 0 }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ran)
	require.ErrorIs(t, <-answer, kv.ErrUnknown)
	_, err = client.Claim(t.Context(), claimOf(job, 3, owner, 1))
	require.ErrorIs(t, err, journal.ErrClosed)
	require.NotErrorIs(t, err, kv.ErrUnknown)
	_, err = client.Register(t.Context(), state.Node{Name: "a"}, time.Second)
	require.ErrorIs(t, err, journal.ErrClosed)
	_, err = client.KeepAlive(t.Context(), state.Registration{TTL: time.Second})
	require.ErrorIs(t, err, journal.ErrClosed)
}

// An entry that cannot be sent spoils no other.
func TestEntriesThatCannotBeSent(t *testing.T) {
	client := newClient(t, journal.Config{}, newControl(t, &instant{}, server.Config{}))
	var work sync.WaitGroup
	for i := range 200 {
		work.Go(func() {
			claim := claimOf(job, 3, owner, i)
			switch i % 50 {
			case 7:
				claim.Live.Owner.Node = "\xff\xfe"
				_, err := client.Claim(t.Context(), claim)
				require.ErrorIs(t, err, journal.ErrEntry)
			case 8:
				cp := state.Checkpoint{Live: claim.Live, Data: make([]byte, journal.MaxMessageBytes)}
				_, err := client.Checkpoint(t.Context(), cp)
				require.ErrorIs(t, err, journal.ErrEntry)
			case 9:
				cp := state.Checkpoint{Live: claim.Live, Data: make([]byte, state.MaxCheckpoint+1)}
				cp.Live.Token = 3
				_, err := client.Checkpoint(t.Context(), cp)
				require.ErrorIs(t, err, kv.ErrInvalid)
				require.ErrorContains(t, err, "data: has 262145 bytes; at most 262144 are allowed")
			default:
				res, err := client.Claim(t.Context(), claim)
				require.NoError(t, err)
				require.Equal(t, state.Claimed, res.Status)
			}
		})
	}
	work.Wait()
}

// Messages are cut by bytes too.
func TestManyGreatEntries(t *testing.T) {
	client := newClient(t, journal.Config{}, newControl(t, &instant{}, server.Config{}))
	var work sync.WaitGroup
	for i := range 64 {
		work.Go(func() {
			cp := state.Checkpoint{Live: claimOf(job, 3, owner, i).Live, Data: make([]byte, state.MaxCheckpoint-i), Number: 1}
			cp.Live.Token = 3
			res, err := client.Checkpoint(t.Context(), cp)
			require.NoError(t, err)
			require.EqualValues(t, state.MaxCheckpoint-i, res.Revision)

			live := claimOf(job, 3, owner, i).Live
			live.Token = 3
			for range state.MaxAttemptRecords {
				live.Attempts = append(live.Attempts, state.Attempt{Error: strings.Repeat("e", state.MaxErrorBytes)})
			}
			f := finishOf(live)
			f.Tail = make([]byte, state.MaxTailBytes)
			token, err := client.Finish(t.Context(), f)
			require.NoError(t, err)
			require.Equal(t, state.TokenStored, token)
		})
	}
	work.Wait()
}

func TestKeepAlive(t *testing.T) {
	reg := state.Registration{Owner: owner, Lease: 6, TTL: 2 * time.Second}
	var slow atomic.Int32
	hangs := newControl(t, &instant{keepAlive: func(ctx context.Context, _ state.Registration) (time.Duration, error) {
		slow.Add(1)
		<-ctx.Done()
		return 0, ctx.Err()
	}}, server.Config{})
	good := newControl(t, &instant{keepAlive: func(_ context.Context, got state.Registration) (time.Duration, error) {
		require.Equal(t, state.Registration{Owner: owner, Lease: 6}, got)
		return 7 * time.Second, nil
	}}, server.Config{})
	for i := 0; i < 64 && slow.Load() == 0; i++ {
		ttl, err := newClient(t, journal.Config{}, hangs, good).KeepAlive(t.Context(), reg)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, ttl)
	}
	require.NotZero(t, slow.Load())

	gone := newControl(t, &instant{keepAlive: func(context.Context, state.Registration) (time.Duration, error) {
		return 0, state.ErrNotRegistered
	}}, server.Config{})
	_, err := newClient(t, journal.Config{}, gone).KeepAlive(t.Context(), reg)
	require.ErrorIs(t, err, state.ErrNotRegistered)

	down := newControl(t, &instant{}, server.Config{})
	down.kill()
	_, err = newClient(t, journal.Config{}, down, gone).KeepAlive(t.Context(), reg)
	require.ErrorIs(t, err, state.ErrNotRegistered)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = newClient(t, journal.Config{}, down).KeepAlive(ctx, reg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, state.ErrNotRegistered)
}

func TestFollowLeader(t *testing.T) {
	a, b := newControl(t, &instant{}, server.Config{}), newControl(t, &instant{}, server.Config{})
	set := func(l server.Leader) {
		a.leaders.set(l)
		b.leaders.set(l)
	}
	set(server.Leader{Name: "n1", Address: "n1:7400", Term: 5})
	client := newClient(t, journal.Config{}, a, b)
	wait := func(want executor.Leader) {
		t.Helper()
		for {
			now, changed := client.Follow()
			if now == want {
				return
			}
			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatalf("still %+v", now)
			}
		}
	}
	wait(executor.Leader{Name: "n1", Address: "n1:7400", Term: 5})
	set(server.Leader{})
	wait(executor.Leader{})
	set(server.Leader{Name: "n2", Address: "n2:7400", Term: 9})
	wait(executor.Leader{Name: "n2", Address: "n2:7400", Term: 9})

	// One node dies, the other one is behind, and then hears of the newest.
	b.leaders.set(server.Leader{Name: "n1", Address: "n1:7400", Term: 5})
	a.leave()
	b.leaders.set(server.Leader{Name: "n3", Address: "n3:7400", Term: 11})
	wait(executor.Leader{Name: "n3", Address: "n3:7400", Term: 11})
	b.leaders.set(server.Leader{Name: "n1", Address: "n1:7400", Term: 5})
	b.leaders.set(server.Leader{Name: "n4", Address: "n4:7400", Term: 12})
	wait(executor.Leader{Name: "n4", Address: "n4:7400", Term: 12})
}

func TestConfig(t *testing.T) {
	_, err := journal.New(journal.Static(), dial, journal.Config{Patience: 1, TryTimeout: time.Hour, MaxRetryWait: -1})
	require.ErrorContains(t, err, "patience: 1ns is outside 100ms–1m")
	require.ErrorContains(t, err, "try_timeout")
	require.ErrorContains(t, err, "max_retry_wait")
}
