//go:build unix

package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/leaderd/leaderd/state"
)

const (
	// maxSocketPath is the longest path that every system takes for a socket.
	maxSocketPath = 103
	socketSuffix  = ".sock"
	// socketName is how long a socket's name is, with the slash before it.
	socketName = 1 + 16 + len(socketSuffix)
	// socketGrace is how long requests may take that are under way when their command
	// has ended.
	socketGrace = 500 * time.Millisecond
	// maxReportBytes bounds the body of a progress report.
	maxReportBytes = 4 << 10
)

// PrepareSocketDir makes the directory for commands' sockets, which nobody but this
// user may enter, and removes what an earlier process left there, the payloads and results
// of submitted commands (see Config.ExchangeDir) among it. Where the path is too
// long for sockets it makes one elsewhere instead, which remove removes. No other
// process may use the directory.
func PrepareSocketDir(path string) (dir string, remove func() error, err error) {
	nothing := func() error { return nil }
	if path, err = filepath.Abs(path); err != nil {
		return "", nothing, fmt.Errorf("directory of sockets: %w", err)
	}
	if len(path)+socketName > maxSocketPath {
		dir, err := os.MkdirTemp("", "leaderd-")
		if err == nil && len(dir)+socketName > maxSocketPath {
			err = errors.Join(fmt.Errorf("%s has %d bytes, at most %d are allowed", dir, len(dir), maxSocketPath-socketName), os.Remove(dir))
		}
		if err != nil {
			return "", nothing, fmt.Errorf("directory of sockets: %w", err)
		}
		return dir, func() error { return os.RemoveAll(dir) }, nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", nothing, fmt.Errorf("directory of sockets: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a directory
		return "", nothing, fmt.Errorf("directory of sockets: %w", err)
	}
	left, err := os.ReadDir(path)
	for _, e := range left {
		name := filepath.Join(path, e.Name())
		switch {
		case strings.HasSuffix(name, socketSuffix):
			err = errors.Join(err, os.Remove(name))
		case strings.HasPrefix(e.Name(), exchangePrefix):
			// One that a command made irremovable takes room, and keeps no other from its socket.
			_ = os.RemoveAll(name)
		}
	}
	if err != nil {
		return "", nothing, fmt.Errorf("directory of sockets: %w", err)
	}
	return path, nothing, nil
}

// socket is where a command says how far it has come: HTTP on a unix socket that is
// there as long as the command.
type socket struct {
	keeper Keeper
	server *http.Server
	served chan struct{}

	mu   sync.Mutex
	says state.Directive // what shall follow the attempt
}

// listen makes the socket of t's command, and tells t. It answers nil where there is
// none, and the command can do without.
func (r *Runner) listen(t *Task) (*socket, error) {
	if t.Keeper == nil {
		return nil, nil //nolint:nilnil // it has nothing to say to anybody
	}
	s, err := r.newSocket(t)
	if err != nil && t.Checkpoint != nil {
		return nil, fmt.Errorf("the command relies on a socket for its checkpoints (spec.checkpoint), and there is none: %w", err)
	}
	return s, nil
}

func (r *Runner) newSocket(t *Task) (*socket, error) {
	if r.cfg.SocketDir == "" {
		if r.cfg.NoSocket != nil {
			return nil, r.cfg.NoSocket
		}
		return nil, errors.New("this executor has no directory for sockets")
	}
	var name [8]byte
	if _, err := rand.Read(name[:]); err != nil {
		return nil, err
	}
	path := filepath.Join(r.cfg.SocketDir, hex.EncodeToString(name[:])+socketSuffix)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &socket{keeper: t.Keeper, served: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /checkpoint", s.getCheckpoint)
	mux.HandleFunc("PUT /checkpoint", s.putCheckpoint)
	mux.HandleFunc("PUT /progress", s.putProgress)
	mux.HandleFunc("POST /permanent", s.permanent)
	mux.HandleFunc("POST /snooze", s.after(state.MaxSnooze, func(d time.Duration) { s.says.Snooze = d }))
	mux.HandleFunc("POST /retry-after", s.after(state.MaxRetryAfter, func(d time.Duration) { s.says.RetryAfter = d }))
	s.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: hclog.NewNullLogger().StandardLogger(nil), // what a command sends is its own affair
	}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(l) // ends by close
	}()
	t.socket = path
	return s, nil
}

// close removes the socket. Requests that are under way get a moment to end.
func (s *socket) close() {
	ctx, cancel := context.WithTimeout(context.Background(), socketGrace)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close() // of connections that are cut; there is nobody to tell
	}
	<-s.served
}

func (s *socket) getCheckpoint(w http.ResponseWriter, req *http.Request) {
	last, err := s.keeper.Checkpoint(req.Context())
	switch {
	case err != nil:
		refuse(w, err)
	case last.Number == 0:
		w.Header().Set(checkpointNumber, "0")
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(checkpointNumber, strconv.FormatInt(last.Number, 10))
		w.Header().Set("Leaderd-Checkpoint-Time", last.Saved.UTC().Format(time.RFC3339Nano))
		_, _ = w.Write(last.Data) // an error is of the command's side
	}
}

func (s *socket) putCheckpoint(w http.ResponseWriter, req *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, req.Body, state.MaxCheckpoint))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		answer(w, http.StatusRequestEntityTooLarge, "INVALID",
			fmt.Sprintf("the checkpoint has more than %d bytes", state.MaxCheckpoint))
		return
	}
	if err != nil {
		answer(w, http.StatusBadRequest, "INVALID", "the checkpoint did not come whole: "+err.Error())
		return
	}
	if err := s.keeper.Save(req.Context(), data); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *socket) putProgress(w http.ResponseWriter, req *http.Request) {
	var p struct {
		Done    int64  `json:"done"`
		Total   int64  `json:"total"`
		Message string `json:"message"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxReportBytes))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		answer(w, http.StatusBadRequest, "INVALID",
			`the body is not as {"done": 37, "total": 100, "message": "loading"}: `+strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	if err := s.keeper.Report(state.Progress{Done: p.Done, Total: p.Total, Message: p.Message}); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// directive is what the command said last of what shall follow.
func (s *socket) directive() state.Directive {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.says
}

func (s *socket) permanent(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.says.Permanent = true
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// after takes a wait, which is the parameter "for".
func (s *socket) after(most time.Duration, set func(time.Duration)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		text := req.URL.Query().Get("for")
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > most {
			answer(w, http.StatusBadRequest, "INVALID", fmt.Sprintf("for: %q is no wait of at most %s, such as 90s or 10m", cut(text, 64), most))
			return
		}
		s.mu.Lock()
		set(d)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}
}

// refuse tells a command why what it asked for was not done.
func refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrFenced):
		answer(w, http.StatusGone, "FENCED", err.Error())
	case errors.Is(err, state.ErrCheckpointChanged):
		answer(w, http.StatusConflict, "CONFLICT", err.Error())
	case errors.Is(err, ErrInvalid):
		answer(w, http.StatusBadRequest, "INVALID", err.Error())
	default:
		answer(w, http.StatusServiceUnavailable, "UNAVAILABLE", err.Error())
	}
}

func answer(w http.ResponseWriter, status int, reason, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // an error is of the command's side
		Reason string `json:"reason"`
		Error  string `json:"error"`
	}{reason, text})
}
