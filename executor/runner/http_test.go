package runner_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

func call(url string) runner.Task {
	t := shell("")
	t.Command, t.HTTP = nil, &state.HTTP{URL: url}
	return t
}

// request makes the request with a client of its own.
func request(t testing.TB, task runner.Task) (runner.Outcome, string) {
	t.Helper()
	r := runner.New(runner.Config{Version: "1.2.3", MaxResponseBytes: 1000})
	defer r.Close()
	out := newScreen()
	o := r.Run(t.Context(), task, out)
	require.Equal(t, o.State == state.StateSucceeded, o.Error == "", "%+v", o)
	return o, out.String()
}

func serve(t testing.TB, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func TestRequestTellsWhoItIs(t *testing.T) {
	var got *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
	})
	task := call(url + "/path?q=1")
	task.Slot = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	task.Attempt, task.Shard, task.Shards, task.Token, task.Step = 3, 1, 2, 77, state.StepShard
	task.HTTP.Body = []byte("payload")
	task.HTTP.Header = map[string]string{
		"Content-Type": "text/x", "host": "other.example", "leaderd-token": "forged", "Idempotency-Key": "forged",
	}
	o, out := request(t, task)
	require.Equal(t, state.StateSucceeded, o.State)
	require.True(t, o.HasCode)
	require.Equal(t, 201, o.ExitCode)
	require.Equal(t, "made", out)
	require.Equal(t, "POST /path?q=1", got.Method+" "+got.RequestURI)
	require.Equal(t, "payload", string(body))
	require.Equal(t, "other.example", got.Host)
	for name, value := range map[string]string{
		"Leaderd-Namespace": "ns", "Leaderd-Job": "job", "Leaderd-Run": "20261130T020000Z",
		"Leaderd-Slot": "2026-11-30T02:00:00Z", "Leaderd-Attempt": "3", "Leaderd-Shard": "1", "Leaderd-Shards": "2",
		"Leaderd-Step": "shard", "Leaderd-Token": "77", "Idempotency-Key": "ns/job/20261130T020000Z/1", "User-Agent": "leaderd/1.2.3", "Content-Type": "text/x",
	} {
		require.Equal(t, []string{value}, got.Header[name], name)
	}
}

func TestRequestStatus(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.Header().Set("Location", "/200")
		w.WriteHeader(code)
	})
	for _, c := range []struct {
		path     string
		method   string
		expected []int
		ok       bool
	}{
		{"/200", "", nil, true},
		{"/299", "GET", nil, true},
		{"/404", "", nil, false},
		{"/302", "GET", nil, false}, // not followed
		{"/307", "POST", nil, false},
		{"/302", "GET", []int{302}, true},
		{"/404", "HEAD", []int{200, 404}, true},
		{"/200", "", []int{404}, false},
	} {
		task := call(url + c.path)
		task.HTTP.Method, task.HTTP.ExpectedCodes = c.method, c.expected
		o, _ := request(t, task)
		require.Equal(t, c.ok, o.State == state.StateSucceeded, "%+v: %+v", c, o)
		require.True(t, o.HasCode)
		require.Equal(t, c.path, fmt.Sprintf("/%d", o.ExitCode))
		if !c.ok {
			require.Equal(t, state.StateFailed, o.State)
			require.Contains(t, o.Error, "unexpected status "+c.path[1:])
		}
	}
}

func TestRequestErrorsHaveAKind(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = nil
	defer secure.Close()
	hangUp := serve(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	half := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	for _, c := range []struct{ url, text string }{
		{"http://" + closed.Addr().String() + "/?secret=1", "refused: dial tcp 127.0.0.1"},
		{strings.Replace(plain, "http", "https", 1), "tls: "},
		{secure.URL, "tls: "},
		{hangUp, "closed: "},
		{half, "closed: reading the response: unexpected EOF"},
		{"ftp://host/", `"ftp://host/" is no http or https URL`},
		{"http://", "is no http or https URL"},
		{"://", "request: parse"},
	} {
		o, _ := request(t, call(c.url))
		require.Equal(t, state.StateFailed, o.State)
		require.Contains(t, o.Error, c.text)
		require.NotContains(t, o.Error, "secret")
	}
	bad := call(plain)
	bad.HTTP.Header = map[string]string{"no good": "x"}
	o, _ := request(t, bad)
	require.Contains(t, o.Error, "invalid header field name")
}

// hang serves nothing until its clients are gone, and signals each request.
func hang(t testing.TB) (url string, arrived <-chan struct{}) {
	in := make(chan struct{}, 10)
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		in <- struct{}{}
		<-r.Context().Done()
	}), in
}

func TestRequestIsStopped(t *testing.T) {
	url, arrived := hang(t)
	task := call(url)
	task.Timeout = 50 * time.Millisecond
	o, _ := request(t, task)
	require.Equal(t, state.StateTimedOut, o.State)
	require.Equal(t, "timed out after 50ms", o.Error)
	<-arrived

	for cause, want := range map[error]state.RunState{
		runner.ErrCancelled: state.StateCancelled,
		runner.ErrDrained:   state.StateInterrupted,
		runner.ErrFenced:    state.StateInterrupted,
	} {
		r := runner.New(runner.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan runner.Outcome, 1)
		go func() { done <- r.Run(ctx, call(url), nil) }()
		<-arrived
		cancel(cause)
		o := <-done
		require.Equal(t, want, o.State)
		require.Equal(t, cause.Error(), o.Error)
		r.Close()
	}
}

func TestResponseIsCapped(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // never ends by itself
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	o, out := request(t, call(url))
	require.Equal(t, state.StateSucceeded, o.State)
	require.Len(t, out, 1000)
}

// One attempt is one request, even where net/http would send it again by itself:
// on a kept connection that breaks before the answer.
func TestRequestIsSentOnce(t *testing.T) {
	var posts atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/break" {
			posts.Add(1)
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = c.Close()
			}
		}
	})
	r := runner.New(runner.Config{})
	defer r.Close()
	for _, body := range []string{"", "body"} {
		posts.Store(0)
		require.Equal(t, state.StateSucceeded, r.Run(t.Context(), call(url+"/ok"), nil).State)
		task := call(url + "/break")
		task.HTTP.Body = []byte(body)
		require.Equal(t, state.StateFailed, r.Run(t.Context(), task, nil).State)
		require.Equal(t, int32(1), posts.Load())
	}
}

func TestCrashInARequest(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "x") })
	r := runner.New(runner.Config{})
	defer r.Close()
	first := true
	var stack strings.Builder
	out := writerFunc(func(p []byte) (int, error) {
		if first {
			first = false
			panic("boom")
		}
		return stack.Write(p)
	})
	o := r.Run(t.Context(), call(url), out)
	require.Equal(t, state.StateFailed, o.State)
	require.Equal(t, "panic: boom", o.Error)
	require.Contains(t, stack.String(), "TestCrashInARequest")
	require.LessOrEqual(t, stack.Len(), 8<<10)

	o = r.Run(t.Context(), call(url), writerFunc(func([]byte) (int, error) { runtime.Goexit(); return 0, nil }))
	require.Equal(t, state.StateFailed, o.State)
	require.Contains(t, o.Error, "Goexit")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestNoOp(t *testing.T) {
	task := shell("")
	task.Command, task.NoOp = nil, true
	o, out := run(t, task)
	require.Equal(t, state.StateSucceeded, o.State)
	require.False(t, o.HasCode)
	require.Empty(t, out)
}

func TestConfigNamesEveryViolation(t *testing.T) {
	err := runner.Config{Linger: -1, FenceGrace: -1, MaxResponseBytes: -1, Environment: []string{"A", "B=C"}}.Validate()
	for _, field := range []string{"Linger", "FenceGrace", "MaxResponseBytes", "Environment[1]"} {
		require.ErrorContains(t, err, field)
	}
	require.NoError(t, runner.Config{}.Validate())
}
