package etcdkv_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/etcdkv/inproc"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

var put = kv.Txn{Then: []kv.Op{kv.Put("a", nil, 0)}}

// connect makes a store over a client of its own.
func connect(t *testing.T, change func(*clientv3.Config), endpoints ...string) *etcdkv.KV {
	t.Helper()
	cfg := etcdkv.ClientConfig(endpoints...)
	cfg.Logger = zap.NewNop()
	if change != nil {
		change(&cfg)
	}
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // reports only that its context ended
	return etcdkv.New(c, etcdkv.Options{})
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireUnavailable makes every kind of request.
func requireUnavailable(t *testing.T, s kv.KV) {
	t.Helper()
	ctx := deadline(t, time.Minute)
	_, err := s.Txn(ctx, put)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	_, err = s.Range(ctx, "a", "", kv.RangeOptions{})
	require.ErrorIs(t, err, kv.ErrUnavailable)
	_, err = s.Watch(ctx, "a", "", 0)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	_, _, err = s.Grant(ctx, time.Second)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.NoError(t, ctx.Err())
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	requireUnavailable(t, connect(t, nil, addr))
}

func TestNobodyAnswers(t *testing.T) {
	// Connections are taken and never served.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s := connect(t, nil, l.Addr().String())
	ctx := deadline(t, 50*time.Millisecond)
	_, err = s.Txn(ctx, put)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Watch(ctx, "a", "", 0)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestMembersWithoutALeader(t *testing.T) {
	c := start(t, etcdtest.WithMembers(3))
	s := connect(t, nil, c.Endpoints()[0])
	_, err := s.Txn(deadline(t, time.Minute), put)
	require.NoError(t, err)
	w, err := s.Watch(t.Context(), "a", "", 0)
	require.NoError(t, err)
	defer w.Close()

	c.Kill(1)
	c.Kill(2)
	_, err = w.Next(deadline(t, time.Minute))
	require.ErrorIs(t, err, kv.ErrUnavailable, "the watch ends")
	requireUnavailable(t, s)
	_, err = inproc.New(c.Etcd(0).Server, c.Client()).Txn(t.Context(), put)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	r, err := s.Range(deadline(t, time.Minute), "a", "", kv.RangeOptions{Serializable: true})
	require.NoError(t, err, "a stale read needs no leader")
	require.Len(t, r.KVs, 1)

	c.RestartAll()
	require.Eventually(t, func() bool {
		_, err := s.Txn(deadline(t, time.Minute), put)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// proxy stands between client and server and drops the server's answers, from a
// moment on.
type proxy struct {
	l      net.Listener
	mu     sync.Mutex
	mute   bool
	conns  []net.Conn
	serves sync.WaitGroup
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l}
	p.serves.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", strings.TrimPrefix(server, "http://"))
			if err != nil {
				_ = down.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, up, down)
			p.mu.Unlock()
			p.serves.Go(func() { _, _ = io.Copy(up, down) }) // ends with the connections
			p.serves.Go(func() { p.answers(down, up) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.serves.Wait()
	})
	return p
}

func (p *proxy) answers(down, up net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		mute := p.mute
		p.mu.Unlock()
		if mute {
			continue
		}
		if _, err := down.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) setMute(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close() // some are closed already
	}
	p.conns = nil
}

func TestOutcomeUnknown(t *testing.T) {
	c := start(t)
	direct := etcdkv.New(c.Client(), etcdkv.Options{})
	p := newProxy(t, c.Endpoints()[0])
	s := connect(t, nil, p.l.Addr().String())
	applied := func() int64 {
		r, err := direct.Range(t.Context(), "a", "", kv.RangeOptions{})
		require.NoError(t, err)
		if len(r.KVs) == 0 {
			return 0
		}
		return r.KVs[0].Version
	}
	_, err := s.Txn(t.Context(), put)
	require.NoError(t, err)

	// Applied, and the answer never comes.
	p.setMute(true)
	_, err = s.Txn(deadline(t, 300*time.Millisecond), put)
	require.ErrorIs(t, err, kv.ErrUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, int64(2), applied(), "once, not more")
	_, err = s.Range(deadline(t, 50*time.Millisecond), "a", "", kv.RangeOptions{})
	require.ErrorIs(t, err, kv.ErrUnavailable, "a read leaves nothing unknown")

	// Applied, and then the connection breaks.
	w, err := direct.Watch(t.Context(), "a", "", 0)
	require.NoError(t, err)
	defer w.Close()
	got := make(chan error, 1)
	go func() {
		_, err := s.Txn(t.Context(), put)
		got <- err
	}()
	_, err = w.Next(deadline(t, time.Minute))
	require.NoError(t, err)
	p.cut()
	require.ErrorIs(t, <-got, kv.ErrUnknown)
	require.Equal(t, int64(3), applied(), "once, not more")

	p.setMute(false)
	require.Eventually(t, func() bool {
		_, err := s.Range(deadline(t, time.Minute), "a", "", kv.RangeOptions{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestServerGoesAway(t *testing.T) {
	c := start(t)
	s := etcdkv.New(c.Client(), etcdkv.Options{})
	w, err := s.Watch(t.Context(), "a", "", 0)
	require.NoError(t, err)
	defer w.Close()
	c.Stop(0)
	_, err = w.Next(deadline(t, time.Minute))
	require.ErrorIs(t, err, kv.ErrUnavailable)
	_, err = s.Txn(deadline(t, time.Minute), put)
	require.Error(t, err)
	c.Restart(0)
	require.Eventually(t, func() bool {
		_, err := s.Txn(deadline(t, time.Minute), put)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestNoSpace(t *testing.T) {
	c := start(t, etcdtest.WithQuota(4<<20))
	for name, s := range map[string]kv.KV{
		"grpc":   etcdkv.New(c.Client(), etcdkv.Options{}),
		"inproc": inproc.New(c.Etcd(0).Server, c.Client()),
	} {
		t.Run(name, func(t *testing.T) {
			v := make([]byte, 1<<20)
			var err error
			for i := 0; err == nil; i++ {
				_, err = s.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(fmt.Sprint(name, i), v, 0)}})
			}
			require.ErrorIs(t, err, kv.ErrNoSpace)
			_, _, err = s.Grant(t.Context(), time.Minute)
			require.ErrorIs(t, err, kv.ErrNoSpace)
			_, err = s.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.DeleteRange(name, name+"~")}})
			require.NoError(t, err, "deletes still work")
			_, err = s.Range(t.Context(), name, "", kv.RangeOptions{})
			require.NoError(t, err)
		})
	}
}

func TestPermissions(t *testing.T) {
	c := start(t)
	admin := c.Client()
	ctx := deadline(t, time.Minute)
	for _, err := range []error{
		second(admin.RoleAdd(ctx, "root")), second(admin.UserAdd(ctx, "root", "secret")),
		second(admin.UserGrantRole(ctx, "root", "root")),
		second(admin.RoleAdd(ctx, "ours")), second(admin.UserAdd(ctx, "we", "secret")),
		second(admin.UserGrantRole(ctx, "we", "ours")),
		second(admin.RoleGrantPermission(ctx, "ours", "/ours/", kv.PrefixEnd("/ours/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.AuthEnable(ctx)),
	} {
		require.NoError(t, err)
	}
	us := connect(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "we", "secret" }, c.Endpoints()...)
	_, err := us.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put("/ours/a", nil, 0)}})
	require.NoError(t, err)
	// A compare alone, which goes through the log.
	r, err := us.Txn(ctx, kv.Txn{If: []kv.Compare{{Key: "/ours/a", Target: kv.TargetVersion, Int: 1}}})
	require.NoError(t, err)
	require.True(t, r.Succeeded)
	w, err := us.Watch(ctx, "/ours/", kv.PrefixEnd("/ours/"), 1)
	require.NoError(t, err)
	_, err = w.Next(ctx)
	require.NoError(t, err)
	w.Close()

	nobody := connect(t, nil, c.Endpoints()...)
	for name, s := range map[string]kv.KV{"we": us, "nobody": nobody} {
		_, err := s.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put("/theirs", nil, 0)}})
		require.ErrorIs(t, err, kv.ErrPermission, name)
		_, err = s.Range(ctx, "/theirs", "", kv.RangeOptions{})
		require.ErrorIs(t, err, kv.ErrPermission, name)
		_, err = s.Watch(ctx, "/theirs", "", 0)
		require.ErrorIs(t, err, kv.ErrPermission, name)
	}
	require.ErrorIs(t, us.Compact(ctx, 2), kv.ErrPermission)
	require.NoError(t, nobody.Progress(ctx))
}

func second[T any](_ T, err error) error { return err }
