package runner

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// HTTP targets get the last checkpoint, and answer with the next one, in headers or in
// bodies.
func TestRequestsCarryCheckpoints(t *testing.T) {
	var got http.Header
	var body string
	var reply func(http.ResponseWriter)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		got, body = req.Header, string(data)
		reply(w)
	}))
	t.Cleanup(server.Close)
	r := New(Config{})
	t.Cleanup(r.Close)
	n := &notes{}
	task := Task{Keeper: n, HTTP: &state.HTTP{URL: server.URL}, Checkpoint: &state.CheckpointPolicy{}}
	send := func(with func(http.ResponseWriter)) (Outcome, string) {
		t.Helper()
		reply = with
		var out strings.Builder
		return r.Run(t.Context(), task, &out), out.String()
	}

	o, _ := send(func(w http.ResponseWriter) { w.Header().Set("Leaderd-Checkpoint", "b25l") })
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	require.Equal(t, "0", got.Get("Leaderd-Checkpoint-Number"))
	require.Empty(t, got.Values("Leaderd-Checkpoint"))
	require.Equal(t, "one", string(n.last.Data))

	o, out := send(func(w http.ResponseWriter) {
		w.Header().Set("Leaderd-Checkpoint-Body", "true")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
	})
	require.Equal(t, state.StateFailed, o.State)
	require.Contains(t, o.Error, "500")
	require.Empty(t, out, "it is no output")
	require.Equal(t, "1", got.Get("Leaderd-Checkpoint-Number"))
	require.Equal(t, "b25l", got.Get("Leaderd-Checkpoint"))
	require.Len(t, n.last.Data, 5000, "what was done was done")

	o, out = send(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hello") })
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	require.Equal(t, "hello", out)
	require.Equal(t, "2", got.Get("Leaderd-Checkpoint-Number"))
	require.Empty(t, got.Values("Leaderd-Checkpoint"), "it is too large for a header")
	require.Empty(t, body)

	// An answer that says that its body is none keeps the one before.
	o, out = send(func(w http.ResponseWriter) {
		w.Header().Set("Leaderd-Checkpoint-Body", "false")
		_, _ = io.WriteString(w, "hello")
	})
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	require.Equal(t, "hello", out)
	require.Len(t, n.last.Data, 5000)

	task.Checkpoint.Body = true
	o, _ = send(func(w http.ResponseWriter) { w.Header().Set("Leaderd-Checkpoint", "not base64!") })
	require.Len(t, body, 5000)
	require.Equal(t, state.StateFailed, o.State)
	require.Contains(t, o.Error, "Leaderd-Checkpoint")

	n.err = state.ErrCheckpointChanged
	o, _ = send(func(http.ResponseWriter) { t.Error("it was sent") })
	require.Equal(t, state.StateFailed, o.State)
	require.Contains(t, o.Error, "last checkpoint")

	// A job that works without them neither gets nor saves any.
	task.Checkpoint = nil
	o, _ = send(func(w http.ResponseWriter) { w.Header().Set("Leaderd-Checkpoint", "b25l") })
	require.Equal(t, state.StateSucceeded, o.State)
	require.Empty(t, got.Values("Leaderd-Checkpoint-Number"))
}
