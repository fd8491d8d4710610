package ops

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestReadyIsLiveAndMore(t *testing.T) {
	h := NewHealth()
	s := New(Config{Health: h})
	code, body := get(t, s, "/readyz")
	require.Equal(t, 200, code)
	require.Equal(t, "ok\n", body)

	h.Add(Check{Name: "planner", Func: func(time.Time) error { return errors.New("no progress for 11s") }})
	h.Add(Check{Name: "watch", Func: func(time.Time) error { return nil }})
	code, body = get(t, s, "/readyz")
	require.Equal(t, 503, code)
	require.Equal(t, "[-] planner: no progress for 11s\n[+] watch\nfailed\n", body)
	code, body = get(t, s, "/livez")
	require.Equal(t, 200, code, "a restart would not help the planner")
	require.Equal(t, "ok\n", body)
}

func TestHealthReplacesByName(t *testing.T) {
	h := NewHealth()
	removeOld := h.Add(Check{Name: "a", Func: func(time.Time) error { return errors.New("old") }})
	h.Add(Check{Name: "a", Func: func(time.Time) error { return errors.New("new") }})
	removeOld() // of a former term: must not take the new one away
	_, body := get(t, New(Config{Health: h}), "/readyz")
	require.Equal(t, "[-] a: new\nfailed\n", body)
}

func TestHealthSurvivesAPanickingCheck(t *testing.T) {
	h := NewHealth()
	h.Add(Check{Name: "a", Func: func(time.Time) error { panic("boom") }})
	code, body := get(t, New(Config{Health: h}), "/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "[-] a: the check panicked: boom")
}

func TestHealthMetrics(t *testing.T) {
	h := NewHealth()
	h.Add(Check{Name: "loop", Func: func(time.Time) error { return nil }})
	h.Add(Check{Name: "etcd", Func: func(time.Time) error { return errors.New("down") }})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(h)
	families, err := reg.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	_, body := get(t, New(Config{Health: h, Metrics: reg}), "/metrics")
	require.Contains(t, body, `leaderd_ops_check_ok{check="etcd"} 0`)
	require.Contains(t, body, `leaderd_ops_check_ok{check="loop"} 1`)
}

func TestPprofIsOffByDefault(t *testing.T) {
	code, _ := get(t, New(Config{Health: NewHealth()}), "/debug/pprof/")
	require.Equal(t, 404, code)
	code, _ = get(t, New(Config{Health: NewHealth(), Pprof: true}), "/debug/pprof/")
	require.Equal(t, 200, code)
}

func TestServerRuns(t *testing.T) {
	s := New(Config{Listen: "127.0.0.1:0", Health: NewHealth()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + s.Addr().String() + "/livez")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "ok\n", string(body))
	cancel()
	require.NoError(t, <-ended)
	client.CloseIdleConnections()
}

func TestServerCannotListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	err = New(Config{Listen: l.Addr().String(), Health: NewHealth()}).Run(t.Context())
	require.ErrorContains(t, err, "address already in use")
}
