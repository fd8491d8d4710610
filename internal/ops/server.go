package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// stopLimit bounds how long answers under way may take once the server stops.
const stopLimit = 3 * time.Second

// Config shapes a Server.
type Config struct {
	// Listen is the host:port to listen on. Required.
	Listen string
	// Pprof serves /debug/pprof too. Default: off.
	Pprof bool
	// Health is asked for /readyz. Required.
	Health *Health
	// Metrics is what /metrics serves. Default: no /metrics.
	Metrics prometheus.Gatherer
	// Logger gets what the server has to say. Default: none.
	Logger hclog.Logger
}

// Server answers /livez, /readyz, /metrics and, if asked to, /debug/pprof.
type Server struct {
	cfg   Config
	ready chan struct{}
	addr  net.Addr
}

// New makes a Server. It starts nothing.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Server{cfg: cfg, ready: make(chan struct{})}
}

// Run serves until ctx is done and returns nil then, within some seconds. It must
// be called once.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("ops: %w", err)
	}
	s.addr = l.Addr()
	close(s.ready)

	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          s.cfg.Logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()

	select {
	case err := <-served:
		return fmt.Errorf("ops: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		// Somebody still reads a profile: cut the connection.
		err = srv.Close()
		s.cfg.Logger.Debug("ops connections closed by force", "err", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("ops: %w", err)
	}
	return nil
}

// Ready is closed when the server listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where it listens. Only after Ready.
func (s *Server) Addr() net.Addr { return s.addr }

// Handler is what the server answers with.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.cfg.Health.Run(time.Now()))
	})
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, // one broken collector hides no other
		}))
	}
	if s.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// answer lists the results of checks, one a line, under a verdict: 200 where all
// pass, 503 otherwise.
func answer(w http.ResponseWriter, checks []Result) {
	code, verdict := http.StatusOK, "ok"
	var lines strings.Builder
	for _, r := range checks {
		if r.Err != nil {
			code, verdict = http.StatusServiceUnavailable, "failed"
			fmt.Fprintf(&lines, "[-] %s: %v\n", r.Name, r.Err)
		} else {
			fmt.Fprintf(&lines, "[+] %s\n", r.Name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// An error means that the asker is gone.
	_, _ = fmt.Fprintf(w, "%s%s\n", lines.String(), verdict)
}
