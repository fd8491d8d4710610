package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// recorder is where work writes down that it started: by a request to its
// server or by a line in its file.
type recorder struct {
	t      testing.TB
	server *httptest.Server
	file   string

	mu     sync.Mutex
	starts []history.Start
	ends   []history.Start // with the instants of the ends
	odd    []string        // requests that make no sense
}

func newRecorder(t testing.TB, dir string) *recorder {
	t.Helper()
	r := &recorder{t: t, file: filepath.Join(dir, "work.txt")}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	return r
}

// serve is the work of HTTP jobs: ?mark= is written down, ?sleep= is how long it
// takes, ?status= is the answer.
func (r *recorder) serve(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	s := history.Start{
		Job: req.Header.Get("Leaderd-Job"), Run: req.Header.Get("Leaderd-Run"), Mark: req.URL.Query().Get("mark"), At: now,
	}
	var err error
	if s.Attempt, err = strconv.Atoi(req.Header.Get("Leaderd-Attempt")); err == nil {
		s.Token, err = strconv.ParseInt(req.Header.Get("Leaderd-Token"), 10, 64)
	}
	r.mu.Lock()
	if err != nil || s.Job == "" || s.Run == "" {
		r.odd = append(r.odd, fmt.Sprintf("%v: %v", err, req.Header))
	} else {
		r.starts = append(r.starts, s)
	}
	r.mu.Unlock()
	if d, err := time.ParseDuration(req.URL.Query().Get("sleep")); err == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
		}
	}
	s.At = time.Now()
	r.mu.Lock()
	r.ends = append(r.ends, s)
	r.mu.Unlock()
	code, err := strconv.Atoi(req.URL.Query().Get("status"))
	if err != nil {
		code = http.StatusNoContent
	}
	w.WriteHeader(code)
}

// recorded answers all starts so far.
func (r *recorder) recorded() []history.Start {
	r.t.Helper()
	r.mu.Lock()
	out := append([]history.Start(nil), r.starts...)
	require.Empty(r.t, r.odd)
	r.mu.Unlock()
	return append(out, r.lines("start")...)
}

// ended answers all ends so far: of requests, and of commands that write theirs
// down.
func (r *recorder) ended() []history.Start {
	r.t.Helper()
	r.mu.Lock()
	out := append([]history.Start(nil), r.ends...)
	r.mu.Unlock()
	return append(out, r.lines("end")...)
}

// lines are those of the file that begin with a word.
func (r *recorder) lines(what string) []history.Start {
	r.t.Helper()
	content, err := os.ReadFile(r.file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(r.t, err)
	var out []history.Start
	for line := range bytes.Lines(content) {
		var s history.Start
		var nanos int64
		var word string
		_, err := fmt.Sscanf(string(line), "%s %s %s %d %d %q %d\n", &word, &s.Job, &s.Run, &s.Attempt, &s.Token, &s.Mark, &nanos)
		require.NoError(r.t, err, "line %q", line)
		if word == what {
			s.At = time.Unix(0, nanos)
			out = append(out, s)
		}
	}
	return out
}

// startsOf are the starts of one job.
func (r *recorder) startsOf(job string) []history.Start {
	r.t.Helper()
	var out []history.Start
	for _, s := range r.recorded() {
		if s.Job == job {
			out = append(out, s)
		}
	}
	return out
}

// note is the shell line by which a command's work writes down that it started or
// ended: one write of one line.
func note(what string) string {
	return "printf '" + what + ` %s %s %s %s "%s" %s\n' "$LEADERD_JOB" "$LEADERD_RUN" "$LEADERD_ATTEMPT" "$LEADERD_TOKEN" "$MARK" "$(date +%s%N)" >> "$WORK_FILE"` + "\n"
}

// httpJob is a job that asks the recorder's server.
func (r *recorder) httpJob(name, schedule string, change ...func(*leaderdv1.JobSpec)) *leaderdv1.Job {
	spec := &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Http{Http: &leaderdv1.Http{Url: r.server.URL + "/"}}}
	return newJob(name, schedule, spec, change)
}

// shellJob is a job that writes to the recorder's file, then runs script.
func (r *recorder) shellJob(name, schedule, script string, change ...func(*leaderdv1.JobSpec)) *leaderdv1.Job {
	spec := &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{
		Shell: note("start") + script, Env: map[string]string{"WORK_FILE": r.file},
	}}}
	return newJob(name, schedule, spec, change)
}

func newJob(name, schedule string, spec *leaderdv1.JobSpec, change []func(*leaderdv1.JobSpec)) *leaderdv1.Job {
	if schedule != "" {
		spec.Schedules = []string{schedule}
	}
	for _, f := range change {
		f(spec)
	}
	return &leaderdv1.Job{Name: jobName(name), Spec: spec}
}

func atMostOnce(s *leaderdv1.JobSpec) { s.Guarantee = leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE }

func allowOverlap(s *leaderdv1.JobSpec) { s.Overlap = leaderdv1.Overlap_OVERLAP_ALLOW }

// marked has the work write a mark down.
func marked(mark string) func(*leaderdv1.JobSpec) {
	return func(s *leaderdv1.JobSpec) {
		if h := s.GetHttp(); h != nil {
			h.Url += "?mark=" + mark
			return
		}
		s.GetCommand().Env["MARK"] = mark
	}
}

// selecting has only executors with the label run the job.
func selecting(key, value string) func(*leaderdv1.JobSpec) {
	return func(s *leaderdv1.JobSpec) { s.NodeSelector = map[string]string{key: value} }
}
