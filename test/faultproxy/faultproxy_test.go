package faultproxy_test

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/test/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends back all it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(t, err)
}

func receive(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, n)
	_, err := io.ReadFull(c, buf)
	require.NoError(t, err)
	return string(buf)
}

func silent(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func broken(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	var err error
	for err == nil { // what was on its way before may still arrive
		_, err = c.Read(make([]byte, 1))
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "connection still open")
}

// refused is broken for a new connection, which may end before its dial returns.
func refused(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	broken(t, c)
}

func TestForwardsBothWaysAndTheEnd(t *testing.T) {
	p := faultproxy.Start(t, "http://"+echo(t))
	c := dial(t, p)
	send(t, c, "hello")
	require.Equal(t, "hello", receive(t, c, 5))
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, p.Accepted())
}

func TestCutBreaksConnectionsUntilHealed(t *testing.T) {
	p := faultproxy.Start(t, echo(t))
	c := dial(t, p)
	send(t, c, "a")
	receive(t, c, 1)
	p.Cut()
	broken(t, c)
	refused(t, p)
	p.Heal()
	c = dial(t, p)
	send(t, c, "b")
	require.Equal(t, "b", receive(t, c, 1))
}

func TestResetBreaksOnce(t *testing.T) {
	p := faultproxy.Start(t, echo(t))
	c := dial(t, p)
	send(t, c, "a")
	receive(t, c, 1)
	p.Reset()
	broken(t, c)
	c = dial(t, p)
	send(t, c, "b")
	require.Equal(t, "b", receive(t, c, 1))
}

func TestBlackholeHoldsEachDirectionAndHealLosesNothing(t *testing.T) {
	for name, dir := range map[string]faultproxy.Direction{
		"up": faultproxy.Up, "down": faultproxy.Down, "both": faultproxy.Both,
	} {
		t.Run(name, func(t *testing.T) {
			p := faultproxy.Start(t, echo(t))
			c := dial(t, p)
			send(t, c, "a")
			receive(t, c, 1)
			p.Blackhole(dir)
			send(t, c, "held")
			silent(t, c)
			fresh := dial(t, p)
			send(t, fresh, "x")
			silent(t, fresh)
			p.Heal()
			require.Equal(t, "held", receive(t, c, 4))
			require.Equal(t, "x", receive(t, fresh, 1))
		})
	}
}

func TestDelayKeepsOrder(t *testing.T) {
	p := faultproxy.Start(t, echo(t))
	c := dial(t, p)
	p.Delay(faultproxy.Up, time.Hour)
	send(t, c, "1")
	silent(t, c)
	send(t, c, "2")
	p.Delay(faultproxy.Both, 20*time.Millisecond)
	send(t, c, "3")
	require.Equal(t, "123", receive(t, c, 3))
}

func TestTargetAwayIsAReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	refused(t, faultproxy.Start(t, l.Addr().String()))
}

func TestCloseEndsHeldConnections(t *testing.T) {
	p := faultproxy.Start(t, echo(t))
	c := dial(t, p)
	p.Blackhole(faultproxy.Both)
	send(t, c, "held")
	p.Close()
	broken(t, c)
	p.Close()
}

func TestThrottleSlowsOneWayDown(t *testing.T) {
	p := faultproxy.Start(t, echo(t))
	c := dial(t, p)
	p.Throttle(faultproxy.Up, 1000)
	begun := time.Now()
	send(t, c, strings.Repeat("x", 500))
	receive(t, c, 500)
	require.GreaterOrEqual(t, time.Since(begun), 400*time.Millisecond)
	send(t, c, strings.Repeat("y", 1<<20)) // for a quarter of an hour
	p.Throttle(faultproxy.Up, 0)
	require.Len(t, receive(t, c, 1<<20), 1<<20)
}

func TestThrottledConnectionsCanBeReset(t *testing.T) {
	p := faultproxy.Start(t, echo(t))
	c := dial(t, p)
	p.Throttle(faultproxy.Both, 1)
	send(t, c, strings.Repeat("x", 100))
	p.Reset()
	broken(t, c)
}
